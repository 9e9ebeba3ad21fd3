package transcript

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// pages is a store of messages that notes how many each read fetched.
type pages struct {
	store.Store
	messages []store.Message
	reads    []int
}

func (p *pages) Messages(_ context.Context, _ string, q store.MessageQuery) (*store.MessagePage, error) {
	rest := p.messages[min(int(q.AfterSeq), len(p.messages)):]
	page := slices.Clone(rest[:min(q.Limit, len(rest))])
	p.reads = append(p.reads, len(page))
	return &store.MessagePage{Messages: page}, nil
}

func stored(n, size int) *pages {
	p := &pages{}
	for i := range n {
		p.messages = append(p.messages, store.Message{ID: fmt.Sprint(i), Seq: int64(i + 1), Role: store.RoleUser, Content: text(strings.Repeat("x", size))})
	}
	return p
}

func TestTheSizeOfMessagesSaysHowManyAreRead(t *testing.T) {
	for _, c := range []struct {
		n, size int
		reads   []int
	}{
		{10, 100, []int{10}},
		{1500, 100, []int{16, 1000, 484}},
		{40, 1 << 20, []int{16, 16, 8}},
	} {
		p := stored(c.n, c.size)
		if _, err := Load(t.Context(), p, &store.Thread{Messages: int64(c.n)}, 5000); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.reads, c.reads) {
			t.Errorf("%d messages of %d bytes: reads of %v, want %v", c.n, c.size, p.reads, c.reads)
		}
	}
}

func TestTheNewestMessagesFitIntoMemory(t *testing.T) {
	b := membudget.New(1<<30, time.Millisecond)
	work, done := b.Begin(t.Context(), "ns")
	defer done()
	c, err := Load(work, stored(50, 1<<20), &store.Thread{Messages: 50}, 5000)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Messages); n != 31 || c.Messages[n-1].ID != "49" {
		t.Errorf("%d messages up to %s, want the newest 31", n, c.Messages[n-1].ID)
	}
	if c.Message("49") != &c.Messages[30] || c.Message("0") != nil {
		t.Error("the index does not fit the messages")
	}
	if used, want := b.Used(), int64(2*c.size()); used != want {
		t.Errorf("%d bytes are drawn, want %d", used, want)
	}
	c.Release()
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are drawn after the release", used)
	}
	if err := c.Draw(work); err != nil || b.Used() != int64(2*c.size()) {
		t.Errorf("%d bytes are drawn: %v", b.Used(), err)
	}
}

func TestAConversationForWhichThereIsNoMemory(t *testing.T) {
	b := membudget.New(16<<20, time.Millisecond)
	work, done := b.Begin(t.Context(), "ns")
	defer done()
	if _, err := Load(work, stored(40, 1<<20), &store.Thread{Messages: 40}, 5000); err == nil {
		t.Error("it was read")
	}
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are drawn for nothing", used)
	}
}
