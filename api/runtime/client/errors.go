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

// Kinds of errors, for errors.Is. An error from the server is also an *Error, with the Status that has the details.
var (
	// ErrNotFound means that the thread does not exist, or that it lacks something of this name that is required
	// (THR-18).
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the thread has changed since it was read, or that another writer holds it (THR-11,
	// THR-12).
	ErrConflict = errors.New("conflict")
	// ErrTerminated means that the thread is terminated. It can still be read (THR-05).
	ErrTerminated = errors.New("the thread is terminated")
	// ErrQueueFull means that the maximum number of user messages waits already. Nothing was stored (MSG-07).
	ErrQueueFull = errors.New("the queue is full")
	// ErrInvalid means that a parameter or the body is wrong. The message says which, and how to correct it.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge means that the body is larger than the server accepts.
	ErrTooLarge = errors.New("too large")
	// ErrQuota means that the thread would exceed its quota of files, or the namespace one of its quotas. Nothing was stored (FIL-08, K8S-11).
	ErrQuota = errors.New("the quota is used up")
	// ErrForbidden means that RBAC does not allow the request, or that the credentials are unknown.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable means that the server, the store or a definition is unavailable at present. Try again later.
	ErrUnavailable = errors.New("unavailable")
)

// Error is an unsuccessful answer of the server. It is an apierrors.APIStatus, so that apierrors.IsNotFound and
// similar functions work. For errors.Is it is one of the kinds above.
type Error struct{ *apierrors.StatusError }

// invalidError is an ErrInvalid whose text is its message alone.
type invalidError string

// Error implements error.
func (e invalidError) Error() string { return string(e) }

// Is reports whether the target is ErrInvalid.
func (e invalidError) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the error of the Kubernetes API machinery.
func (e *Error) Unwrap() error { return e.StatusError }

// Is reports whether the error is of this kind.
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

// unreachable is an error of the connection to the server.
type unreachable struct{ error }

func (e *unreachable) Unwrap() error        { return e.error }
func (e *unreachable) Is(target error) bool { return target == ErrUnavailable }

// explain wraps an error in one that has a kind.
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

// open sends a request whose answer is a stream. The caller must close it.
func open(ctx context.Context, r *rest.Request) (io.ReadCloser, error) {
	body, err := r.Stream(ctx)
	return body, explain(err)
}
