package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Kinds of errors, for errors.Is. An answer of the server is an *Error as well, with the Status that says the rest.
var (
	// ErrNotFound: no such thread, or nothing of that name in it where one is needed (THR-18).
	ErrNotFound = errors.New("not found")
	// ErrConflict: the thread has changed since it was read, or somebody else holds it (THR-11, THR-12).
	ErrConflict = errors.New("conflict")
	// ErrTerminated: the thread is terminated; it can still be read (THR-05).
	ErrTerminated = errors.New("the thread is terminated")
	// ErrQueueFull: as many user messages wait as are allowed; nothing was stored (MSG-07).
	ErrQueueFull = errors.New("the queue is full")
	// ErrInvalid: a parameter or the body is wrong; the message says which and what to do.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: the body is larger than what is taken.
	ErrTooLarge = errors.New("too large")
	// ErrQuota: the thread would have more in files than it may; nothing was stored (FIL-08).
	ErrQuota = errors.New("the quota of files is used up")
	// ErrForbidden: RBAC does not allow it, or the credentials are not known.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable: the server, the store or a definition is not there at present. Try again later.
	ErrUnavailable = errors.New("unavailable")
)

// Error is an answer that says no. It is an apierrors.APIStatus, so that apierrors.IsNotFound and the like work,
// and it is one of the kinds above for errors.Is.
type Error struct{ *apierrors.StatusError }

// Unwrap gives the plain error of the Kubernetes machinery.
func (e *Error) Unwrap() error { return e.StatusError }

// Is tells of which kind the error is.
func (e *Error) Is(target error) bool { return target == e.kind() }

func (e *Error) kind() error {
	switch e.ErrStatus.Code {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict:
		return ErrConflict
	case http.StatusGone:
		if e.has(runtimev1.CauseTerminated) {
			return ErrTerminated
		}
	case http.StatusTooManyRequests:
		if e.has(runtimev1.CauseQueueFull) {
			return ErrQueueFull
		}
		return ErrUnavailable
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType, http.StatusMethodNotAllowed:
		return ErrInvalid
	case http.StatusRequestEntityTooLarge:
		return ErrTooLarge
	case http.StatusForbidden, http.StatusUnauthorized:
		if e.has(runtimev1.CauseQuotaExceeded) {
			return ErrQuota
		}
		return ErrForbidden
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusBadGateway:
		return ErrUnavailable
	}
	return nil
}

func (e *Error) has(cause metav1.CauseType) bool {
	d := e.ErrStatus.Details
	return d != nil && slices.ContainsFunc(d.Causes, func(c metav1.StatusCause) bool { return c.Type == cause })
}

// unreachable is an error of the way to the server.
type unreachable struct{ error }

func (e *unreachable) Unwrap() error        { return e.error }
func (e *unreachable) Is(target error) bool { return target == ErrUnavailable }

// explain gives an error its kind.
func explain(err error) error {
	var known *Error
	var status *apierrors.StatusError
	var way *url.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.As(err, &status):
		return &Error{status}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &way):
		return &unreachable{err}
	}
	return err
}

// open makes a request whose answer is a stream. Close it.
func open(ctx context.Context, r *rest.Request) (io.ReadCloser, error) {
	body, err := r.Stream(ctx)
	return body, explain(err)
}
