package sqldb

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// link is a connection that says when it is closed.
type link struct {
	Link
	closed func()
}

func (l *link) Close() error {
	l.closed()
	return nil
}

// opened counts the connections of readers, and has those that are open.
type opened struct {
	*Readers
	mu    sync.Mutex
	open  int
	total int
}

func newOpened(t *testing.T, n int) *opened {
	o := &opened{}
	count := func(by int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open += by
		o.total += max(by, 0)
	}
	o.Readers = NewReaders(n, func(ctx context.Context) (*Conn, error) {
		l, err := ConnectSQLite(ctx, ":memory:", false)
		if err != nil {
			return nil, err
		}
		count(1)
		return &Conn{Link: &link{Link: l, closed: func() { _ = l.Close(); count(-1) }}}, nil
	})
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// together lends so many connections at once.
func (o *opened) together(n int) {
	var reads, lent sync.WaitGroup
	lent.Add(n)
	for range n {
		reads.Go(func() {
			_ = o.Read(context.Background(), func(*Conn) error {
				lent.Done()
				lent.Wait()
				return nil
			})
		})
	}
	reads.Wait()
}

func TestReadersLendTheConnectionThatWasUsedLast(t *testing.T) {
	g := NewWithT(t)
	o := newOpened(t, 8)
	for range 20 {
		o.together(1)
	}
	g.Expect(o.total).To(Equal(1), "one is enough for reads that follow each other")
	o.together(3)
	g.Expect(o.total).To(Equal(3))
	var first, second *Conn
	read := func(c **Conn) {
		g.Expect(o.Read(t.Context(), func(lent *Conn) error { *c = lent; return nil })).To(Succeed())
	}
	read(&first)
	read(&second)
	g.Expect(second).To(BeIdenticalTo(first))
}

func TestReadersCloseConnectionsThatAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		o := newOpened(t, 4)
		o.together(4)
		g.Expect(o.open).To(Equal(4))
		for range 10 {
			time.Sleep(30 * time.Second) // by the fake clock of synctest
			o.together(1)
		}
		g.Expect(o.open).To(Equal(1), "the others have been idle for minutes")
		o.together(4)
		g.Expect(o.total).To(Equal(7))
		g.Expect(o.Close()).To(Succeed())
		g.Expect(o.open).To(BeZero())
		g.Expect(o.Read(t.Context(), func(*Conn) error { return nil })).To(MatchError(ErrClosed))
	})
}

func TestReadersCloseTheConnectionOfAPanic(t *testing.T) {
	g := NewWithT(t)
	o := newOpened(t, 1)
	g.Expect(func() { _ = o.Read(t.Context(), func(*Conn) error { panic("x") }) }).To(PanicWith("x"))
	g.Expect(o.open).To(BeZero())
	g.Expect(o.Read(t.Context(), func(*Conn) error { return nil })).To(Succeed())
	g.Expect(o.total).To(Equal(2))
}
