package scheduledeffect

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skein-dev/skein/internal/store"
)

// maxThreadErrors bounds how many errors with Threads of one ScheduledEffect are reported. As many firings may be under way as maxActive
// says.
const maxThreadErrors = 5

// threadErrors gathers errors with the Threads of one ScheduledEffect.
type threadErrors struct {
	kept     []error
	more     int
	conflict error // the first one
	away     bool  // the store was
}

// add adds an error, which may be nil.
func (e *threadErrors) add(err error) {
	switch {
	case err == nil:
	case isConflict(err):
		if e.conflict == nil {
			e.conflict = err
		}
	case len(e.kept) == maxThreadErrors:
		e.more++
	default:
		e.kept = append(e.kept, err)
	}
	e.away = e.away || errors.Is(err, store.ErrUnavailable)
}

// isHopeless reports whether work on further Threads would fail, too.
func (e *threadErrors) isHopeless(ctx context.Context) bool { return e.away || ctx.Err() != nil }

// join returns the errors as one, or nil. It returns a conflict, after which everything is read again at once, when there was nothing else.
func (e *threadErrors) join() error {
	switch {
	case len(e.kept) == 0:
		return e.conflict
	case e.more > 0:
		return fmt.Errorf("%w\nand %d more errors with Threads of this ScheduledEffect", errors.Join(e.kept...), e.more)
	}
	return errors.Join(e.kept...)
}

// isConflict reports whether another writer has changed what was read: another leader, a removal, or a request by hand.
func isConflict(err error) bool {
	return errors.Is(err, store.ErrConflict) || apierrors.IsConflict(err)
}
