// Package clip cuts texts to a length without cutting a character.
package clip

import "strings"

// Text returns a text cut to limit bytes, without cutting a character. A cut text ends with an ellipsis.
func Text(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Runes returns a text cut to limit characters.
func Runes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit])
	}
	return text
}
