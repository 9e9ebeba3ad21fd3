package thread

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// takeName retains the threads that had the name of an object before it and were not ended, because their finalizer was
// removed by hand. They do no more work, and a lookup of the name does not find them: the name belongs to another thread now.
func (r *Reconciler) takeName(ctx context.Context, o *skeinv1.Thread) error {
	rows, err := r.Threads.Store().FindThreads(ctx, store.FindQuery{Namespace: o.Namespace, Name: o.Name, Present: true})
	if err != nil {
		return fmt.Errorf("look for threads that had the name before: %w", err)
	}
	seen := false
	for i := range rows {
		row := &rows[i]
		if row.BelongsTo(string(o.UID)) {
			continue
		}
		if !seen { // this copy of the object may be the older one
			var now skeinv1.Thread
			err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), &now)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read Thread %q: %w", o.Name, err)
			}
			if err != nil || now.UID != o.UID {
				return fmt.Errorf("store the thread of an old copy of the object: %w", store.ErrObjectDeleted)
			}
			seen = true
		}
		within, err := r.namespaces.UID(ctx, o.Namespace)
		if err != nil {
			return fmt.Errorf("read namespace %s: %w", o.Namespace, err)
		}
		if err := r.reportLost(ctx, row); err != nil {
			return err
		}
		err = r.Threads.Store().Apply(ctx, row.ID, nil, &store.Retain{NamespaceUID: cmp.Or(row.NamespaceUID, within), Of: row.OwnerUID()})
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNotRetained) {
			continue // it has ended, or another object has it
		}
		if err != nil {
			return fmt.Errorf("retain thread %s, which had the name before: %w", row.ID, err)
		}
		r.Engine.Abort(ctx, row.ID, "another Thread has its name, because the finalizer of its own object was removed")
		ctrl.LoggerFrom(ctx).Info("Retained a thread whose object was removed without its finalizer, because a new Thread has its name", "threadId", row.ID)
	}
	return nil
}
