package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Exit codes. docs/kubectl-skein.md lists them.
const (
	exitError       = 1   // any other error
	exitRefused     = 2   // the server refused the message
	exitFailed      = 3   // the run failed
	exitStopped     = 4   // the run was stopped or cancelled
	exitEnded       = 5   // the thread was terminated or deleted before it answered
	exitTimeout     = 6   // the timeout ended while the thread worked
	exitWaits       = 7   // the timeout ended while the thread waited for a person
	exitInterrupted = 130 // ended by a signal, as in shells
)

// codedError is an error with its own exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// ownInterruptsError is an error of a command that takes interrupts itself. That there was one does not mean that it ended the command.
type ownInterruptsError struct{ error }

// Unwrap returns the error.
func (e *ownInterruptsError) Unwrap() error { return e.error }

// ownInterrupts marks the error of such a command, unless a signal is all that it tells of.
func ownInterrupts(err error) error {
	if err == nil || errors.Is(err, errLeft) || errors.Is(err, errInterrupted) || errors.Is(err, errTerminated) || errors.Is(err, context.Canceled) {
		return err
	}
	return &ownInterruptsError{err}
}

// exitCode returns the exit code of the command for an error.
func exitCode(err error) int {
	var c *codedError
	if errors.As(err, &c) {
		return c.code
	}
	return exitError
}

// refused sets the exit code of an error with which the server refused the request.
func refused(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 {
		return coded(exitRefused, err)
	}
	return err
}

// failedRun returns the error for a run that did not succeed.
func failedRun(o runOutcome) error {
	err := errors.New(o.String())
	switch o.Status {
	case runtimev1.RunStopped:
		return coded(exitStopped, err)
	case runtimev1.RunTerminated:
		return coded(exitEnded, err)
	}
	return coded(exitFailed, err)
}

// endedStream sets the exit code of the error of a stream that ended with its thread.
func endedStream(err error) error {
	if errors.Is(err, runtimeclient.ErrThreadDeleted) {
		return coded(exitEnded, err)
	}
	return err
}

// errTimeout is the cause of a context that ended with its timeout.
var errTimeout = errors.New("timeout")

// bounded limits commands that follow something to --request-timeout, as `kubectl get --watch` does.
func (p *plugin) bounded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	d, err := p.requestTimeout()
	if err != nil || d <= 0 {
		return ctx, func() {}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d, coded(exitTimeout, fmt.Errorf("--request-timeout=%s is over", d)))
	return ctx, cancel, nil
}

// requestTimeout returns the value of --request-timeout. 0 means no limit.
func (p *plugin) requestTimeout() (time.Duration, error) {
	cfg, err := p.restConfig()
	if err != nil {
		return 0, err
	}
	return cfg.Timeout, nil
}
