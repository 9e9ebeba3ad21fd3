package apiserver

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// lookup finds threads by name or by id.
type lookup struct {
	threads *thread.Service
	reader  client.Reader // cached
	live    client.Reader // may be nil; asked when the cache does not know a name
	// setupWait bounds how long a request waits for a Thread object's conversation to be set up. It takes
	// milliseconds, so that a create followed at once by a message just works.
	setupWait time.Duration
}

// open gives the thread that name means within the namespace. The name of an object comes before an id: whoever
// was authorized for an object of that name must get no other one.
func (l *lookup) open(ctx context.Context, namespace, name string) (*thread.State, *store.Thread, error) {
	obj, err := l.object(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if obj == nil {
		return l.byID(ctx, namespace, name)
	}
	row, err := l.awaitStored(ctx, obj)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, notStored(name, notReadyBecause(obj))
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := l.threads.Open(ctx, row.ID)
	return st, row, err
}

// object gives the Thread object of that name, nil when there is none.
func (l *lookup) object(ctx context.Context, namespace, name string) (*skeinv1.Thread, error) {
	for _, r := range []client.Reader{l.reader, l.live} {
		if r == nil {
			continue
		}
		var obj skeinv1.Thread
		err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &obj)
		if err == nil {
			return &obj, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		if _, isID := parseThreadID(name); isID {
			return nil, nil // an id that some object bears as its name is rare enough to wait for the cache
		}
	}
	return nil, nil
}

func (l *lookup) byID(ctx context.Context, namespace, name string) (*thread.State, *store.Thread, error) {
	rows, err := l.stored(ctx, store.FindQuery{Namespace: namespace}, name)
	switch {
	case err != nil:
		return nil, nil, err
	case len(rows) == 0:
		return nil, nil, store.ErrNotFound
	case len(rows) > 1:
		return nil, nil, ambiguous(name, "")
	}
	st, err := l.threads.Open(ctx, rows[0].ID)
	return st, &rows[0], err
}

// stored gives the threads that a spelling of an id means within the query's namespace: at most one but
// where it is a short id.
func (l *lookup) stored(ctx context.Context, q store.FindQuery, name string) ([]store.Thread, error) {
	if id, ok := parseThreadID(name); ok {
		row, err := l.threads.Store().Thread(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if q.Namespace != "" && row.Namespace != q.Namespace {
			return nil, nil // the caller was authorized for this namespace only
		}
		return []store.Thread{*row}, nil
	}
	short, ok := parseShortID(name)
	if !ok {
		return nil, nil
	}
	q.ShortID = short
	return l.threads.Store().FindThreads(ctx, q)
}

// awaitStored gives the stored thread of an object, waiting a moment for one that is being set up. One that
// belongs to another object, as spec.threadID may name any, is not given: whoever was authorized for an object
// of that name must get no other thread.
func (l *lookup) awaitStored(ctx context.Context, obj *skeinv1.Thread) (*store.Thread, error) {
	id := obj.ThreadID()
	read := func() (*store.Thread, error) {
		row, err := l.threads.Store().Thread(ctx, id)
		if err == nil && !row.HeldBy(string(obj.UID)) {
			return nil, store.ErrNotFound
		}
		return row, err
	}
	row, err := read()
	if !errors.Is(err, store.ErrNotFound) {
		return row, err
	}
	changed := make(chan struct{}, 1)
	stop := l.threads.Store().Subscribe(func(h store.Hint) {
		if h.About(id) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	timer := time.NewTimer(l.setupWait)
	defer timer.Stop()
	for {
		row, err := read()
		if !errors.Is(err, store.ErrNotFound) {
			return row, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return read() // a hint may have been lost
		case <-ctx.Done():
			return nil, err
		}
	}
}

// notReadyBecause gives the message of the object's Ready condition when it says why it is not.
func notReadyBecause(obj *skeinv1.Thread) string {
	if c := meta.FindStatusCondition(obj.Status.Conditions, skeinv1.ConditionReady); c != nil && c.Status != "True" {
		return c.Reason + ": " + c.Message
	}
	return ""
}
