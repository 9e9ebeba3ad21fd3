package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// pageSize of reads of a conversation.
const pageSize = 1000

// conversation is a thread's messages in the memory of a run, in order.
type conversation struct {
	msgs    []store.Message
	byID    map[string]int // message id → index
	calls   map[string]int // tool call id → index of the assistant message that made it
	results map[string]int // tool call id → index of its result
	readSeq int64          // all messages up to here have been read
}

func newConversation() *conversation {
	return &conversation{byID: map[string]int{}, calls: map[string]int{}, results: map[string]int{}}
}

// loadConversation reads the newest messages of a thread, at most limit.
func loadConversation(ctx context.Context, s store.Store, t *store.Thread, limit int) (*conversation, error) {
	c := newConversation()
	if t.Messages > int64(limit) {
		edge, err := s.Messages(ctx, t.ID, store.MessageQuery{Order: "desc", Limit: 1, Offset: limit, IncludeSilent: true})
		if err != nil {
			return nil, fmt.Errorf("read messages: %w", err)
		}
		if len(edge.Messages) > 0 {
			c.readSeq = edge.Messages[0].Seq
		}
	}
	_, err := c.refresh(ctx, s, t.ID)
	return c, err
}

// refresh adds the messages that were appended since the last time, by whomever; added tells whether
// there were any that the run did not know.
func (c *conversation) refresh(ctx context.Context, s store.Store, threadID string) (added bool, err error) {
	for {
		page, err := s.Messages(ctx, threadID, store.MessageQuery{Order: "asc", AfterSeq: c.readSeq, Limit: pageSize, IncludeSilent: true})
		if err != nil {
			return added, fmt.Errorf("read messages: %w", err)
		}
		for i := range page.Messages {
			added = c.add(page.Messages[i]) || added
			c.readSeq = page.Messages[i].Seq
		}
		if len(page.Messages) < pageSize {
			return added, nil
		}
	}
}

// add puts a message that the store has into its place; false when it is there already, or tells of the life
// of a child, which is for whoever follows the conversation (SPEC MSG-09).
func (c *conversation) add(m store.Message) bool {
	if _, known := c.byID[m.ID]; known || thread.IsChildStatus(&m) {
		return false
	}
	c.msgs = append(c.msgs, m)
	if n := len(c.msgs); n > 1 && m.Seq < c.msgs[n-2].Seq {
		c.sort() // somebody else's, from before the run's own last one
		return true
	}
	c.index(len(c.msgs) - 1)
	return true
}

func (c *conversation) sort() {
	slices.SortStableFunc(c.msgs, func(a, b store.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	clear(c.byID)
	clear(c.calls)
	clear(c.results)
	for i := range c.msgs {
		c.index(i)
	}
}

func (c *conversation) index(i int) {
	m := &c.msgs[i]
	c.byID[m.ID] = i
	if m.Role == store.RoleAssistant {
		for _, call := range m.ToolCalls {
			c.calls[call.ID] = i
		}
	}
	if m.Role == store.RoleTool && m.ToolCallID != "" {
		if _, has := c.results[m.ToolCallID]; !has {
			c.results[m.ToolCallID] = i
		}
	}
}

// outstanding lists the calls of a run's messages that have no result, in order.
func (c *conversation) outstanding(runID string) []store.ToolCall {
	var out []store.ToolCall
	for i := range c.msgs {
		if m := &c.msgs[i]; own(m, runID) {
			for _, call := range m.ToolCalls {
				if _, done := c.results[call.ID]; !done {
					out = append(out, call)
				}
			}
		}
	}
	return out
}

// lastAnswer gives the newest message of the model within a run; nil when there is none yet.
func (c *conversation) lastAnswer(runID string) *store.Message {
	for i := len(c.msgs) - 1; i >= 0; i-- {
		if m := &c.msgs[i]; own(m, runID) && m.Metadata[metadataQueuedTool] == nil {
			return m
		}
	}
	return nil
}

// sideOf names the side that made a call, "" where it cannot be known.
func (c *conversation) sideOf(callID string) string {
	if i, ok := c.calls[callID]; ok {
		return c.msgs[i].Side
	}
	return ""
}

// writer names the side that wrote an assistant message: side a unless it says otherwise.
func writer(m *store.Message) string {
	if m.Side == "" {
		return definition.SideA
	}
	return m.Side
}

// answered tells whether any assistant message is there.
func (c *conversation) answered() bool {
	for i := range c.msgs {
		if c.msgs[i].Role == store.RoleAssistant {
			return true
		}
	}
	return false
}

// own tells whether a message is the model's, of this run, and not the record of a failure.
func own(m *store.Message, runID string) bool {
	return m.Role == store.RoleAssistant && m.RunID == runID && m.Status != store.MessageFailed
}
