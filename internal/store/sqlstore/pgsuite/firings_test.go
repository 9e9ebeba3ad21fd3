package pgsuite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/storetest"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

var _ = Describe("Firings", Label("EFF-02"), func() {
	It("are found and counted with a fixed number of statements, however many namespaces have any", func(ctx SpecContext) {
		way := through(newDatabase(ctx))
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: way.url, Readers: 1, Writers: 1, Clock: clocktesting.NewFakePassiveClock(time.Now())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		took := func(from, to int) map[string]int {
			GinkgoHelper()
			for i := from; i < to; i++ {
				Expect(s.RecordFiring(ctx, store.Firing{EffectID: "e", Due: int64(i), Namespace: fmt.Sprint("n-", i)})).To(BeTrue())
			}
			took := map[string]int{}
			took["statements to find"], took["trips to find"] = way.during(func() {
				found, err := s.DueFirings(ctx, "", 10)
				Expect(err).NotTo(HaveOccurred())
				Expect(found.Due).To(HaveLen(to))
			})
			took["statements to count"], took["trips to count"] = way.during(func() { Expect(s.PendingFirings(ctx)).To(HaveLen(to)) })
			return took
		}
		took(0, 2) // the connection has prepared its statements then
		few := took(2, 4)
		Expect(took(4, 40)).To(Equal(few))
		for what, n := range few {
			Expect(n).To(BeNumerically(">", 0), what)
		}
	})

	It("are locked by a claim only if it takes them, so that another replica can claim the others at the same time", func(ctx SpecContext) {
		d := newDatabase(ctx)
		s, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		for due := range int64(10) {
			Expect(s.RecordFiring(ctx, store.Firing{EffectID: "e", Due: due, Namespace: "n"})).To(BeTrue())
		}
		claim := func(n int, running ...store.FiringKey) (keys []store.FiringKey) {
			GinkgoHelper()
			claimed, err := s.ClaimFirings(ctx, "a", time.Hour, map[string]int{"n": n}, running...)
			Expect(err).NotTo(HaveOccurred())
			Expect(claimed).To(HaveLen(n))
			for i := range claimed {
				keys = append(keys, claimed[i].Key())
			}
			return keys
		}
		claim(1, claim(4)...)
		db, err := d.SQL()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		var locked int // a row says which transaction locked it last
		Expect(db.QueryRowContext(ctx, "SELECT count(*) FROM effect_firing WHERE epoch = 0 AND xmax::text <> '0'").Scan(&locked)).To(Succeed())
		Expect(locked).To(BeZero())
	})

	It("are claimed in the order of an index, so that a claim sorts nothing where many were recorded together", func(ctx SpecContext) {
		d := newDatabase(ctx)
		s, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		conn := connect(ctx, d)
		for _, off := range []string{"enable_seqscan", "enable_bitmapscan", "enable_sort"} { // a table of a few rows would not use an index
			_, err := conn.Exec(ctx, "SET "+off+" = off")
			Expect(err).NotTo(HaveOccurred())
		}
		claim := strings.NewReplacer("namespace = ?", "namespace = 'n'", "available_at <= ?", "available_at <= 1", "LIMIT ?", "LIMIT 1").Replace(queries.Claimable)
		rows, err := conn.Query(ctx, "EXPLAIN "+claim)
		Expect(err).NotTo(HaveOccurred())
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		Expect(err).NotTo(HaveOccurred())
		Expect(plan).To(ContainElement(ContainSubstring("using effect_firing_order")))
		Expect(plan).NotTo(ContainElement(ContainSubstring("Sort")))
	})

	It("are claimed without a wait for one that the caller runs too long and another replica takes over", func(ctx SpecContext) {
		d, clock := newDatabase(ctx), clocktesting.NewFakeClock(time.Now())
		s, err := d.Open(clock)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		claim := func(n int, running ...store.FiringKey) (keys []store.FiringKey) {
			GinkgoHelper()
			claimed, err := s.ClaimFirings(ctx, "a", time.Minute, map[string]int{"n": n}, running...)
			Expect(err).NotTo(HaveOccurred())
			for i := range claimed {
				keys = append(keys, claimed[i].Key())
			}
			return keys
		}
		lapses := func(k store.FiringKey) int64 {
			GinkgoHelper()
			f, err := s.Firing(ctx, k)
			Expect(err).NotTo(HaveOccurred())
			return f.AvailableAt
		}
		for due := range int64(2) {
			Expect(s.RecordFiring(ctx, store.Firing{EffectID: "e", Due: due, Namespace: "n"})).To(BeTrue())
		}
		first, second := store.FiringKey{EffectID: "e"}, store.FiringKey{EffectID: "e", Due: 1}
		Expect(claim(1)).To(ConsistOf(first))
		began := clock.Now()
		clock.Step(2 * time.Minute)

		taken, err := connect(ctx, d).Begin(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = taken.Exec(ctx, `SELECT FROM effect_firing WHERE due = 0 FOR UPDATE`)
		Expect(err).NotTo(HaveOccurred())
		Expect(claim(1, first)).To(ConsistOf(second), "while the other one is locked")
		Expect(lapses(first)).To(Equal(began.Add(time.Minute).UnixMicro()))
		Expect(taken.Rollback(ctx)).To(Succeed())
		Expect(claim(1, first, second)).To(BeEmpty())
		Expect(lapses(first)).To(Equal(clock.Now().Add(time.Minute).UnixMicro()))
	})
})

func BenchmarkFirings(b *testing.B) {
	server, err := pgtest.Start(context.Background(), pgtest.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	storetest.BenchmarkFirings(b, func() (store.Store, error) {
		name, err := server.NewDatabase(b.Context(), "")
		if err != nil {
			return nil, err
		}
		return sqlstore.OpenPostgres(b.Context(), sqlstore.PostgresOptions{URL: server.URL(name)})
	})
}
