package scheduledeffect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// endedAtOnce bounds how many Threads one reconcile deletes. The due times of the schedule do not wait for more.
	endedAtOnce = 100
	// historyPage is how many firings are read at a time.
	historyPage = 1000
)

// prune keeps the history of firings within its limits. It does so when something new was recorded, and at the ends of firings unless a
// due time follows soon. How an effect of one time ended stays in the store, whatever the limits are: the status may not say it yet, and is
// computed again after a run by hand.
func (r *Reconciler) prune(ctx context.Context, d *schedule) (bool, error) {
	idle := d.nextAt.IsZero() || d.nextAt.Sub(d.at) > soon
	if !d.recorded && (!d.sawEnds() || !idle) {
		return false, nil
	}
	keep := d.historyLimits()
	if d.sawEnds() { // the status that shows the newest of them is written later
		keep.Succeeded, keep.Failed = max(keep.Succeeded, 1), max(keep.Failed, 1)
	}
	if err := r.Store.PruneFirings(ctx, string(d.object.UID), keep); err != nil {
		return true, fmt.Errorf("prune the history: %w", err)
	}
	return false, nil
}

// sawEnds reports whether firings have ended since the status was written.
func (d *schedule) sawEnds() bool {
	status := &d.object.Status
	return len(d.active) < int(status.Active) || slices.ContainsFunc(d.recent, func(f store.Firing) bool {
		return f.Status.Ended() && f.FiredAt > status.FiredAt
	})
}

// historyLimits returns how many ended firings are kept.
func (d *schedule) historyLimits() store.HistoryLimits {
	spec := &d.object.Spec
	keep := store.HistoryLimits{Succeeded: limitOf(spec.SuccessfulHistoryLimit), Failed: limitOf(spec.FailedHistoryLimit), Outcome: len(spec.Schedules) == 0}
	if l := spec.DailyLimit; l != nil && l.Cost != nil { // the cost of the day is the sum of its firings
		keep.Since = d.costsSince().UnixMicro()
	}
	return keep
}

func limitOf(n *int32) int {
	if n == nil {
		return 10
	}
	return int(*n)
}

// endThreads deletes the Threads of firings that a later one replaced, and of those that the history does not keep. It looks at the Threads
// that there are, not at firings: those may be gone from the store, and an edit may have taken the template away. What is left after
// endedAtOnce of them is deleted by the next reconcile.
func (r *Reconciler) endThreads(ctx context.Context, d *schedule) error {
	ended, err := r.endedThreads(ctx, d)
	if err != nil || (len(ended) == r.endedSeen.of(d.req) && !d.recorded) {
		return err
	}
	kept := map[string]bool{}
	if len(ended) > 0 {
		if kept, err = r.keptThreads(ctx, d, ended); err != nil {
			return err
		}
	}
	deleted := 0
	for _, t := range ended {
		if kept[t.Name] {
			continue
		}
		if deleted == endedAtOnce {
			d.again = true
			return nil
		}
		gone := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name}}
		if err := r.Client.Delete(ctx, gone, client.Preconditions{UID: &t.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Thread %q of an earlier firing: %w", t.Name, err)
		}
		deleted++
	}
	r.endedSeen.set(d.req, len(ended)-deleted)
	return nil
}

// endedThreads returns the Threads that firings made which are not under way any more.
func (r *Reconciler) endedThreads(ctx context.Context, d *schedule) (ended []*skeinv1.Thread, err error) {
	var list skeinv1.ThreadList
	opts := []client.ListOption{client.InNamespace(d.object.Namespace), client.MatchingFields{objects.IndexMaker: string(d.object.UID)}, client.UnsafeDisableDeepCopy}
	if d.object.Spec.ThreadTemplate == nil && !d.recorded {
		opts = append(opts, client.DisableReadYourWritesConsistency) // it has made none just now
	}
	if err := r.Client.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list the Threads of firings: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	active := make(map[string]bool, len(d.active))
	for i := range d.active {
		active[effectplan.ThreadName(d.active[i].Name, d.active[i].Due)] = true
	}
	for i := range list.Items {
		if t := &list.Items[i]; !active[t.Name] && t.DeletionTimestamp.IsZero() && effectplan.IsThreadName(d.object.Name, t.Name) {
			ended = append(ended, t)
		}
	}
	return ended, nil
}

// keptThreads returns the names of the Threads of firings that are under way, and of ended ones that the history keeps. Of canceled firings it
// keeps Threads that a person terminated instead of deleting them.
func (r *Reconciler) keptThreads(ctx context.Context, d *schedule, ended []*skeinv1.Thread) (map[string]bool, error) {
	kept, terminated := map[string]bool{}, map[string]bool{}
	for _, t := range ended {
		terminated[t.Name] = t.Status.TerminatedAt != 0
	}
	var over []store.Firing
	for q := (store.FiringQuery{EffectID: string(d.object.UID), Limit: historyPage, Brief: true}); ; {
		page, err := r.Store.Firings(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		for _, f := range page {
			if f.Status.Ended() {
				over = append(over, f)
				continue
			}
			kept[effectplan.ThreadName(f.Name, f.Due)] = true
		}
		if len(page) < q.Limit {
			break
		}
		q.Before, q.BeforeThread = page[len(page)-1].Due, &page[len(page)-1].ThreadID
	}
	slices.SortFunc(over, func(a, b store.Firing) int { // as the store keeps them
		return cmp.Or(cmp.Compare(b.EndedAt, a.EndedAt), cmp.Compare(b.Due, a.Due), cmp.Compare(a.ThreadID, b.ThreadID))
	})
	limits := d.historyLimits()
	for i := range over {
		f, rest := &over[i], &limits.Failed
		if f.Status == store.FiringSucceeded {
			rest = &limits.Succeeded
		}
		name := effectplan.ThreadName(f.Name, f.Due)
		if *rest--; *rest >= 0 && (f.Status != store.FiringCanceled || terminated[name]) {
			kept[name] = true
		}
	}
	return kept, nil
}

// endedSeen holds how many Threads of ended firings each object keeps, as far as this controller has looked. Another number than that says
// that there is something to delete, as there may be after a crash.
type endedSeen struct {
	mu  sync.Mutex
	all map[ctrl.Request]int
}

func (e *endedSeen) of(req ctrl.Request) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[req]
}

func (e *endedSeen) set(req ctrl.Request, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[ctrl.Request]int{}
	}
	if n == 0 {
		delete(e.all, req)
		return
	}
	e.all[req] = n
}
