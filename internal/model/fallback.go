package model

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Named is a client with the name of its Model.
type Named struct {
	Name   string
	Client Client
}

// WithFallbacks returns a client that calls other Models, in order, when the first one fails in a way that another may
// not: see FallsBack. The Response names the Model that answered. When all fail, the error of the first includes the
// others.
func WithFallbacks(first Named, others ...Named) Client {
	if len(others) == 0 {
		return first.Client
	}
	return &fallbacks{all: append([]Named{first}, others...)}
}

type fallbacks struct{ all []Named }

// Stream implements Client.
func (f *fallbacks) Stream(ctx context.Context, req Request, emit func(Delta)) (*Response, error) {
	var failures []string
	var main *Error
	for i, m := range f.all {
		if i > 0 {
			req.Session, req.SessionMessages, req.SessionLeftOut = "", 0, 0 // a session belongs to the first Model
			req.Deferral = nil
		}
		sent := false
		res, err := m.Client.Stream(ctx, req, func(d Delta) {
			sent = !d.Reset
			emit(d)
		})
		if err == nil {
			if i > 0 {
				res.Model, res.Failures, res.Session = m.Name, failures, ""
			}
			return res, nil
		}
		var failure *Error
		if !errors.As(err, &failure) || ctx.Err() != nil {
			return nil, err
		}
		if main == nil {
			main = failure
		}
		failures = append(failures, m.Name+": "+failure.Message)
		if !FallsBack(failure) {
			break
		}
		if sent {
			emit(Delta{Reset: true})
		}
	}
	if len(failures) == 1 {
		return nil, main
	}
	all := *main
	all.Message += "; its fallbacks failed too: " + strings.Join(failures[1:], "; ")
	return nil, &all
}

// Embed implements Embedder with the first Model only, because vectors of different models do not compare.
func (f *fallbacks) Embed(ctx context.Context, texts []string) (*Embeddings, error) {
	e, err := EmbedderOf(f.all[0].Client, f.all[0].Name)
	if err != nil {
		return nil, err
	}
	return e.Embed(ctx, texts)
}

// FallsBack reports whether another Model may succeed after a failure: when the Model cannot be reached, is overloaded,
// breaks off, refuses access, is unknown at the endpoint or has too small a window. A wrong request would be wrong
// elsewhere too, and what a provider's content filter stopped is not sent to another provider.
func FallsBack(e *Error) bool {
	switch e.Code {
	case CodeFiltered:
		return false
	case CodeContextLength:
		return true
	}
	switch e.Kind {
	case KindConfig, KindFiltered:
		return false
	case KindStatus:
		switch e.Status {
		case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
			return true
		}
		return e.Passing
	}
	return true
}
