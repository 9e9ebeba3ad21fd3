package transcript

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Results of calls may be removed while the run that made the calls goes on (MSG-06). Such a call was made all the same, so it is not
// made again (RUN-02).

// removed is what the model reads in place of a result that was removed while the run goes on.
const removed = "(no result: it was removed after the call was made)"

// maxEnds is how many entries of the log one read of ends fetches at most.
const maxEnds = 1000

// RecallEnds finds out which of a run's calls without a result had one that was removed since. It reads the ends of calls in the log. It
// reads nothing if no call without a result can have had one. pending reports that of a call.
func (c *Conversation) RecallEnds(ctx context.Context, s store.Store, threadID, runID string, pending func(callID string) bool) error {
	var after int64
	open := map[string]bool{}
	for _, call := range c.OutstandingCalls(runID) {
		if pending(call.ID) {
			continue
		}
		if len(open) == 0 {
			after = c.Caller(call.ID).Seq
		}
		open[call.ID] = true
	}
	for len(open) > 0 {
		ends, err := s.LogEntries(ctx, threadID, after, maxEnds, store.EventToolEnded)
		if err != nil {
			return fmt.Errorf("read which calls have ended: %w", err)
		}
		for i := range ends {
			after = ends[i].Seq
			var end struct {
				ToolCallID string `json:"toolCallId"`
			}
			if ends[i].RunID == runID && json.Unmarshal(ends[i].Data, &end) == nil && open[end.ToolCallID] {
				c.setRemoved(end.ToolCallID)
			}
		}
		if len(ends) < maxEnds {
			return nil
		}
	}
	return nil
}

// keepEnds takes over from an earlier state of the same conversation which calls had a result.
func (c *Conversation) keepEnds(before *Conversation) {
	for id := range before.removed {
		c.setRemoved(id)
	}
	for id := range before.results {
		if _, has := c.results[id]; !has {
			c.setRemoved(id)
		}
	}
}

// setRemoved notes that a call had a result.
func (c *Conversation) setRemoved(callID string) {
	if c.removed == nil {
		c.removed = map[string]bool{}
	}
	c.removed[callID] = true
}

// part returns an empty conversation for messages of this one.
func (c *Conversation) part() *Conversation {
	out := New()
	out.removed = c.removed
	return out
}
