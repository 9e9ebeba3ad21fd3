package sqlstore

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// lateLink reports the end of a context after it has done its work, as drivers may.
type lateLink struct {
	sqldb.Link
	late context.CancelFunc
}

func (l *lateLink) Queue(ctx context.Context, query string, args []any) error {
	if err := l.Link.Queue(ctx, query, args); err != nil {
		return err
	}
	l.late()
	return ctx.Err()
}

var _ = Describe("Read connections", func() {
	It("are not reused in the middle of a snapshot whose reader gave up", func(ctx SpecContext) {
		s, err := OpenSQLite(ctx, SQLiteOptions{Dir: GinkgoT().TempDir(), Readers: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.Close)
		impatient, cancel := context.WithCancel(ctx)
		open := s.db.Readers.Open
		s.db.Readers.Open = func(ctx context.Context) (*sqldb.Conn, error) {
			c, err := open(ctx)
			if err == nil {
				c.Link = &lateLink{c.Link, cancel}
			}
			return c, err
		}
		nothing := func(*sqldb.Conn) error { return nil }
		Expect(s.db.Readers.Snapshot(impatient, nothing)).To(MatchError(context.Canceled))
		Expect(s.db.Readers.Snapshot(ctx, nothing)).To(Succeed())
	})
})

// watchedContext ends when a driver begins to watch it.
type watchedContext struct {
	context.Context
	cancel context.CancelFunc
}

func (c *watchedContext) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

var _ = Describe("A query of SQLite", func() {
	DescribeTable("before its first row", func(ctx SpecContext, of func(r *sqldb.Readers) *sqldb.Readers, matcher types.GomegaMatcher) {
		s, err := OpenSQLite(ctx, SQLiteOptions{Dir: GinkgoT().TempDir(), Readers: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.Close)
		Expect(s.db.Readers.Interruptible().Read(ctx, func(*sqldb.Conn) error { return nil })).To(Succeed(), "the next user of the same connection chooses anew")
		inner, cancel := context.WithCancel(ctx)
		DeferCleanup(cancel)
		Expect(of(s.db.Readers).Read(ctx, func(c *sqldb.Conn) error {
			var n int64
			return c.Row(&watchedContext{inner, cancel}, `WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < ?) SELECT max(n) FROM r`, []any{10000}, &n)
		})).To(matcher)
	},
		Entry("is interrupted by the end of its context when its readers are interruptible", (*sqldb.Readers).Interruptible, HaveOccurred()),
		Entry("does not watch its context otherwise", func(r *sqldb.Readers) *sqldb.Readers { return r }, Succeed()))
})
