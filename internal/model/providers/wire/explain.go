package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/ownclock"
)

const (
	maxErrorText  = 500
	maxRetryAfter = time.Minute
	// statusOverloaded is specific to Anthropic.
	statusOverloaded = 529
)

// Failure is the failure of a call as a client sees it.
type Failure struct {
	Err      error
	Response *http.Response // nil when there was none
	// Refusal is the body of a response that is a refusal. It is empty when it could not be read or is too long.
	Refusal []byte
	// Begun says that pieces of the answer had arrived.
	Begun bool
	// Said is the provider's text, and Code its name for the failure. Both may be empty.
	Said, Code string
	// Streamed says that the provider reported the failure within a stream that had begun well.
	Streamed bool
	// Passing says that the same call may succeed later. It applies to streamed failures.
	Passing bool
}

// Explain converts a failure to an error that says what happened and what to do, without the key.
func (e *Endpoint) Explain(call context.Context, f Failure) *model.Error {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	var dns *net.DNSError
	var redirect *redirectError
	var busy *membudget.BusyError
	var large *membudget.TooLargeError
	var refused interface{ Refused() string } // by the network, before anything was sent
	switch {
	case errors.As(f.Err, &refused):
		return model.Errorf(model.KindUnreachable, "%s", e.Quote(refused.Refused()))
	case errors.As(f.Err, &busy):
		out := model.Errorf(model.KindNoMemory, "there is no memory for the answer of the model at %s: %s", e.shown, busy)
		out.Passing = true
		return out
	case errors.As(f.Err, &large):
		return model.Errorf(model.KindNoMemory, "there is no memory for the answer of the model at %s: %s", e.shown, large)
	case f.Streamed:
		out := model.Errorf(model.KindFailed, "the model at %s failed%s", e.shown, e.said(f))
		out.Code, out.Passing = codeOf(f), f.Passing
		measure(out, f.Said)
		return out
	case f.Response != nil && f.Response.StatusCode >= http.StatusBadRequest:
		return e.explainStatus(f)
	case errors.Is(context.Cause(call), errIdle):
		out := model.Errorf(model.KindTimeout, "the model at %s sent nothing for %s: raise spec.idleTimeout of the Model", e.shown, e.idle)
		out.Passing = true
		return out
	case errors.Is(call.Err(), context.DeadlineExceeded):
		return model.Errorf(model.KindTimeout, "the model at %s did not finish its answer within %s: raise spec.timeout of the Model or ask for less", e.shown, e.timeout)
	case errors.As(f.Err, &redirect):
		return model.Errorf(model.KindConfig, "the endpoint %s redirects to %s, which Skein does not follow, so that the key is not sent elsewhere: give that address in spec.endpoint of the Model if it is the right one", e.shown, e.Quote(redirect.host))
	case errors.Is(f.Err, errAnswerTooLong):
		return model.Errorf(model.KindBadAnswer, "the model at %s sent an answer of more than %d bytes", e.shown, maxAnswerBytes)
	case errors.As(f.Err, &syntax), errors.As(f.Err, &wrongType):
		return model.Errorf(model.KindBadAnswer, "the endpoint %s sent a chunk that is not the JSON of its protocol: check spec.endpoint and spec.api of the Model", e.shown)
	case errors.As(f.Err, &dns):
		out := model.Errorf(model.KindUnreachable, "the host of the endpoint %s is not known: check spec.endpoint of the Model", e.shown)
		out.Passing = dns.IsTemporary || dns.IsTimeout
		return out
	case f.Begun, errors.Is(f.Err, io.ErrUnexpectedEOF):
		return e.Broken()
	default:
		out := model.Errorf(model.KindUnreachable, "the endpoint %s cannot be reached: %s; check spec.endpoint of the Model and that the manager may connect to it", e.shown, e.Quote(rootCause(f.Err)))
		out.Passing = true
		return out
	}
}

func (e *Endpoint) explainStatus(f Failure) *model.Error {
	res := f.Response
	said := f.Said
	if said == "" {
		// What answers may be no model at all, but a service whose answers the Model's author must not read.
		said = http.StatusText(res.StatusCode)
		if res.Body != nil {
			f.Said = strings.TrimSpace(e.bodyOf(res))
		}
	}
	out := model.Errorf(model.KindStatus, "the model at %s refused with status %d%s%s", e.shown, res.StatusCode, advice(res.StatusCode), model.Said+e.Quote(said))
	out.Status, out.Code = res.StatusCode, codeOf(f)
	if res.StatusCode == http.StatusRequestEntityTooLarge {
		out.Code = model.CodeContextLength
	}
	measure(out, f.Said)
	switch {
	case f.Code == "insufficient_quota": // a 429 that waiting does not cure
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusRequestTimeout,
		res.StatusCode == http.StatusConflict, res.StatusCode >= http.StatusInternalServerError:
		out.Passing = true
		out.RetryAfter = retryAfter(res.Header)
	}
	return out
}

// said returns what the provider said, as the end of a message.
func (e *Endpoint) said(f Failure) string { return model.Said + e.Quote(f.Said) }

func advice(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "; check the API key in the Secret that spec.credentials of the Model names"
	case http.StatusNotFound:
		return "; check spec.endpoint and spec.model of the Model"
	case statusOverloaded:
		return "; the provider is overloaded: try later, or give the Model fallbacks"
	}
	return ""
}

// Broken returns the error of an answer that ended too early.
func (e *Endpoint) Broken() *model.Error {
	out := model.Errorf(model.KindUnreachable, "the connection to the model at %s broke before its answer was complete", e.shown)
	out.Passing = true
	return out
}

// Quote makes a text of others safe to show: without the key, short, on one line.
func (e *Endpoint) Quote(text string) string {
	text = strings.Join(strings.Fields(e.redact.Redact(text)), " ")
	if len(text) > maxErrorText {
		cut := maxErrorText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

// rootCause returns the error without the address and the URL that net/http wraps around it.
func rootCause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

// maxErrorBody limits how much of the body of a refusal is read. unsureEnd is how much of the end of a longer body is
// not shown: a key may have been cut there, and half of a key would not be found.
const (
	maxErrorBody = 64 << 10
	unsureEnd    = 8 << 10
)

func (e *Endpoint) bodyOf(res *http.Response) string {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return ""
	}
	text := e.redact.Redact(string(body))
	if len(body) == maxErrorBody {
		text = text[:max(0, len(text)-unsureEnd)]
	}
	return text
}

// retryAfter returns how long the server asks to wait, at most a minute.
func retryAfter(h http.Header) time.Duration {
	var d time.Duration
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		d = time.Duration(ms * float64(time.Millisecond))
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		d = time.Duration(s * float64(time.Second))
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		d = ownclock.Until(at)
	}
	return min(max(d, 0), maxRetryAfter)
}
