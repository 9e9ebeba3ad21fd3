package ids

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// The form of an id (IDS-02).
const (
	Prefix    = "thrd_"
	MinLength = 32
	MaxLength = 64
)

// sessionPrefix begins the id of one request (IDS-05).
const sessionPrefix = "sess_"

// Check returns an error when an id does not have the form of one. The error says what to write, and never more of the id
// than its length.
func Check(id string) error {
	switch {
	case !strings.HasPrefix(id, Prefix):
		return fmt.Errorf("a thread id begins with %s", Prefix)
	case len(id) < MinLength || len(id) > MaxLength:
		return fmt.Errorf("a thread id has %d to %d characters with its %s, not %d", MinLength, MaxLength, Prefix, len(id))
	}
	for i := len(Prefix); i < len(id); i++ {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return fmt.Errorf("a thread id has letters a to z, A to Z and digits only after %s", Prefix)
		}
	}
	return nil
}

// New returns a random id.
func New() string { return Prefix + randomHex() }

// NewSession returns a random id of a session. Each request gets a new one (IDS-05).
func NewSession() string { return sessionPrefix + randomHex() }

func randomHex() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// OfUser returns the id of a user, the same one each time (IDS-06). Without the key neither the id of a user nor the user
// of an id can be found.
func OfUser(key []byte, user string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(user))
	return Prefix + hex.EncodeToString(mac.Sum(nil)[:16])
}
