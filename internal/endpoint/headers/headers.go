// Package headers says which headers of a request the code of a ThreadEndpoint sees, and which it may set in its answer (END-01). The
// doors to endpoints share it.
package headers

import (
	"net/http"
	"slices"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// hopByHop are the headers that belong to one connection, in either direction.
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// privateHeaders identify the caller, or let another act as the caller. Code never sees them.
var privateHeaders = map[string]bool{
	"Authorization": true, "Cookie": true, "X-Forwarded-For": true, "X-Real-Ip": true, "Forwarded": true, "X-Csrf-Token": true,
	http.CanonicalHeaderKey(runtimev1.HeaderLease): true,
}

var privatePrefixes = []string{"Proxy-", "X-Remote-", "Impersonate-", "X-Forwarded-", "Sec-Websocket-"}

// OfRequest returns the headers of a request that code may see, with the bytes of their values. Code sees them as Text.
func OfRequest(in http.Header) [][2]string {
	drop := map[string]bool{}
	for _, list := range in["Connection"] { // it may name further headers of the connection
		for name := range strings.SplitSeq(list, ",") {
			drop[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	var out [][2]string
	for name, values := range in {
		if hopByHop[name] || privateHeaders[name] || drop[name] || hasPrefix(name, privatePrefixes) {
			continue
		}
		for _, v := range values {
			out = append(out, [2]string{strings.ToLower(name), v})
		}
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out
}

// ownHeaders are the headers of an answer that code must not set: those of the connection, those that a browser would
// apply to the whole API, and those of the API server.
var ownHeaders = map[string]bool{
	"Content-Length": true, "Date": true, "Server": true, "Set-Cookie": true, "Set-Cookie2": true, "Clear-Site-Data": true, "Www-Authenticate": true,
	"Proxy-Authenticate": true, "Strict-Transport-Security": true, "Public-Key-Pins": true, "Alt-Svc": true, "Service-Worker-Allowed": true,
	"X-Content-Type-Options": true, "Audit-Id": true, "Warning": true,
	http.CanonicalHeaderKey(runtimev1.HeaderEndpoint): true, http.CanonicalHeaderKey(runtimev1.HeaderIdempotentReplayed): true,
}

var ownPrefixes = []string{"Access-Control-", "X-Kubernetes-", "X-Remote-"}

// InAnswer reports whether code may set a header of its answer.
func InAnswer(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return isToken(name) && !hopByHop[name] && !ownHeaders[name] && !hasPrefix(name, ownPrefixes)
}

// isToken reports whether a text can be the name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// Answer returns the value of a header of an answer as it is sent. hide removes secrets: from the text that code has set, and from what
// its bytes are as UTF-8.
func Answer(text string, hide func(string) string) string { return hide(Bytes(hide(text))) }

// Guard keeps a browser from treating the output of code as a page of the API itself.
func Guard(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Add("Content-Security-Policy", "sandbox")
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Text returns the value of a header as code sees it: one character for each byte, as in browsers. HTTP does not say in which encoding
// the bytes are.
func Text(value string) string {
	text := make([]rune, len(value))
	for i := range len(value) {
		text[i] = rune(value[i])
	}
	return string(text)
}

// Bytes returns the value of a header as it is sent: one byte for each character of what code has set. Text with other characters than
// those of Text stays as it is.
func Bytes(text string) string {
	value := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xFF {
			return text
		}
		value = append(value, byte(r))
	}
	return string(value)
}
