package sqldb

import (
	"strings"
	"unicode/utf8"
)

// text returns a text as it is stored: valid UTF-8 without NUL, which the texts of PostgreSQL cannot hold. SQLite's could, but then what a
// thread has would depend on the database.
func text(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
