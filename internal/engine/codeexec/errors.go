package codeexec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/tool/code"
)

// ErrNoSandbox reports that there was no sandbox, so none of the code has run.
var ErrNoSandbox = errors.New("no sandbox is available")

// NoSandbox returns an ErrNoSandbox that says why there is none.
func NoSandbox(why error) error { return fmt.Errorf("%w: %w", ErrNoSandbox, why) }

// ErrTimeout reports that code did not end within its time limit.
var ErrTimeout = errors.New("the code did not finish")

// PastWallTime reports whether an isolate was ended because of its time limit, and not lost or never started.
func PastWallTime(gone *sandbox.IsolateGoneError) bool {
	return gone.Started && strings.Contains(gone.Reason, "ran for longer than")
}

// NothingRan reports whether a call of code failed before any of the code had run.
func NothingRan(err error) bool {
	if gone := (*sandbox.IsolateGoneError)(nil); errors.As(err, &gone) {
		return !gone.Started && gone.Status == sandbox.StatusTerminated
	}
	// A busy sandbox refused the isolate. When a sandbox refuses something to code that already runs, the code gets
	// that error.
	return errors.Is(err, ErrNoSandbox) || errors.Is(err, sandbox.ErrBusy)
}

// Explain returns what is wrong, for people, when a call of code has failed.
func Explain(err error) string {
	if errors.Is(err, ErrTimeout) {
		return err.Error()
	}
	return code.Explain(err)
}
