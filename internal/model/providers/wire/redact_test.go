package wire

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/model"
)

// spellings are the forms in which servers, proxies and libraries send back what they received.
var spellings = map[string]func(string) string{
	"as it is":       func(s string) string { return s },
	"Go's":           func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] },
	"JSON":           inJSON,
	"JSON's slashes": func(s string) string { return strings.ReplaceAll(inJSON(s), "/", `\/`) },
	"JSON in JSON":   func(s string) string { return inJSON(inJSON(s)) },
	"plain JSON": func(s string) string {
		var out strings.Builder
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		_ = e.Encode(s)
		return strings.Trim(strings.TrimSpace(out.String()), `"`)
	},
	"a query":        url.QueryEscape,
	"a path":         url.PathEscape,
	"a small query":  func(s string) string { return smallHex(url.QueryEscape(s)) },
	"HTML":           html.EscapeString,
	"base64":         func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"raw base64":     func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"base64 for URL": func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"hex":            func(s string) string { return hex.EncodeToString([]byte(s)) },
}

func inJSON(s string) string { text, _ := json.Marshal(s); return string(text[1 : len(text)-1]) }

// smallHex returns a percent-encoded text with lower-case digits.
func smallHex(s string) string {
	out := []byte(s)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:], strings.ToLower(string(out[i+1:i+3])))
		}
	}
	return string(out)
}

// No part of a key may be in an error, wherever and however the provider sends it back.
func TestKeysStayOutOfErrors(t *testing.T) {
	names := make([]string, 0, len(spellings))
	for name := range spellings {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`sk-[A-Za-z0-9]{6}[A-Za-z0-9+/=&<>"'\\%~ ._-]{10,60}[A-Za-z0-9]`).Draw(t, "key")
		name := rapid.SampledFrom(names).Draw(t, "spelling")
		sent := spellings[name](key)
		before := strings.Repeat(rapid.SampledFrom([]string{" ", "\n", "x", "é "}).Draw(t, "filling"), rapid.IntRange(0, 2100).Draw(t, "before"))
		body := before + sent + strings.Repeat("y", rapid.IntRange(0, 600).Draw(t, "behind"))
		e := &Endpoint{redact: model.NewRedactor(key)}
		for _, f := range []Failure{
			{Response: &http.Response{StatusCode: 400, Body: io.NopCloser(strings.NewReader(body))}},
			{Response: &http.Response{StatusCode: 401}, Said: body},
			{Streamed: true, Said: body},
			{Err: errors.New(body)},
		} {
			text := e.Explain(context.Background(), f).Error()
			for i := 0; i+12 <= len(sent); i++ {
				if part := sent[i : i+12]; strings.TrimSpace(part) == part && strings.Contains(text, part) {
					t.Fatalf("as %s, %q of the key is in %q", name, part, text)
				}
			}
		}
	})
}
