// Package lookup finds threads by the name of an object or by an id.
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
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// MaxCandidates bounds how many threads of one name are examined.
const MaxCandidates = 1000

// Finder finds threads by name or by id.
type Finder struct {
	Threads *thread.Service
	Reader  client.Reader // cached
	Live    client.Reader // may be nil; read when the cache does not have a name
	// SetupWait bounds how long a request waits until a Thread object's conversation is set up. That takes
	// milliseconds, so a message sent directly after a create just works.
	SetupWait time.Duration
}

// Open returns the thread that name means within the namespace. The name of an object takes precedence over an id: a
// caller who was authorized for an object of that name must get no other thread. The error is a store.ErrObjectDeleted when the object is being
// deleted and its thread is not stored, and store.ErrNotFound when the object is gone.
func (l *Finder) Open(ctx context.Context, namespace, name string) (*thread.State, *store.Thread, error) {
	obj, err := l.Object(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if obj == nil {
		return l.byID(ctx, namespace, name)
	}
	return l.openObject(ctx, obj)
}

// openObject returns the thread of an object. It waits a moment for a thread that is being set up.
func (l *Finder) openObject(ctx context.Context, obj *skeinv1.Thread) (*thread.State, *store.Thread, error) {
	row, err := l.awaitStored(ctx, obj)
	if errors.Is(err, store.ErrNotFound) {
		now, readErr := l.Object(ctx, obj.Namespace, obj.Name) // its status may have been written meanwhile
		if readErr != nil {
			now = obj
		}
		return nil, nil, whyNotStored(now)
	}
	if err != nil {
		return nil, nil, err
	}
	return l.Threads.StateOf(row), row, nil
}

// whyNotStored returns the error for an object whose thread is not stored. nil is an object that is gone.
func whyNotStored(obj *skeinv1.Thread) error {
	switch {
	case obj == nil:
		return store.ErrNotFound
	case !obj.DeletionTimestamp.IsZero():
		return status.BeingDeleted(obj.Name)
	}
	return status.NotStored(obj.Name, notReadyBecause(obj))
}

// Object returns the Thread object of that name, or nil when there is none.
func (l *Finder) Object(ctx context.Context, namespace, name string) (*skeinv1.Thread, error) {
	for _, r := range []client.Reader{l.Reader, l.Live} {
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
		if _, isID := thread.ParseID(name); isID {
			return nil, nil // an object whose name looks like an id is rare, so it may wait for the cache
		}
	}
	return nil, nil
}

// byID returns the thread that a spelling of an id means in a namespace. It returns store.ErrNotFound also for a thread that was retained
// from an earlier namespace of the same name.
func (l *Finder) byID(ctx context.Context, namespace, name string) (*thread.State, *store.Thread, error) {
	rows, err := l.Stored(ctx, store.FindQuery{Namespace: namespace}, name)
	switch {
	case err != nil:
		return nil, nil, err
	case len(rows) == 0:
		return nil, nil, store.ErrNotFound
	case len(rows) > 1:
		return nil, nil, status.Ambiguous(name, "")
	}
	within, err := l.Owns(ctx, namespace, &rows[0])
	if err != nil {
		return nil, nil, err
	}
	if !within {
		return nil, nil, store.ErrNotFound
	}
	return l.Threads.StateOf(&rows[0]), &rows[0], nil
}

// Stored returns the threads that a spelling of an id means within the query's namespace. Only a short id can mean
// more than one.
func (l *Finder) Stored(ctx context.Context, q store.FindQuery, name string) ([]store.Thread, error) {
	if id, ok := thread.ParseID(name); ok {
		row, err := l.Threads.Store().Thread(ctx, id)
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
	short, ok := thread.ParseShortID(name)
	if !ok {
		return nil, nil
	}
	q.ShortID = short
	return l.Threads.Store().FindThreads(ctx, q)
}

// rowOf returns the stored thread of an object, or store.ErrNotFound. A thread that belongs to another object is not found.
func (l *Finder) rowOf(ctx context.Context, obj *skeinv1.Thread) (*store.Thread, error) {
	row, err := l.Threads.Store().Thread(ctx, obj.ThreadID())
	if err == nil && !row.BelongsTo(string(obj.UID)) {
		return nil, store.ErrNotFound
	}
	return row, err
}

// awaitStored returns the stored thread of an object. It waits a moment for a thread that is being set up. It never
// returns a thread that belongs to another object, although spec.threadID may name any: a caller who was authorized
// for an object of that name must get no other thread.
func (l *Finder) awaitStored(ctx context.Context, obj *skeinv1.Thread) (*store.Thread, error) {
	id := obj.ThreadID()
	read := func() (*store.Thread, error) { return l.rowOf(ctx, obj) }
	row, err := read()
	if !errors.Is(err, store.ErrNotFound) || !obj.DeletionTimestamp.IsZero() { // no thread is set up for an object that is being deleted
		return row, err
	}
	changed := make(chan struct{}, 1)
	stop := l.Threads.Store().SubscribeThread(id, func(store.Notification) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	timer := time.NewTimer(l.SetupWait)
	defer timer.Stop()
	for {
		row, err := read()
		if !errors.Is(err, store.ErrNotFound) {
			return row, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return read() // a notification may have been lost
		case <-ctx.Done():
			return nil, err
		}
	}
}

// notReadyBecause returns the reason and message of the object's Ready condition, or "" when the object is ready.
func notReadyBecause(obj *skeinv1.Thread) string {
	if c := meta.FindStatusCondition(obj.Status.Conditions, skeinv1.ConditionReady); c != nil && c.Status != "True" {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// Owns reports whether a thread belongs to the namespace that has this name now. Retained data does not pass to a new
// namespace with an old name (THR-09).
func (l *Finder) Owns(ctx context.Context, namespace string, t *store.Thread) (bool, error) {
	if t.RetainedAt == 0 || t.NamespaceUID == "" {
		return true, nil
	}
	uid, err := l.NamespaceUID(ctx, namespace)
	return t.Within(uid), err
}

// Shows reports whether an answer about a namespace may have a thread, as Owns does. An answer about all namespaces, for
// which namespace is "", may have no retained data of a namespace that no longer exists.
func (l *Finder) Shows(ctx context.Context, namespace string, t *store.Thread) (bool, error) {
	if namespace != "" {
		return l.Owns(ctx, namespace, t)
	}
	if t.RetainedAt == 0 || t.NamespaceUID == "" || l.Live == nil {
		return true, nil
	}
	uid, err := l.NamespaceUID(ctx, t.Namespace)
	return uid == t.NamespaceUID, err
}

// NamespaceUIDs returns the UID of a namespace, or with "" those of all namespaces with threads, as they are now. It
// returns nil when the namespace does not exist. Queries take the result for the namespaces whose retained data they find,
// so that they decide as Shows does.
func (l *Finder) NamespaceUIDs(ctx context.Context, namespace string) ([]string, error) {
	if l.Live == nil {
		return nil, nil
	}
	if namespace != "" {
		uid, err := l.NamespaceUID(ctx, namespace)
		if err != nil || uid == "" {
			return nil, err
		}
		return []string{uid}, nil
	}
	used, err := l.Threads.Store().Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	if err := l.Live.List(ctx, list); err != nil {
		return nil, err
	}
	uids := []string{}
	for i := range list.Items {
		if slices.Contains(used, list.Items[i].Name) {
			uids = append(uids, string(list.Items[i].UID))
		}
	}
	return uids, nil
}

// NamespaceUID returns the UID of a namespace, as it is now; "" when it does not exist.
func (l *Finder) NamespaceUID(ctx context.Context, name string) (string, error) {
	if l.Live == nil {
		return "", nil
	}
	return objects.NamespaceUID(ctx, l.Live, name)
}
