package sqlstore

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// lateLink reports the end of a context after it has done its work, as drivers may.
type lateLink struct {
	link
	late context.CancelFunc
}

func (l *lateLink) queue(ctx context.Context, query string, args []any) error {
	if err := l.link.queue(ctx, query, args); err != nil {
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
		open := s.readers.open
		s.readers.open = func(ctx context.Context) (*conn, error) {
			c, err := open(ctx)
			if err == nil {
				c.link = &lateLink{c.link, cancel}
			}
			return c, err
		}
		nothing := func(*conn) error { return nil }
		Expect(s.readers.snapshot(impatient, nothing)).To(MatchError(context.Canceled))
		Expect(s.readers.snapshot(ctx, nothing)).To(Succeed())
	})
})
