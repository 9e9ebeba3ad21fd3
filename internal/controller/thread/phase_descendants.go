package thread

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// deleters bounds how many children of one thread are deleted at the same time.
	deleters = 16
	// childrenAtOnce bounds how many children one reconcile deletes. The others follow in later ones, so that a thread with thousands of
	// children does not hold a worker that other threads wait for.
	childrenAtOnce = 10 * deleters
	// nextChildren is when the next ones follow. Requests that wait in the queue already go first.
	nextChildren = time.Millisecond
	// lostNotification is when a thread checks its children again in case a notification was lost.
	lostNotification = 10 * time.Second
)

// descendants deletes the children of a thread that is being deleted, and reports whether the thread must wait until
// their data is purged. Each child does the same, so that the innermost data is purged first. The garbage collector
// alone would delete children only after their parent is gone.
//
// A thread that waits is only marked as deleted, which keeps every replica from working on it. Its conversation and what is queued stay
// whole, because its data may still be saved: by spec.deletionPolicy or the annotation skein.dev/retain, or by an adoption once a person
// has removed the finalizer.
//
// A child belongs to the thread while its Subagent has the thread as an owner. With --cascade=orphan the garbage
// collector removes that owner reference; until then its finalizer shows the intent.
func (r *Reconciler) descendants(ctx context.Context, s *scope, row *store.Thread) (wait bool, err error) {
	if controllerutil.ContainsFinalizer(s.object, metav1.FinalizerOrphanDependents) {
		return false, nil
	}
	if wait, err := r.waitsStill(ctx, s); wait || err != nil {
		return wait, err
	}
	names, err := r.ownedSubagents(ctx, s.object)
	if err != nil {
		return false, err
	}
	if len(names) > childrenAtOnce {
		return true, r.deleteSome(ctx, s, names)
	}
	rows, err := r.Threads.Store().Children(ctx, row.ID)
	if err != nil {
		return false, fmt.Errorf("list the children of the thread: %w", err)
	}
	if len(names) == 0 && len(rows) == 0 {
		return false, nil
	}
	if err := r.deleteChildren(ctx, s.object, names); err != nil {
		return false, err
	}
	// Whichever goes last, few of those that it waits for one after the other go before most of the others.
	first := rand.IntN(max(len(rows), 1))
	for i := range rows {
		child := &rows[(first+i)%len(rows)]
		goes, err := r.ensureChildDeleted(ctx, s.object, child)
		if err != nil {
			return false, err
		}
		if !goes {
			continue
		}
		r.notifications.Track(child.ID, s.req)
		if _, err := r.Threads.Store().Thread(ctx, child.ID); errors.Is(err, store.ErrNotFound) {
			continue // it was purged before its notifications were tracked
		}
		s.again = lostNotification
		if len(rows) > fewChildren {
			r.childWaits.wait(s.req, child.ID, r.Clock.Now())
		}
		return true, nil
	}
	return false, nil
}

// deleteSome deletes some of many children, and lets the thread be reconciled again for the others. They are chosen at random, so that
// some that cannot be deleted do not keep the others waiting.
func (r *Reconciler) deleteSome(ctx context.Context, s *scope, names []string) error {
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	s.again = nextChildren
	return r.deleteChildren(ctx, s.object, names[:childrenAtOnce])
}

// waitsStill reports whether a thread with many children that was found to wait for one of them a moment ago waits for it still.
// Then the others are not looked at: each of them tells the thread of its end, and the work for one would grow with their number.
func (r *Reconciler) waitsStill(ctx context.Context, s *scope) (bool, error) {
	child, left := r.childWaits.waitingChild(s.req, r.Clock.Now())
	if child == "" {
		return false, nil
	}
	row, err := r.Threads.Store().Thread(ctx, child)
	if err != nil || row.RetainedAt != 0 {
		return false, store.IgnoreNotFound(err)
	}
	s.again = left
	return true, nil
}

// childWaits remembers for which child a thread that is being deleted waits. It is safe for concurrent use.
type childWaits struct {
	mu sync.Mutex
	of map[ctrl.Request]awaited
}

type awaited struct {
	child string
	until time.Time
}

func (p *childWaits) wait(parent ctrl.Request, child string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[ctrl.Request]awaited{}
	}
	p.of[parent] = awaited{child, at.Add(listAfter)}
}

// waitingChild returns the child, and when all are to be looked at again. It returns "" when that is now.
func (p *childWaits) waitingChild(parent ctrl.Request, at time.Time) (child string, left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.of[parent]
	if left = w.until.Sub(at); !ok || left <= 0 {
		delete(p.of, parent)
		return "", 0
	}
	return w.child, left
}

func (p *childWaits) forget(parent ctrl.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, parent)
}

