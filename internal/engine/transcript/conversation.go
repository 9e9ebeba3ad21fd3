// Package transcript has a conversation as runs use it: read from the store, kept in order, chosen from, and assembled into the
// messages that a model reads. A Conversation is in the memory of one run; the log in the store is the record.
package transcript

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// MetadataQueuedTool marks an assistant message that stands for a tool call from outside the model.
const MetadataQueuedTool = "queued_tool"

// PageSize is how many messages one read of a conversation fetches at most.
const PageSize = 1000

// A Conversation is the messages of a thread, or of a called prompt, in the order of the log. One goroutine uses it at a time.
// Messages is for reading; the methods change it.
type Conversation struct {
	Messages []store.Message
	byID     map[string]int  // message id → index
	calls    map[string]int  // tool call id → index of the assistant message that made it
	results  map[string]int  // tool call id → index of its result
	sessions []int           // indexes of the answers that belong to a provider's conversation, in order
	calling  []int           // indexes of the assistant messages with tool calls, in order
	sums     []int           // indexes of the summaries, in order
	answers  map[string]int  // run id → index of the newest message that the model wrote in it
	removed  map[string]bool // tool call ids whose results were recorded and have been removed since
	readSeq  int64           // all messages up to here have been read

	memory  account
	bounded bool // it is being read for the first time
	partial bool // the thread may have older messages

	measured int // how many of Messages bytes has
	bytes    int
}

// New returns an empty conversation.
func New() *Conversation {
	return &Conversation{byID: map[string]int{}, calls: map[string]int{}, results: map[string]int{}, answers: map[string]int{}}
}

// Load reads the newest messages of a thread, at most limit, and at most about MaxBytes of them.
func Load(ctx context.Context, s store.Store, t *store.Thread, limit int) (*Conversation, error) {
	c := New()
	if t.Messages > int64(limit) {
		edge, err := s.Messages(ctx, t.ID, store.MessageQuery{Order: "desc", Limit: 1, Offset: limit, IncludeSilent: true})
		if err != nil {
			return nil, fmt.Errorf("read messages: %w", err)
		}
		if len(edge.Messages) > 0 {
			c.readSeq, c.partial = edge.Messages[0].Seq, true
		}
	}
	c.bounded = true
	_, err := c.Refresh(ctx, s, t.ID)
	c.bounded = false
	if err != nil {
		c.Release()
	}
	return c, err
}

// Refresh adds the messages that were appended since the last read. It reports whether the conversation lacked any of them.
func (c *Conversation) Refresh(ctx context.Context, s store.Store, threadID string) (added bool, err error) {
	for limit := firstPage; ; {
		page, err := c.read(ctx, s, threadID, limit)
		if err != nil {
			return added, fmt.Errorf("read messages: %w", err)
		}
		for i := range page.Messages {
			added = c.Add(page.Messages[i]) || added
			c.readSeq = page.Messages[i].Seq
		}
		if c.bounded {
			c.trim()
		}
		if len(page.Messages) < limit {
			return added, nil
		}
		limit = min(max(int(pageBytes/(page.Bytes()/int64(len(page.Messages))+1)), firstPage), PageSize)
	}
}

// Add puts a stored message into its place. It reports whether the message is new. It leaves out messages about the life of a
// child (MSG-09), which are for people that watch the conversation.
func (c *Conversation) Add(m store.Message) bool {
	if _, known := c.byID[m.ID]; known || thread.IsChildStatus(&m) {
		return false
	}
	c.Messages = append(c.Messages, m)
	if n := len(c.Messages); n > 1 && m.Seq < c.Messages[n-2].Seq {
		c.sort() // another writer appended it before the run's own newest message
		return true
	}
	c.index(len(c.Messages) - 1)
	return true
}

// Append adds a message at the end, whatever its sequence number and id.
func (c *Conversation) Append(m store.Message) {
	c.Messages = append(c.Messages, m)
	c.index(len(c.Messages) - 1)
}

// Message returns the message with an id, or nil. The caller must not change it.
func (c *Conversation) Message(id string) *store.Message { return c.messageAt(c.byID, id) }

