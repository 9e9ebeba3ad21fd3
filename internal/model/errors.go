package model

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Kind of failure of a model call.
type Kind string

// The kinds.
const (
	// KindUnreachable: nothing answered at the endpoint, or the connection broke under the answer.
	KindUnreachable Kind = "unreachable"
	// KindTimeout: the answer was not complete in time.
	KindTimeout Kind = "timeout"
	// KindStatus: the provider refused with an HTTP status.
	KindStatus Kind = "status"
	// KindBadAnswer: what came is not an answer of the protocol.
	KindBadAnswer Kind = "bad_answer"
	// KindFailed: the provider answered that it failed, or a script says so.
	KindFailed Kind = "failed"
	// KindFiltered: the provider's content filter stopped the answer.
	KindFiltered Kind = "filtered"
	// KindConfig: the Model cannot be used as it is declared.
	KindConfig Kind = "config"
)

// Code tells failures of one kind apart, where that makes a difference.
type Code string

// The codes.
const (
	// CodeContextLength: the conversation is longer than the model's window.
	CodeContextLength Code = "context_length"
	// CodeFiltered: the provider's content filter refused the request.
	CodeFiltered Code = "content_filter"
)

// Error of a model call. Its text is for people and never holds the API key.
type Error struct {
	Kind    Kind
	Status  int    // HTTP status, for KindStatus
	Code    Code   // "" when nothing special is known
	Message string // says what happened and what to do
	// Passing: the same call may well succeed a little later.
	Passing bool
	// RetryAfter is how long the provider asked to wait; 0 when it did not say.
	RetryAfter time.Duration
	// Counted is how many tokens the provider counted, and Limit how many it takes, where it said so with CodeContextLength; else 0.
	Counted, Limit int64
	// Metadata is to be stored on the message that records the failure, as a Response's is on its answer.
	Metadata map[string]any
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf makes an error of a kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Redactor takes secrets out of texts that others wrote.
type Redactor struct{ replacer *strings.Replacer }

// minSecret is the length below which a secret cannot be told from ordinary text.
const minSecret = 4

// NewRedactor knows secrets in the spellings in which a server may send them back.
func NewRedactor(secrets ...string) Redactor {
	var pairs []string
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		quoted := fmt.Sprintf("%q", s)
		for _, spelling := range []string{
			s, quoted[1 : len(quoted)-1], url.QueryEscape(s), url.PathEscape(s),
			base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
		} {
			pairs = append(pairs, spelling, "[redacted]")
		}
	}
	if len(pairs) == 0 {
		return Redactor{}
	}
	return Redactor{replacer: strings.NewReplacer(pairs...)}
}

// Redact gives the text without the secrets.
func (r Redactor) Redact(text string) string {
	if r.replacer == nil {
		return text
	}
	return r.replacer.Replace(text)
}