// ownedSubagents returns the names of a thread's Subagents in the cache that are not being deleted.
func (r *Reconciler) ownedSubagents(ctx context.Context, t *skeinv1.Thread) (names []string, err error) {
	var list skeinv1.SubagentList
	if err := r.Client.List(ctx, &list, client.InNamespace(t.Namespace), client.MatchingFields{objects.IndexThread: t.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Subagents of the thread: %w", err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp.IsZero() && ownedBy(o, t.UID) {
			names = append(names, o.Name)
		}
	}
	return names, nil
}

func ownedBy(o client.Object, uid types.UID) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == uid {
			return true
		}
	}
	return false
}

// deleteChildren deletes Subagents with their Threads. A failure does not stop the others.
func (r *Reconciler) deleteChildren(ctx context.Context, t *skeinv1.Thread, names []string) error {
	var group errgroup.Group
	group.SetLimit(deleters)
	failed := make([]error, len(names))
	for i, name := range names {
		group.Go(func() error {
			failed[i] = r.deleteChild(ctx, t, name)
			return nil
		})
	}
	_ = group.Wait() // each goroutine stores its own error
	return errors.Join(failed...)
}

// deleteChild deletes a Subagent and its Thread in the state that the API server has, because the cache may not know
// yet that they were orphaned. A change in between is a conflict, after which they are checked again.
func (r *Reconciler) deleteChild(ctx context.Context, parent *skeinv1.Thread, name string) error {
	var s skeinv1.Subagent
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: parent.Namespace, Name: name}, &s); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !ownedBy(&s, parent.UID) {
		return nil
	}
	var t skeinv1.Thread
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: parent.Namespace, Name: kube.ChildThreadName(&s)}, &t)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && metav1.IsControlledBy(&t, &s) && t.DeletionTimestamp.IsZero() {
		if err := r.deleteThread(ctx, parent, &t); err != nil {
			return err
		}
	}
	if !s.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.deleteAsRead(ctx, parent, "Subagent", &s)
}

// deleteThread deletes the Thread of a child, and ends the child's work at once, in all replicas.
func (r *Reconciler) deleteThread(ctx context.Context, parent, t *skeinv1.Thread) error {
	if err := r.deleteAsRead(ctx, parent, "Thread", t); err != nil {
		return err
	}
	id := idOfDeleted(t)
	if err := r.Threads.Store().MarkDeleted(ctx, string(t.UID), id); err != nil {
		return err
	}
	r.Engine.Abort(ctx, id, "the Thread object was deleted with its parent")
	return nil
}

// deleteAsRead deletes an object, in the way of its parent, unless it has changed since it was read. A refused deletion keeps the parent
// waiting, so an Event of the parent says why.
func (r *Reconciler) deleteAsRead(ctx context.Context, parent *skeinv1.Thread, kind string, o client.Object) error {
	policy := metav1.DeletePropagationBackground
	if r.foreground.add(parent.UID, kind, o) {
		policy = metav1.DeletePropagationForeground
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := r.Client.Delete(ctx, o, client.PropagationPolicy(policy), client.Preconditions{UID: &uid, ResourceVersion: &version})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return err
	}
	r.Recorder.Eventf(parent, nil, corev1.EventTypeWarning, skeinv1.ReasonChildNotDeleted, "Delete",
		"waits for %s %q, which cannot be deleted: %v; delete it, or remove the owner reference from its Subagent to keep it", kind, o.GetName(), err)
	return fmt.Errorf("delete %s %q of a subagent: %w", kind, o.GetName(), err)
}

// ensureChildDeleted starts the deletion of a child if necessary. It reports whether the child's data is about to be purged.
func (r *Reconciler) ensureChildDeleted(ctx context.Context, parent *skeinv1.Thread, row *store.Thread) (bool, error) {
	if row.RetainedAt != 0 {
		return false, nil
	}
	var t skeinv1.Thread
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: row.Name}, &t)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Thread %q: %w", row.Name, err)
	}
	switch {
	case err != nil, string(t.UID) != row.OwnerUID():
		return false, nil // a person removed the finalizer of its object
	case !t.DeletionTimestamp.IsZero():
		r.foreground.add(parent.UID, "Thread", &t)
		return controllerutil.ContainsFinalizer(&t, skeinv1.Finalizer), nil
	}
	owner := metav1.GetControllerOf(&t)
	if owner == nil {
		return false, nil // it was orphaned
	}
	var s skeinv1.Subagent
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: owner.Name}, &s)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Subagent %q: %w", owner.Name, err)
	}
	if err != nil || s.UID != owner.UID { // the garbage collector will delete it
		return true, r.deleteThread(ctx, parent, &t)
	}
	if !ownedBy(&s, parent.UID) {
		return false, nil
	}
	return true, r.deleteChild(ctx, parent, s.Name)
}
