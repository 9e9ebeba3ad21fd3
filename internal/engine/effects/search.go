package effects

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/engine/fairpool"
	"github.com/skein-dev/skein/internal/store"
)

// searchPause is the pause before the next look when this one leaves slots free, and has not seen all namespaces.
const searchPause = 100 * time.Millisecond

// claimDue claims firings of the namespaces that have any, so that each has its share of the slots.
func (w *Worker) claimDue(ctx context.Context, running map[store.FiringKey]*claim, free int) ([]store.Firing, error) {
	found, err := w.store.DueFirings(ctx, w.from, free+len(running))
	if err != nil {
		return nil, err
	}
	busy := map[string]int{}
	for _, c := range running {
		busy[c.namespace]++
	}
	waiting := make([]fairpool.Waiting, len(found.Due))
	for i, d := range found.Due {
		waiting[i] = fairpool.Waiting{Group: d.Namespace, Count: d.Count}
	}
	shares := fairpool.Share(w.opts.Workers, busy, waiting)
	begin := 0
	for _, n := range shares {
		begin += n
	}
	next := found.Next
	if begin < free && !found.All && (next == 0 || next > searchPause) {
		next = searchPause
	}
	w.wakeIn(next)
	var claimed []store.Firing
	if begin > 0 {
		claimed, err = w.store.ClaimFirings(ctx, w.opts.Owner, w.opts.ClaimTTL, shares, slices.Collect(maps.Keys(running))...)
		if err != nil {
			return nil, err
		}
	}
	w.from = found.From
	return claimed, nil
}

// wakeIn makes the worker look for firings when the next one can be claimed. That may be a firing that was recorded for later, one that is
// tried again, or one whose claim by a lost replica expires. 0 means that there is none.
func (w *Worker) wakeIn(next time.Duration) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if next > 0 {
		w.timer = w.opts.Clock.AfterFunc(next, w.Wake)
	}
}
