package weburl

import "strings"

// A set tells which characters of ASCII are percent-encoded in a part of a URL, beside control characters and those
// outside of ASCII.
type set string

// The percent-encode sets of the standard.
const (
	controlSet      set = ""
	fragmentSet     set = " \"<>`"
	querySet        set = " \"#<>"
	specialQuerySet     = querySet + "'"
	pathSet             = querySet + "?^`{}"
	userinfoSet         = pathSet + "/:;=@[\\]|"
)

const hexDigits = "0123456789ABCDEF"

// encode returns the text with the characters of the set as %XX. A % remains as it is.
func (s set) encode(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7E || strings.IndexByte(string(s), c) >= 0 {
			out.WriteByte('%')
			out.WriteByte(hexDigits[c>>4])
			out.WriteByte(hexDigits[c&0xF])
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// Decode returns the bytes that a percent-encoded text stands for. A % that no two hexadecimal digits follow stands for itself.
func Decode(text string) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			if high, low := digit(text[i+1]), digit(text[i+2]); high < 16 && low < 16 {
				c = byte(high<<4 | low)
				i += 2
			}
		}
		out = append(out, c)
	}
	return out
}

// digit returns the value of a hexadecimal digit, or 16 if c is none.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return 16
}

func isAlpha(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
