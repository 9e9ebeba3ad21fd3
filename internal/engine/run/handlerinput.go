package run

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/handlers"
	"github.com/skein-dev/skein/internal/store"
)

// A handler answers each accepted message with one answer, in order. A run takes one message out of the inbox for it, and
// leaves the others there for the runs that follow. So each message has its own run with its own outcome, and after a
// crash the other messages are still in the inbox.

// admit returns the inbox items that the run takes now. A run that waits takes no messages. In a handler's turn a run takes at
// most one message, and later items that would start a run by themselves stay in the inbox too.
func (r *run) admit(ctx context.Context, items []store.InboxItem, waits bool) ([]store.InboxItem, error) {
	r.withholds = false
	if waits {
		var withheld []store.InboxItem
		withheld, items = SplitWithheld(items)
		r.withholds = len(withheld) > 0
	}
	if r.Side().Handler == nil || r.Frame != nil {
		return items, nil
	}
	full := r.State.Input != "" || r.State.Handoffs > 0
	var now []store.InboxItem
	var later []store.Op
	for _, item := range items {
		message := handlers.IsInput(item, &r.State, r.conv, r.record.ID)
		if full && (message || item.Kind == store.InboxTool) {
			r.withholds = true
			if item.DelayedUntil <= r.service.now() {
				later = append(later, &store.Delay{Seq: item.Seq, Until: r.service.now() + withheldFor.Microseconds(), Tries: item.Tries})
			}
			continue
		}
		full = full || message
		now = append(now, item)
	}
	if len(later) == 0 || len(now) > 0 || r.record.Status != store.RunWaiting {
		return now, nil
	}
	// The run may wait for a long time, and the items that it leaves must not keep waking it.
	r.service.opts.Expect(r.service.now() + withheldFor.Microseconds())
	tx := r.newTransaction("park")
	tx.add(later...)
	return now, tx.commit(ctx)
}
