package sqlstore

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
