package thread

import (
	"errors"
	"fmt"
)

// InvalidError says which parameter of a call is invalid and how to correct it (THR-18).
type InvalidError struct {
	Field   string
	Message string
	cause   error
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// Unwrap returns the error of the store behind it, if there is one.
func (e *InvalidError) Unwrap() error { return e.cause }

// IsInvalid reports whether an error is the caller's mistake.
func IsInvalid(err error) bool {
	var e *InvalidError
	return errors.As(err, &e)
}

func invalid(field, format string, args ...any) *InvalidError {
	return &InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}
