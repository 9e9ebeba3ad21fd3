package pgsuite

import (
	"context"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The lifecycle feed of a database that was moved to another server", Label("STA-06"), func() {
	It("goes on, and continues after the cursors of the server before", func(ctx SpecContext) {
		d := newDatabase(ctx)
		open := func() store.Store {
			GinkgoHelper()
			s, err := d.Open(nil)
			Expect(err).NotTo(HaveOccurred())
			return s
		}
		create := func(s store.Store, ids ...string) {
			GinkgoHelper()
			for _, id := range ids {
				_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Name: id, Agent: "a"})
				Expect(err).NotTo(HaveOccurred())
			}
		}
		read := func(ctx context.Context, s store.Store, after store.LifecycleCursor) (names []string, cursors []store.LifecycleCursor) {
			GinkgoHelper()
			Eventually(ctx, func() bool { // transactions of other databases of the server may be in progress
				page, err := s.Lifecycle(ctx, store.LifecycleQuery{After: after})
				Expect(err).NotTo(HaveOccurred())
				names, cursors = nil, nil
				for _, e := range page.Events {
					names, cursors = append(names, e.ThreadName), append(cursors, e.Cursor)
				}
				return page.InFlight
			}).Should(BeFalse())
			return names, cursors
		}
		s := open()
		create(s, "first", "second", "third")
		Expect(s.Close()).To(Succeed())
		db, err := pgx.Connect(ctx, d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		// The transactions of the server before had larger numbers than those of this one will have for a long time.
		const before = 1 << 40
		rows, err := db.Query(ctx, `UPDATE lifecycle SET tick = tick + $1 RETURNING tick, seq`, int64(before))
		Expect(err).NotTo(HaveOccurred())
		was, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Tick, Seq int64 }])
		Expect(err).NotTo(HaveOccurred())
		Expect(was).To(HaveLen(3))

		s = open()
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		create(s, "new")
		names, cursors := read(ctx, s, store.LifecycleCursor{})
		Expect(names).To(Equal([]string{"first", "second", "third", "new"}))
		for i, want := range [][]string{{"second", "third", "new"}, {"third", "new"}, {"new"}} {
			names, _ = read(ctx, s, store.LifecycleCursor(was[i]))
			Expect(names).To(Equal(want))
			names, _ = read(ctx, s, cursors[i])
			Expect(names).To(Equal(want))
		}
		end, err := s.Lifecycle(ctx, store.LifecycleQuery{Latest: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(end.Next).To(Equal(cursors[3]))
	})
})
