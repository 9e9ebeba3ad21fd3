package transcript

import (
	"container/list"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// CacheBytes is the approximate limit on the conversations that are kept in memory.
	CacheBytes = 64 << 20
)

// Cache keeps the conversations of threads whose runs have ended, so that the next run of a thread need not read the whole
// conversation again. It drops the least recently used first. Correctness does not depend on it: a conversation is used only
// if the thread's row shows that nothing but inbox items has been added since. Cache is safe for concurrent use.
type Cache struct {
	limit int

	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *cached, the last used first
	bytes int
}

// cached is one conversation in a Cache.
type cached struct {
	id        string
	createdAt int64 // of the thread, since a later thread may have the same id
	conv      *Conversation
	known     int64 // the sequence number up to which the conversation is complete
	bytes     int
}

// NewCache returns a cache that keeps about limit bytes.
func NewCache(limit int) *Cache {
	return &Cache{limit: limit, byID: map[string]*list.Element{}}
}

// Take removes the conversation of a thread and returns it, if it is current: the caller owns it from then on. It returns nil
// if the conversation must be read from the store.
func (k *Cache) Take(w *store.Work) *Conversation {
	c := k.take(w.Thread.ID)
	if c == nil || c.createdAt != w.Thread.CreatedAt {
		return nil
	}
	since := int64(0)
	for i := range w.Inbox {
		if w.Inbox[i].Seq > c.known {
			since++
		}
	}
	// Each change of a thread takes a sequence number: an inbox item takes one, and so does every message, edit and removal.
	if w.Thread.LastSeq-c.known != since {
		return nil
	}
	return c.conv
}

// Keep adds a conversation that is complete up to the sequence number known. It keeps at most the newest limit messages. The
// cache owns the conversation from then on.
func (k *Cache) Keep(t *store.Thread, c *Conversation, known int64, limit int) {
	if extra := len(c.Messages) - limit; extra > 0 {
		c.Messages, c.partial = append([]store.Message(nil), c.Messages[extra:]...), true
		c.sort()
	}
	c.readSeq = known
	c.memory = account{} // the account of the run ends; the cache has its own limit
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

// Drop removes a thread's conversation.
func (k *Cache) Drop(id string) { k.take(id) }

// take removes a thread's conversation and returns it, or nil if there is none.
func (k *Cache) take(id string) *cached {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byID[id]; e != nil {
		return k.remove(e)
	}
	return nil
}

// remove removes an element. The caller holds mu.
func (k *Cache) remove(e *list.Element) *cached {
	r := k.order.Remove(e).(*cached)
	delete(k.byID, r.id)
	k.bytes -= r.bytes
	return r
}

// size returns approximately how many bytes a conversation takes. It measures each message once, since it is called for each run.
func (c *Conversation) size() int {
	for ; c.measured < len(c.Messages); c.measured++ {
		c.bytes += int(c.Messages[c.measured].Bytes())
	}
	return c.bytes
}
