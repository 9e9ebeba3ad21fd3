package engine

import (
	"container/list"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// maxRecentBytes bounds the conversations that are kept in memory, about.
	maxRecentBytes = 64 << 20
	// messageBytes is what a message takes beside its texts, about.
	messageBytes = 512
)

// recentConversations keeps the conversations of threads that have come to rest, those last that were used last, so that the next
// run of a thread need not read all that was said again. Nothing rests on it: one is used only when the thread's row shows that
// nothing but the inbox has been added since.
type recentConversations struct {
	limit int

	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *recentConversation, the last used first
	bytes int
}

type recentConversation struct {
	id        string
	createdAt int64 // of the thread: another may come to have its id
	conv      *conversation
	known     int64
	bytes     int
}

func newRecentConversations(limit int) *recentConversations {
	return &recentConversations{limit: limit, byID: map[string]*list.Element{}}
}

// take gives the conversation of a thread as it is now, which then is the caller's; nil when it must be read.
func (k *recentConversations) take(w *store.Work) *conversation {
	c := k.drop(w.Thread.ID)
	if c == nil || c.createdAt != w.Thread.CreatedAt {
		return nil
	}
	since := int64(0)
	for i := range w.Inbox {
		if w.Inbox[i].Seq > c.known {
			since++
		}
	}
	// Whatever changes a thread takes a number: an item of the inbox one, and so does what is said, edited or removed.
	if w.Thread.LastSeq-c.known != since {
		return nil
	}
	return c.conv
}

// keep takes over a conversation of which all up to a sequence number is known, at most limit messages of it.
func (k *recentConversations) keep(t *store.Thread, c *conversation, known int64, limit int) {
	if extra := len(c.msgs) - limit; extra > 0 {
		c.msgs = append([]store.Message(nil), c.msgs[extra:]...)
		c.sort()
	}
	c.readSeq = known
	r := &recentConversation{id: t.ID, createdAt: t.CreatedAt, conv: c, known: known, bytes: c.size()}
	if r.bytes > k.limit/8 {
		return
	}
	k.drop(t.ID)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byID[t.ID] = k.order.PushFront(r)
	for k.bytes += r.bytes; k.bytes > k.limit; {
		k.remove(k.order.Back())
	}
}

// drop forgets a thread's conversation, and gives it; nil when there is none.
func (k *recentConversations) drop(id string) *recentConversation {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byID[id]; e != nil {
		return k.remove(e)
	}
	return nil
}

func (k *recentConversations) remove(e *list.Element) *recentConversation {
	r := k.order.Remove(e).(*recentConversation)
	delete(k.byID, r.id)
	k.bytes -= r.bytes
	return r
}

// size is how many bytes a conversation takes, about.
func (c *conversation) size() (n int) {
	for i := range c.msgs {
		m := &c.msgs[i]
		n += messageBytes + len(m.ID) + len(m.RunID) + len(contentOf(m)) + len(m.ReasoningContent) + len(m.Usage) + 128*(len(m.Metadata)+len(m.Attachments))
		for _, call := range m.ToolCalls {
			n += 128 + len(call.Arguments)
		}
	}
	return n
}
