package sqlstore

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
)

// SQLite reuses the key of a deleted row for the next thread. Callers that purge the same thread must not remove that one.
func TestPurgingAThreadTwiceKeepsAThreadThatReusesItsKey(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	defer func(n int64) { messages.Slice = n }(messages.Slice)
	messages.Slice = 1 // a purge takes several transactions
	s, err := OpenSQLite(ctx, SQLiteOptions{Dir: t.TempDir()})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(s.Close()).To(Succeed()) }()
	withValues := func(id string) {
		_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}, &store.PutValue{Key: "a", Value: []byte("1")}, &store.PutValue{Key: "b", Value: []byte("2")})
		g.Expect(err).NotTo(HaveOccurred())
	}
	for i := range 20 {
		old, next := fmt.Sprintf("old-%d", i), fmt.Sprintf("next-%d", i)
		withValues(old)
		purged := make(chan error, 5)
		for range cap(purged) {
			go func() {
				_, err := s.PurgeThread(ctx, old)
				purged <- err
			}()
		}
		g.Expect(<-purged).To(Succeed())
		withValues(next)
		for range cap(purged) - 1 {
			g.Expect(<-purged).To(Succeed())
		}
		g.Expect(s.Value(ctx, next, "b")).To(BeEquivalentTo("2"), "thread %d", i)
	}
}
