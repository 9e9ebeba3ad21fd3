package thread

import (
	"strings"

	"github.com/google/uuid"
)

// ParseID returns the UUID for a spelling of a thread's id (IDS-01): the UUID itself, T-<uuid>
// (case-insensitive) or thrd_<32 hex digits>.
func ParseID(s string) (id string, ok bool) {
	if hex, found := strings.CutPrefix(s, "thrd_"); found {
		if len(hex) != 32 {
			return "", false
		}
		return canonicalUUID(hex)
	}
	if len(s) > 2 && (s[0] == 'T' || s[0] == 't') && s[1] == '-' {
		s = s[2:]
	}
	if len(s) != 36 {
		return "", false // uuid.Parse accepts more forms than the API does
	}
	return canonicalUUID(s)
}

func canonicalUUID(s string) (string, bool) {
	u, err := uuid.Parse(s)
	if err != nil {
		return "", false
	}
	return u.String(), true
}

// ParseShortID returns the last 12 hex digits of a UUID in lower case (IDS-01).
func ParseShortID(s string) (short string, ok bool) {
	if len(s) != 12 {
		return "", false
	}
	for _, r := range s {
		if !strings.ContainsRune("0123456789abcdefABCDEF", r) {
			return "", false
		}
	}
	return strings.ToLower(s), true
}
