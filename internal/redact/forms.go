package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// formsOf returns the forms in which a value may appear in a text: as it is, and in the usual encodings.
func formsOf(value string) []string {
	forms := []string{value}
	for _, escape := range []func(string) string{escapeJSON, escapeJSONForHTML} {
		once := escape(value)
		forms = append(forms, once, escape(once)) // also twice: JSON in a JSON string
	}
	forms = append(forms, html.EscapeString(value))
	query := url.QueryEscape(value)
	percent := strings.ReplaceAll(query, "+", "%20")
	// encodeURIComponent does not escape these.
	component := strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(percent)
	for _, f := range []string{query, percent, component, url.PathEscape(value)} {
		forms = append(forms, f, lowerPercent(f))
	}
	digits := hex.EncodeToString([]byte(value))
	forms = append(forms, digits, strings.ToUpper(digits))
	forms = append(forms, base64Forms(value)...)
	slices.Sort(forms)
	return slices.Compact(forms)
}

// base64Forms returns the characters that the value's bits determine, for each of the three offsets that the value may
// have within what was encoded, and all characters of a value that was encoded alone.
func base64Forms(value string) (forms []string) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		whole := enc.EncodeToString([]byte(value))
		forms = append(forms, whole, enc.WithPadding(base64.StdPadding).EncodeToString([]byte(value)))
		for offset := range 3 {
			text := enc.EncodeToString(append(make([]byte, offset), value...))
			first := (offset*8 + 5) / 6
			last := (offset + len(value)) * 8 / 6
			forms = append(forms, text[first:last])
		}
	}
	return forms
}

func escapeJSON(s string) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // encoding a string cannot fail
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(buf.String()), `"`), `"`)
}

func escapeJSONForHTML(s string) string {
	data, _ := json.Marshal(s) // encoding a string cannot fail
	return string(data[1 : len(data)-1])
}

// lowerPercent returns a text with lower-case digits in percent escapes.
func lowerPercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}
