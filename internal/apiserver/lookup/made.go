package lookup

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

const (
	// createTime bounds the creation of a Thread object.
	createTime = 30 * time.Second
	// removeTime bounds what is done about a Thread object whose thread is not stored.
	removeTime = 5 * time.Second
	// removals is how often the removal of an object that changes meanwhile is tried.
	removals = 3
)

// ErrDeleted reports that a Thread object was deleted before its thread was stored.
var ErrDeleted = errors.New("the Thread was deleted before it was stored")

// RefusedError reports that the thread of an object is not stored, for a reason that the request does not wait for.
type RefusedError struct {
	// Reason and Message are those of the object's Ready condition.
	Reason, Message string
	// Left reports that the object could not be deleted. Otherwise it has been deleted.
	Left  bool
	cause error
}

// Error implements error.
func (e *RefusedError) Error() string { return e.cause.Error() }

// Unwrap returns the error for a thread that is not set up yet.
func (e *RefusedError) Unwrap() error { return e.cause }

// DetachedContext returns a context in which a Thread object can be made and waited for. It does not end with ctx. Otherwise an object
// whose caller disconnects would stay, without a check whether there is room for its thread.
func (l *Finder) DetachedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), createTime+l.SetupWait)
}

// OpenMade returns the thread of an object that was made for a request. It waits a moment until the thread is stored. If the
// object's Ready condition then has one of the given reasons, OpenMade calls remove and returns a *RefusedError. Without that the thread
// could still be created after the caller was refused. remove must fail for an object that has changed since it was read. The error is
// ErrDeleted when the object is gone, and that of Open for a thread that may still be stored.
func (l *Finder) OpenMade(
	ctx context.Context, made *skeinv1.Thread, remove func(context.Context, *skeinv1.Thread) error, reasons ...string,
) (*thread.State, *store.Thread, error) {
	row, err := l.awaitStored(ctx, made)
	if err == nil {
		return l.Threads.StateOf(row), row, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	last := made // as it was read last
	if now, err := l.Object(ctx, made.Namespace, made.Name); err == nil && now != nil && now.UID == made.UID {
		last = now
	}
	for range removals {
		now, err := l.readCurrent(ctx, made)
		if err != nil {
			break
		}
		if now == nil {
			return nil, nil, ErrDeleted
		}
		last = now
		// Room may have appeared since. Then the controller has stored the thread, and the object says so a little later.
		row, err := l.rowOf(ctx, now)
		if err == nil {
			return l.Threads.StateOf(row), row, nil
		}
		refusal := refusalOf(now, reasons)
		if refusal == nil || !errors.Is(err, store.ErrNotFound) {
			break
		}
		refused, err := l.Threads.Store().Refuse(ctx, now.ThreadID())
		if err != nil {
			break
		}
		if !refused {
			continue // it was stored meanwhile
		}
		removeErr := remove(ctx, now)
		if removeErr == nil {
			return nil, nil, refusal
		}
		if err := l.Threads.Store().Readmit(ctx, now.ThreadID()); err != nil || !apierrors.IsConflict(removeErr) {
			break
		}
	}
	if refusal := refusalOf(last, reasons); refusal != nil {
		refusal.Left = true
		return nil, nil, refusal
	}
	return nil, nil, status.NotStored(last.Name, notReadyBecause(last))
}

// refusalOf returns the error for an object whose Ready condition has one of the given reasons. It returns nil for others.
func refusalOf(obj *skeinv1.Thread, reasons []string) *RefusedError {
	ready := meta.FindStatusCondition(obj.Status.Conditions, skeinv1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || !slices.Contains(reasons, ready.Reason) {
		return nil
	}
	return &RefusedError{Reason: ready.Reason, Message: ready.Message, cause: status.NotStored(obj.Name, notReadyBecause(obj))}
}

// readCurrent returns an object as the API server has it. It returns nil when the object is gone or about to go. The cache would not do: it
// may not have a new object yet.
func (l *Finder) readCurrent(ctx context.Context, made *skeinv1.Thread) (*skeinv1.Thread, error) {
	r := l.Reader
	if l.Live != nil {
		r = l.Live
	}
	var now skeinv1.Thread
	if err := r.Get(ctx, client.ObjectKeyFromObject(made), &now); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if now.UID != made.UID || !now.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return &now, nil
}