// Caller returns the assistant message that made a tool call, or nil.
func (c *Conversation) Caller(callID string) *store.Message { return c.messageAt(c.calls, callID) }

// Result returns the result of a tool call, or nil.
func (c *Conversation) Result(callID string) *store.Message { return c.messageAt(c.results, callID) }

// messageAt returns the message that an index has under an id, or nil.
func (c *Conversation) messageAt(index map[string]int, id string) *store.Message {
	if i, ok := index[id]; ok {
		return &c.Messages[i]
	}
	return nil
}

// IsWhole reports whether the conversation has the thread's messages from the first one on.
func (c *Conversation) IsWhole() bool { return !c.partial }

// Forget returns an empty conversation that does not read the messages of this one again.
func (c *Conversation) Forget() *Conversation {
	gone := New()
	gone.readSeq = c.readSeq
	if n := len(c.Messages); n > 0 {
		gone.readSeq = max(gone.readSeq, c.Messages[n-1].Seq)
	}
	return gone
}

// sort puts the messages into order after a change other than a message more at the end.
func (c *Conversation) sort() {
	slices.SortStableFunc(c.Messages, func(a, b store.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	c.measured, c.bytes = 0, 0
	clear(c.byID)
	clear(c.calls)
	clear(c.results)
	clear(c.answers)
	c.sessions, c.calling, c.sums = c.sessions[:0], c.calling[:0], c.sums[:0]
	for i := range c.Messages {
		c.index(i)
	}
}

func (c *Conversation) index(i int) {
	m := &c.Messages[i]
	c.byID[m.ID] = i
	if m.Summary != nil {
		c.sums = append(c.sums, i)
	}
	if m.Role == store.RoleAssistant {
		for _, call := range m.ToolCalls {
			c.calls[call.ID] = i
		}
		if _, ok := m.Metadata[thread.MetadataSession].(map[string]any); ok {
			c.sessions = append(c.sessions, i)
		}
		if len(m.ToolCalls) > 0 {
			c.calling = append(c.calling, i)
		}
		if m.Status != store.MessageFailed && m.Metadata[MetadataQueuedTool] == nil {
			c.answers[m.RunID] = i
		}
	}
	if m.Role == store.RoleTool && m.ToolCallID != "" {
		if _, has := c.results[m.ToolCallID]; !has {
			c.results[m.ToolCallID] = i
		}
	}
}

// AnswersInSessions returns the indexes of the answers that belong to a conversation that a provider keeps, in order. Most conversations
// have none, and then a step need not look at each message.
func (c *Conversation) AnswersInSessions() []int { return c.sessions }

// OutstandingCalls returns the calls of a run's messages that have no result, in order. It leaves out calls whose results were removed.
func (c *Conversation) OutstandingCalls(runID string) []store.ToolCall {
	var out []store.ToolCall
	for _, i := range c.calling {
		m := &c.Messages[i]
		if m.RunID != runID || m.Status == store.MessageFailed { // the record of a failure does not count
			continue
		}
		for _, call := range m.ToolCalls {
			if _, done := c.results[call.ID]; !done && !c.removed[call.ID] {
				out = append(out, call)
			}
		}
	}
	return out
}

// LastAnswer returns the newest message that the model wrote in a run, or nil.
func (c *Conversation) LastAnswer(runID string) *store.Message {
	return c.messageAt(c.answers, runID)
}

// SideOf returns the name of the side that made a call, or "" if the call is not in the conversation.
func (c *Conversation) SideOf(callID string) string {
	if i, ok := c.calls[callID]; ok {
		return c.Messages[i].Side
	}
	return ""
}

// WriterOf returns the name of the side that wrote an assistant message. Messages that name none are of side a.
func WriterOf(m *store.Message) string {
	if m.Side == "" {
		return definition.SideA
	}
	return m.Side
}

// HasAnswer reports whether there is any assistant message.
func (c *Conversation) HasAnswer() bool {
	for i := range c.Messages {
		if c.Messages[i].Role == store.RoleAssistant {
			return true
		}
	}
	return false
}

// ContentOf returns the text of a message, or "" if it has none.
func ContentOf(m *store.Message) string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}
