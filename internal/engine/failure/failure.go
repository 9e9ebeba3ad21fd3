// Package failure has the error that ends a run with one of the reasons of api/v1alpha1.
package failure

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// Error is why a run fails. It is recorded and ends the run. Any other error interrupts the run, which is continued
// later.
type Error struct {
	Reason   string
	Message  string
	Metadata map[string]any // of the message that records the failure
}

// Error implements error.
func (f *Error) Error() string { return f.Reason + ": " + f.Message }

// New returns a failure with a reason and a formatted message for people.
func New(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// OfModel returns the *Error of a run whose model call failed. It returns the cause of a cancelled context, and
// errors of the store, as they are.
func OfModel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnavailable) || membudget.Refused(err) {
		return err
	}
	var m *model.Error
	if !errors.As(err, &m) {
		return New(skeinv1.ReasonModelFailed, "the model call failed%s%v", model.Said, err)
	}
	f := &Error{Message: m.Message, Metadata: m.Metadata}
	switch {
	case m.Code == model.CodeContextLength:
		f.Reason = skeinv1.ReasonContextTooLarge
	case m.Kind == model.KindUnreachable, m.Kind == model.KindStatus && m.Passing:
		f.Reason = skeinv1.ReasonModelUnavailable
	case m.Kind == model.KindTimeout:
		f.Reason = skeinv1.ReasonModelTimeout
	case m.Kind == model.KindBadAnswer:
		f.Reason = skeinv1.ReasonModelBadAnswer
	case m.Kind == model.KindStatus, m.Kind == model.KindFiltered:
		f.Reason = skeinv1.ReasonModelRefused
	case m.Kind == model.KindConfig:
		f.Reason = skeinv1.ReasonModelInvalid
	default:
		f.Reason = skeinv1.ReasonModelFailed
	}
	return f
}
