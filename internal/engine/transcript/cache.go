package transcript

import (
	"container/list"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// CacheBytes bounds the conversations that are kept in memory, about.
	CacheBytes = 64 << 20
	// messageBytes is what a message takes beside its texts, about.
	messageBytes = 512
)

// Cache keeps the conversations of threads that have come to rest, those last that were used last, so that the next
// run of a thread need not read all that was said again. Nothing rests on it: one is used only when the thread's row shows that
// nothing but the inbox has been added since.
type Cache struct {
	limit int

	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *recentConversation, the last used first
	bytes int
}

type cached struct {
	id        string
	createdAt int64 // of the thread: another may come to have its id
	conv      *Conversation
	known     int64
	bytes     int
}

func NewCache(limit int) *Cache {
	return &Cache{limit: limit, byID: map[string]*list.Element{}}
}

// Take gives the conversation of a thread as it is now, which then is the caller's; nil when it must be read.
func (k *Cache) Take(w *store.Work) *Conversation {
	c := k.Drop(w.Thread.ID)
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

// Keep takes over a conversation of which all up to a sequence number is known, at most limit messages of it.
func (k *Cache) Keep(t *store.Thread, c *Conversation, known int64, limit int) {
	if extra := len(c.Messages) - limit; extra > 0 {
		c.Messages = append([]store.Message(nil), c.Messages[extra:]...)
		c.sort()
	}
	c.readSeq = known
	r := &cached{id: t.ID, createdAt: t.CreatedAt, conv: c, known: known, bytes: c.size()}
	if r.bytes > k.limit/8 {
		return
	}
	k.Drop(t.ID)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byID[t.ID] = k.order.PushFront(r)
	for k.bytes += r.bytes; k.bytes > k.limit; {
		k.remove(k.order.Back())
	}
}

// Drop forgets a thread's conversation, and gives it; nil when there is none.
func (k *Cache) Drop(id string) *cached {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byID[id]; e != nil {
		return k.remove(e)
	}
	return nil
}

func (k *Cache) remove(e *list.Element) *cached {
	r := k.order.Remove(e).(*cached)
	delete(k.byID, r.id)
	k.bytes -= r.bytes
	return r
}

// size is how many bytes a conversation takes, about.
func (c *Conversation) size() (n int) {
	for i := range c.Messages {
		m := &c.Messages[i]
		n += messageBytes + len(m.ID) + len(m.RunID) + len(ContentOf(m)) + len(m.ReasoningContent) + len(m.Usage) + 128*(len(m.Metadata)+len(m.Attachments))
		for _, call := range m.ToolCalls {
			n += 128 + len(call.Arguments)
		}
	}
	return n
}
