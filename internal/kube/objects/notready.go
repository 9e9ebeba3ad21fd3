package objects

import (
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
)

// NotReady returns an error with a reason for the Ready condition, and a message that says what to do.
func NotReady(reason, format string, args ...any) *definition.NotReadyError {
	return &definition.NotReadyError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Missing returns an error for a reference to an object that does not exist. field is the field that holds the
// reference.
func Missing(kind, namespace, name, field string) *definition.NotReadyError {
	return NotReady(skeinv1.ReasonReferenceNotFound,
		"%s %q does not exist in namespace %q: create it, or correct %s", kind, name, namespace, field)
}

// Within prefixes an error with the object that it is about. A *definition.NotReadyError keeps its type and its reason.
func Within(kind, name string, err error) error {
	var nr *definition.NotReadyError
	if errors.As(err, &nr) {
		return NotReady(nr.Reason, "%s %q: %s", kind, name, nr.Message)
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}
