package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// firstRuns holds the ids of the first runs of Threads of firings that are under way. The status of a Thread shows its newest run. So the store is
// asked once for each Thread, and again when the status shows another run.
type firstRuns struct {
	mu  sync.Mutex
	all map[ctrl.Request]map[store.FiringKey]string
}

func (f *firstRuns) of(req ctrl.Request) map[store.FiringKey]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[req]
}

// set replaces what is known of an object. No map that was set is changed.
func (f *firstRuns) set(req ctrl.Request, known map[store.FiringKey]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(known) == 0 {
		delete(f.all, req)
		return
	}
	if f.all == nil {
		f.all = map[ctrl.Request]map[store.FiringKey]string{}
	}
	f.all[req] = known
}

var runOutcomes = map[store.RunStatus]skeinv1.RunOutcome{
	store.RunSucceeded: skeinv1.RunSucceeded, store.RunFailed: skeinv1.RunFailed, store.RunStopped: skeinv1.RunStopped, store.RunTerminated: skeinv1.RunTerminated,
}

// firstRun returns the first run of the Thread of a firing, with which the firing ends; nil if none is known. Its status may show a later one, or
// may be behind: before a firing ends for its timeout, the store says whether the run has ended in time. Why a run was terminated is in the
// status alone.
func (r *Reconciler) firstRun(ctx context.Context, d *schedule, f *store.Firing, t *skeinv1.Thread) (*skeinv1.RunStatus, error) {
	shown := t.Status.LastRun
	left, limited := d.timeLeft(f)
	late := limited && left <= 0 && (shown == nil || shown.Outcome == "")
	if !late && (shown == nil || shown.ID == d.firstRuns[f.Key()]) {
		return shown, nil
	}
	first, err := r.Store.FirstRun(ctx, t.ThreadID())
	if errors.Is(err, store.ErrNotFound) { // it was purged, or has not begun
		return shown, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the first run of Thread %q: %w", t.Name, err)
	}
	d.firstRuns[f.Key()] = first.ID
	outcome := runOutcomes[first.Status]
	if outcome == skeinv1.RunTerminated || !late && shown.ID == first.ID {
		return shown, nil
	}
	return &skeinv1.RunStatus{ID: first.ID, Outcome: outcome, Reason: first.Reason}, nil
}
