package effectcode

import (
	"errors"
	"fmt"
	"testing"

	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/store"
)

func TestFiringsWaitForRoomForTheirMessages(t *testing.T) {
	waits := map[error]bool{
		fmt.Errorf("thread t: %w", store.ErrQueueFull):                          true,
		&store.NamespaceQuotaError{Resource: store.QuotaMessageBytes}:           true,
		&store.NamespaceQuotaError{Resource: store.QuotaBytes}:                  false,
		fmt.Errorf("thread t: %w", store.ErrTerminated):                         false,
		errors.New("the database is away, and the firing counts as an attempt"): false,
	}
	for err, want := range waits {
		var wait *effects.WaitError
		if got := errors.As(queueError(err), &wait); got != want {
			t.Errorf("waits after %q: %v, want %v", err, got, want)
		}
	}
}
