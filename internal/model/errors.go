package model

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of failure of a model call.
type Kind string

// The kinds.
const (
	// KindUnreachable: nothing answered at the endpoint, or the connection broke during the answer.
	KindUnreachable Kind = "unreachable"
	// KindTimeout: the answer was not complete in time.
	KindTimeout Kind = "timeout"
	// KindStatus: the provider refused with an HTTP status.
	KindStatus Kind = "status"
	// KindBadAnswer: the response does not follow the protocol.
	KindBadAnswer Kind = "bad_answer"
	// KindFailed: the provider reported a failure, or a script defines one.
	KindFailed Kind = "failed"
	// KindFiltered: the provider's content filter stopped the answer.
	KindFiltered Kind = "filtered"
	// KindNoMemory: the namespace has no memory for the answer.
	KindNoMemory Kind = "no_memory"
	// KindConfig: the Model cannot be used as declared.
	KindConfig Kind = "config"
)

// Code distinguishes failures of one kind, where that matters.
type Code string

// The codes.
const (
	// CodeContextLength: the conversation exceeds the model's context window.
	CodeContextLength Code = "context_length"
	// CodeFiltered: the provider's content filter refused the request.
	CodeFiltered Code = "content_filter"
)

// Error is the error of a model call. Its text is for people and never contains the API key.
type Error struct {
	Kind    Kind
	Status  int    // HTTP status, for KindStatus
	Code    Code   // "" when unknown
	Message string // says what happened and what to do
	// Passing reports that the same call may succeed a little later.
	Passing bool
	// RetryAfter is how long the provider asked to wait; 0 when it did not ask.
	RetryAfter time.Duration
	// Counted is how many tokens the provider counted, and Limit how many it accepts, if it said so with
	// CodeContextLength; otherwise 0.
	Counted, Limit int64
	// Metadata is stored on the message that records the failure, as a Response's is on its answer.
	Metadata map[string]any
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error of a kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Said stands in the message of an Error before what the provider said, with which the message ends.
const Said = "; it said: "

// Unsaid returns a message of an Error without what the provider said. That may repeat what the model or a person wrote, so it must stay
// out of objects (K8S-07). seen says where it can be read.
func Unsaid(message, seen string) string {
	own, _, quoted := strings.Cut(message, Said)
	if !quoted {
		return message
	}
	return own + "; " + seen
}

// Redactor removes secrets from texts that others wrote.
type Redactor struct{ replacer *strings.Replacer }

// minSecret is the length below which a secret cannot be distinguished from ordinary text.
const minSecret = 4

// NewRedactor returns a Redactor for secrets, in the spellings in which a server may send them back.
func NewRedactor(secrets ...string) Redactor {
	var pairs []string
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		for _, spelling := range spellings(s) {
			pairs = append(pairs, spelling, "[redacted]")
		}
	}
	if len(pairs) == 0 {
		return Redactor{}
	}
	return Redactor{replacer: strings.NewReplacer(pairs...)}
}

// spellings returns the spellings of a secret, longer ones first: of two with the same beginning, the longer one is
// removed whole.
func spellings(s string) []string {
	quoted, inJSON := strconv.Quote(s), jsonText(s)
	query, path := url.QueryEscape(s), url.PathEscape(s)
	out := []string{
		s, quoted[1 : len(quoted)-1], inJSON, strings.ReplaceAll(inJSON, "/", `\/`), jsonText(inJSON), html.EscapeString(s),
		query, path, smallHex(query), smallHex(path), hex.EncodeToString([]byte(s)),
		base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
	}
	var plain strings.Builder
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	if e.Encode(s) == nil {
		text := strings.TrimSuffix(plain.String(), "\n")
		out = append(out, text[1:len(text)-1], strings.ReplaceAll(text[1:len(text)-1], "/", `\/`))
	}
	slices.SortStableFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(out)
}

// jsonText returns a text as it appears within a JSON string.
func jsonText(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(text[1 : len(text)-1])
}

// smallHex returns a percent-encoded text with lower-case digits.
func smallHex(s string) string {
	out := []byte(s)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:], bytes.ToLower(out[i+1:i+3]))
		}
	}
	return string(out)
}

// Redact returns the text without the secrets.
func (r Redactor) Redact(text string) string {
	if r.replacer == nil {
		return text
	}
	return r.replacer.Replace(text)
}
