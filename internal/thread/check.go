package thread

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/membudget"
)

const (
	customEventPrefix = "event:"
	maxEventName      = 100
)

var eventName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]*$`)

func checkEventName(name string) error {
	if len(name) > maxEventName || !eventName.MatchString(name) {
		return invalid("event", "give a name of at most %d letters, digits, '_', '-', '.' and ':' that starts with a letter", maxEventName)
	}
	return nil
}

// checkText refuses text that a database or a client cannot carry.
func checkText(field, s string) error {
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return invalid(field, "give UTF-8 text without NUL")
	}
	return nil
}

func (s *Service) checkJSON(field string, data json.RawMessage, limit int) error {
	if len(data) > limit {
		return invalid(field, "it has %d bytes, more than the limit of %d: keep large data in a file", len(data), limit)
	}
	if len(data) > 0 && !json.Valid(data) {
		return invalid(field, "it is not valid JSON")
	}
	return nil
}

// maxDecoded bounds the memory of a message once its JSON is decoded, which can be fifty times as much as the JSON has: pages hold
// many messages.
const maxDecoded = 8 << 20

// checkSize limits the length of a value as JSON, and the memory that it takes.
func (s *Service) checkSize(field string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return invalid(field, "it cannot be written as JSON: %v", err)
	}
	if len(data) > s.limits.messageBytes {
		return invalid(field, "it has %d bytes, more than the limit of %d: write large data to a file and attach it", len(data), s.limits.messageBytes)
	}
	if cost := membudget.JSONCost(data); cost > maxDecoded {
		return invalid(field, "its many small values take %d bytes of memory, more than the limit of %d: write large data to a file and attach it", cost, maxDecoded)
	}
	return nil
}
