package ids

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Where ids and sessions are in requests and answers.
const (
	Header        = "X-Thread-Id"
	SessionHeader = "X-Session-Id"
	DefaultCookie = "atid"
)

// cookieAge is how long a browser keeps the id after the last answer.
const cookieAge = 7 * 24 * time.Hour

// Source finds the id that a request means.
type Source struct {
	Keys   *Keyring
	Cookie string // the name of the cookie; DefaultCookie when empty
	// Strict makes an id that does not verify an error. Otherwise the next source counts.
	Strict bool
}

// Found is what a request means.
type Found struct {
	ID  string
	New bool // the id is new
	// Refused is why the request must be answered with 401; its ID is a new one then, which no thread has.
	Refused error
}

var errSeveral = errors.New("the request has several thread ids of one kind: send one")

// Of returns the id of a request: the one in the header, else the one in the cookie, else a new one (IDS-03). An id that
// does not verify never counts (IDS-04).
func (s *Source) Of(r *http.Request) Found {
	for _, read := range []func(*http.Request) (string, error){s.fromHeader, s.fromCookie} {
		id, err := read(r)
		switch {
		case err != nil && s.Strict:
			return Found{ID: New(), New: true, Refused: err}
		case err == nil && id != "":
			return Found{ID: id}
		}
	}
	return Found{ID: New(), New: true}
}

// fromHeader returns the id in the header, or "" without one.
func (s *Source) fromHeader(r *http.Request) (string, error) {
	switch values := r.Header.Values(Header); {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", nil
	case len(values) > 1:
		return "", errSeveral
	default:
		return s.Keys.Verify(values[0])
	}
}

// fromCookie returns the id in the cookie, or "" without one. Two cookies of the name with different values count as one
// that does not verify: another site of the domain may have set one of them.
func (s *Source) fromCookie(r *http.Request) (string, error) {
	cookies := r.CookiesNamed(s.name())
	if len(cookies) == 0 || cookies[0].Value == "" && len(cookies) == 1 {
		return "", nil
	}
	value := cookies[0].Value
	for _, c := range cookies[1:] {
		if c.Value != value {
			return "", errSeveral
		}
	}
	if len(value) > 3*maxSigned { // each character may be escaped
		return "", errForged
	}
	text, err := url.PathUnescape(value)
	if err != nil {
		return "", errForged
	}
	separator := inCookie
	if strings.Contains(text, inHeader) { // set by an earlier version, or by a client that knows the header only
		separator = inHeader
	}
	return s.Keys.verify(text, separator)
}

func (s *Source) name() string {
	if s.Cookie != "" {
		return s.Cookie
	}
	return DefaultCookie
}

// Set puts the signed id into an answer, as the header "id;signature" and as the cookie "id.signature". secure tells that the client speaks https.
func (s *Source) Set(h http.Header, id string, secure bool) {
	h.Set(Header, s.Keys.Sign(id))
	h.Add("Set-Cookie", (&http.Cookie{
		// + and / of base64 are escaped, as by frameworks that sign cookies.
		Name: s.name(), Value: url.QueryEscape(s.Keys.sign(id, inCookie)), Path: "/", MaxAge: int(cookieAge / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	}).String())
}
