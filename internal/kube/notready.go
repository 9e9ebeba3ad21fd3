package kube

import (
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
)

func notReady(reason, format string, args ...any) *definition.NotReadyError {
	return &definition.NotReadyError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// noSandbox says why a thread gets no sandbox. The text is for whoever called: it names pods and what Kubernetes says of them.
func noSandbox(format string, args ...any) *engine.NoSandboxError {
	err := fmt.Errorf(format, args...)
	return &engine.NoSandboxError{Message: err.Error(), Err: errors.Unwrap(err)}
}

// missing says that an object which something names does not exist. field is where the name stands.
func missing(kind, namespace, name, field string) *definition.NotReadyError {
	return notReady(skeinv1.ReasonReferenceNotFound,
		"%s %q does not exist in namespace %q: create it, or correct %s", kind, name, namespace, field)
}

// within puts the object that an error is about in front of its text; a missing or unready reference of
// a reference stays what it is.
func within(kind, name string, err error) error {
	var nr *definition.NotReadyError
	if errors.As(err, &nr) {
		return notReady(nr.Reason, "%s %q: %s", kind, name, nr.Message)
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}
