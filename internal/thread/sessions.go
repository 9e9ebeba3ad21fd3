package thread

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"regexp"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// MetadataSession is the metadata key of an answer that holds the provider's conversation to which the answer belongs:
// an object with the field id. The engine adds what it needs to decide whether the next call can continue it. An import
// adds the fields imported, agent and digest; see ImportedSession.
const MetadataSession = "engine_session"

const (
	sessionID       = "id"
	sessionImported = "imported"
	sessionAgent    = "agent"
	sessionDigest   = "digest"
)

// runID matches the ids of Skein's runs. Exports of its first versions have one in the place of the session.
var runID = regexp.MustCompile(`^sess_[0-9a-f]{32}$`)

// sessionOf returns the id of the provider's conversation that a message belongs to, or "".
func sessionOf(m *store.Message) string {
	s, _ := m.Metadata[MetadataSession].(map[string]any)
	id, _ := s[sessionID].(string)
	return id
}

// ImportedSession returns the provider's conversation that an import added to the last of these messages, and the agent
// that had it. Both are empty when there is none, or when a message was changed, added or removed since.
func ImportedSession(messages []store.Message) (id, agent string) {
	if len(messages) == 0 {
		return "", ""
	}
	last := &messages[len(messages)-1]
	s, _ := last.Metadata[MetadataSession].(map[string]any)
	if s[sessionImported] != true {
		return "", ""
	}
	d := newDigest()
	for i := range messages {
		d.add(&messages[i])
	}
	if s[sessionDigest] != d.sum() {
		return "", ""
	}
	agent, _ = s[sessionAgent].(string)
	return sessionOf(last), agent
}

// importedSession returns the metadata of the message with which an imported conversation of the provider ends.
func importedSession(id, agent string, d *saidDigest) map[string]any {
	return map[string]any{MetadataSession: map[string]any{sessionID: id, sessionImported: true, sessionAgent: agent, sessionDigest: d.sum()}}
}

// notice reports whether Skein wrote an answer because the model gave none.
func notice(role, text string) bool {
	return role == string(store.RoleAssistant) && (text == "(stopped by user)" || strings.HasPrefix(text, "(error: ") && strings.HasSuffix(text, ")"))
}

// saidDigest identifies a conversation by who said what.
type saidDigest struct{ hash hash.Hash }

func newDigest() *saidDigest { return &saidDigest{sha256.New()} }

func (d *saidDigest) add(m *store.Message) {
	for _, part := range []string{string(m.Role), m.Name, contentOf(m)} {
		d.hash.Write([]byte(part))
		d.hash.Write([]byte{0})
	}
}

func (d *saidDigest) sum() string { return hex.EncodeToString(d.hash.Sum(nil)[:16]) }
