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

// noSandbox returns an error that says why a thread gets no sandbox. Its text is for the caller: it names pods and
// repeats what Kubernetes says about them.
func noSandbox(format string, args ...any) *engine.NoSandboxError {
	err := fmt.Errorf(format, args...)
	return &engine.NoSandboxError{Message: err.Error(), Err: errors.Unwrap(err)}
}

// missing returns an error for a reference to an object that does not exist. field is the field that holds the
// reference.
func missing(kind, namespace, name, field string) *definition.NotReadyError {
	return notReady(skeinv1.ReasonReferenceNotFound,
		"%s %q does not exist in namespace %q: create it, or correct %s", kind, name, namespace, field)
}

// within prefixes an error with the object that it is about. A *definition.NotReadyError keeps its type and its reason.
func within(kind, name string, err error) error {
	var nr *definition.NotReadyError
	if errors.As(err, &nr) {
		return notReady(nr.Reason, "%s %q: %s", kind, name, nr.Message)
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}
