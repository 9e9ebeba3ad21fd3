package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// No model reads a message while a run waits. So the message stays in the inbox, where it counts as waiting, and the run takes it
// before its next model call. If the run is ended while it waits, the message is there for the next run, or is parked (MSG-08).

// withheldFor is how long items that a waiting run leaves in the inbox are delayed, so that they do not keep waking it. Correctness
// does not depend on it: the run reads its inbox again before its next model call, and the store ends the delays when the run
// goes on or ends.
const withheldFor = 10 * time.Minute

// SplitWithheld splits inbox items into those that a waiting run leaves in the inbox, which are messages, and the rest.
func SplitWithheld(items []store.InboxItem) (withheld, rest []store.InboxItem) {
	for i, item := range items {
		switch {
		case isWithheld(item):
			if withheld == nil {
				rest = append([]store.InboxItem(nil), items[:i]...)
			}
			withheld = append(withheld, item)
		case withheld != nil:
			rest = append(rest, item)
		}
	}
	if withheld == nil {
		return nil, items
	}
	return withheld, rest
}

// isWithheld reports whether an inbox item is a message, or a child's result that becomes one because no call is named in it.
func isWithheld(item store.InboxItem) bool {
	if item.Kind != store.InboxChildResult {
		return item.Kind == store.InboxMessage
	}
	var result store.ChildResult
	return json.Unmarshal(item.Payload, &result) == nil && result.ToolCallID == ""
}

// Withhold keeps items that a waiting run leaves in the inbox from counting as work. The caller holds the lease of the thread.
func (s *Service) Withhold(ctx context.Context, threadID string, fence *store.Fence, withheld []store.InboxItem) error {
	var ops []store.Op
	until := s.now() + withheldFor.Microseconds()
	for _, item := range withheld {
		if item.DelayedUntil <= s.now() {
			ops = append(ops, &store.Delay{Seq: item.Seq, Until: until, Tries: item.Tries})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if err := s.opts.Store.Apply(ctx, threadID, fence, ops...); err != nil {
		return err
	}
	s.opts.Expect(until)
	return nil
}
