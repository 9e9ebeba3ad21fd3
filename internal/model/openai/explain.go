package openai

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

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/skein-dev/skein/internal/model"
)

const (
	maxErrorText  = 500
	maxRetryAfter = time.Minute
)

// explain turns a failure into an error that says what happened and what to do, without the key.
func (c *Client) explain(call context.Context, err error, res *http.Response, begun bool) *model.Error {
	if res != nil && res.StatusCode >= http.StatusBadRequest {
		return c.explainStatus(err, res)
	}
	var streamed *ssestream.StreamError
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	var dns *net.DNSError
	switch {
	case errors.Is(call.Err(), context.DeadlineExceeded):
		return model.Errorf(model.KindTimeout, "the model at %s did not finish its answer within %s: raise spec.timeout of the Model or ask for less", c.endpoint, c.timeout)
	case errors.As(err, &streamed):
		return model.Errorf(model.KindFailed, "the model at %s failed: %s", c.endpoint, c.quote(streamed.Message))
	case errors.Is(err, errAnswerTooLong):
		return model.Errorf(model.KindBadAnswer, "the model at %s sent an answer of more than %d bytes", c.endpoint, maxAnswerBytes)
	case errors.As(err, &syntax), errors.As(err, &wrongType):
		return model.Errorf(model.KindBadAnswer, "the endpoint %s sent a chunk that is not the JSON of a chat completion: %s", c.endpoint, c.quote(err.Error()))
	case errors.As(err, &dns):
		e := model.Errorf(model.KindUnreachable, "the host of the endpoint %s is not known: check spec.endpoint of the Model", c.endpoint)
		e.Passing = dns.IsTemporary || dns.IsTimeout
		return e
	case begun, errors.Is(err, io.ErrUnexpectedEOF):
		return broken(c.endpoint)
	default:
		e := model.Errorf(model.KindUnreachable, "the endpoint %s cannot be reached: %s; check spec.endpoint of the Model and that the manager may connect to it", c.endpoint, c.quote(rootCause(err)))
		e.Passing = true
		return e
	}
}

func (c *Client) explainStatus(err error, res *http.Response) *model.Error {
	var said string
	var api *sdk.Error
	if errors.As(err, &api) && api.Message != "" {
		said = api.Message
	} else if body, readErr := io.ReadAll(io.LimitReader(res.Body, 4*maxErrorText)); readErr == nil {
		said = strings.TrimSpace(string(body))
	}
	if said == "" {
		said = http.StatusText(res.StatusCode)
	}
	e := model.Errorf(model.KindStatus, "the model at %s refused with status %d: %s%s", c.endpoint, res.StatusCode, c.quote(said), advice(res.StatusCode))
	e.Status = res.StatusCode
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusRequestTimeout,
		res.StatusCode == http.StatusConflict, res.StatusCode >= http.StatusInternalServerError:
		e.Passing = true
		e.RetryAfter = retryAfter(res.Header)
	}
	return e
}

func advice(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "; check the API key in the Secret that spec.credentials of the Model names"
	case http.StatusNotFound:
		return "; check spec.endpoint and spec.model of the Model"
	}
	return ""
}

func broken(endpoint string) *model.Error {
	e := model.Errorf(model.KindUnreachable, "the connection to the model at %s broke before its answer was complete", endpoint)
	e.Passing = true
	return e
}

// quote makes a text of others fit to be shown: without the key, short, on one line.
func (c *Client) quote(text string) string {
	text = strings.Join(strings.Fields(c.redact.Redact(text)), " ")
	if len(text) > maxErrorText {
		cut := maxErrorText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

// rootCause leaves out the address and the URL that net/http wraps around an error.
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

// retryAfter reads how long the server asks to wait, a minute at most.
func retryAfter(h http.Header) time.Duration {
	var d time.Duration
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		d = time.Duration(ms * float64(time.Millisecond))
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		d = time.Duration(s * float64(time.Second))
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		d = time.Until(at)
	}
	return min(max(d, 0), maxRetryAfter)
}
