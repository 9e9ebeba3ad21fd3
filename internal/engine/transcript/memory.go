package transcript

import (
	"context"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// firstPage is how many messages the first read of a conversation fetches. Their size says how many the next one may fetch.
	firstPage = 16
	// pageBytes is about how many bytes the next reads fetch. It is also what is drawn before a read.
	pageBytes = 2 << 20
	// MaxBytes is about how much memory the messages of a conversation take that is read from the store. Of a longer one the newest
	// messages are read. No model reads more.
	MaxBytes = 32 << 20
	// copies is how often the texts of a conversation are in memory while a model is asked: in the conversation, and in the request.
	copies = 2
)

// account is what a conversation has drawn of the account of its run.
type account struct {
	of    *membudget.Account
	drawn int64
}

// read reads a page of messages, and draws their memory from the account of ctx.
func (c *Conversation) read(ctx context.Context, s store.Store, threadID string, limit int) (*store.MessagePage, error) {
	adjust, err := membudget.Reserve(ctx, pageBytes)
	if err != nil {
		return nil, err
	}
	var drawn int64
	defer func() { adjust(drawn) }()
	page, err := s.Messages(ctx, threadID, store.MessageQuery{Order: "asc", AfterSeq: c.readSeq, Limit: limit, IncludeSilent: true})
	if err == nil {
		drawn = copies * page.Bytes()
		c.memory.of = membudget.From(ctx)
		c.memory.drawn += drawn
	}
	return page, err
}

// Draw draws the memory of a conversation that was kept from the account of ctx.
func (c *Conversation) Draw(ctx context.Context) error {
	n := copies * int64(c.size())
	a := membudget.From(ctx)
	if err := a.Draw(ctx, n); err != nil {
		return err
	}
	c.memory = account{of: a, drawn: n}
	return nil
}

// Release returns the memory of a conversation that is not used any more.
func (c *Conversation) Release() {
	c.memory.of.Return(c.memory.drawn)
	c.memory = account{}
}

// trim drops the oldest messages until the rest takes at most MaxBytes.
func (c *Conversation) trim() {
	n, first := int64(0), len(c.Messages)
	for first > 0 && n+c.Messages[first-1].Bytes() <= MaxBytes {
		first--
		n += c.Messages[first].Bytes()
	}
	if first == 0 || first == len(c.Messages) {
		return
	}
	var gone int64
	for i := range c.Messages[:first] {
		gone += copies * c.Messages[i].Bytes()
	}
	c.Messages, c.partial = append([]store.Message(nil), c.Messages[first:]...), true
	c.sort()
	c.memory.of.Return(gone)
	c.memory.drawn -= gone
}
