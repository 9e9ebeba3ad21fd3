// Package clip cuts texts to a length without cutting a character.
package clip

import (
	"fmt"
	"strings"
)

// Text returns at most the first limit bytes of a text, without a part of a character. If something was cut, an ellipsis follows, which
// does not count.
func Text(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Runes returns at most the first limit characters of a text. Unlike Text, it adds no ellipsis.
func Runes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit])
	}
	return text
}

// Result returns what a model gets to read of a result: at most limit bytes, and a note when the rest
// is cut.
func Result(content string, limit int) string {
	content = strings.ReplaceAll(content, "\x00", "\uFFFD")
	if len(content) <= limit {
		return strings.ToValidUTF8(content, "\uFFFD")
	}
	return strings.ToValidUTF8(content[:limit], "") + fmt.Sprintf("\n[cut: the result has %d bytes, this is the first %d]", len(content), limit)
}
