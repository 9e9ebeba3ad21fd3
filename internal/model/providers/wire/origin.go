package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/skein-dev/skein/internal/model"
)

// Origin identifies the model that wrote the reasoning of an answer. Providers sign or encrypt reasoning, and refuse a conversation with
// reasoning that another model wrote, or that came from another endpoint.
type Origin struct {
	name   string // of the Model
	digest string
}

// Origin returns the origin of what the Model called name gets from the endpoint. parts are the id of the provider's model, and what else
// the provider binds reasoning to. The key is not among them, so that reasoning stays valid when the key is replaced.
func (e *Endpoint) Origin(name string, parts ...string) Origin {
	h := sha256.New()
	for _, part := range append([]string{strings.TrimSuffix(e.URL, "/")}, parts...) {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return Origin{name: name, digest: hex.EncodeToString(h.Sum(nil)[:16])}
}

// Metadata returns the metadata of an answer with reasoning: the reasoning below key, and the origin.
func (o Origin) Metadata(key string, reasoning []any) map[string]any {
	return map[string]any{key: reasoning, model.MetadataOrigin: o.digest}
}

// Reasoning returns the reasoning that an answer has below key in its metadata, or nil if it has another origin. Older releases stored no
// origin. Of their answers, only those of fallbacks say which Model they are of.
func (o Origin) Reasoning(key string, m model.Message) []any {
	stored, _ := m.Metadata[key].([]any)
	if digest, ok := m.Metadata[model.MetadataOrigin]; ok {
		if digest != o.digest {
			return nil
		}
		return stored
	}
	if by, ok := m.Metadata[model.MetadataModel]; ok && by != o.name {
		return nil
	}
	return stored
}
