package pgsuite

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
)

// openThrough opens a store with one connection that reads and one that writes, whose statements are counted.
func openThrough(ctx context.Context, way *frontend) *sqlstore.Store {
	GinkgoHelper()
	s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: way.url, Readers: 1, Writers: 1})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
	_, err = s.DueFirings(ctx, "", 1) // a transaction, without which the connection is not counted
	Expect(err).NotTo(HaveOccurred())
	return s
}

var _ = Describe("A sweep of the bucket", Label("FIL-07"), func() {
	It("takes one statement for a page of objects in use, and no more trips for many others than for a few", func(ctx SpecContext) {
		way := through(newDatabase(ctx))
		s := openThrough(ctx, way)
		const files = 300
		object := func(i int) string { return fmt.Sprint("objects/", i) }
		var ops []store.Op
		var used []string
		for i := range files {
			used = append(used, object(i))
			ops = append(ops, &store.PutFile{File: store.File{Path: fmt.Sprint("/", i), Digest: fmt.Sprintf("%064x", i), Size: 1}, Object: object(i), Uploaded: 1 << 60})
		}
		_, _, err := s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"}, ops...)
		Expect(err).NotTo(HaveOccurred())
		sweep := func(objects []string) (statements, trips int) {
			GinkgoHelper()
			return way.during(func() { Expect(s.SweepObjects(ctx, objects, 0)).To(BeEmpty()) })
		}
		sweep(used) // the connection has prepared its statements then
		for _, n := range []int{1, files} {
			statements, trips := sweep(used[:n])
			Expect([]int{statements, trips}).To(Equal([]int{1, 1}), "%d objects", n)
		}
		others := func(from, n int) (objects []string) {
			for i := range n {
				objects = append(objects, fmt.Sprint("others/", from+i))
			}
			return objects
		}
		sweep(others(0, 2))
		few, trips := sweep(others(2, 2))
		many, tripsOfMany := sweep(append(others(4, 100), used...))
		Expect(many-few).To(Equal(98), "each is noted")
		Expect(tripsOfMany).To(Equal(trips))
	})
})

var _ = Describe("A search", Label("THR-16"), func() {
	It("finds messages by the index of their words, and computes those of the newest only", func(ctx SpecContext) {
		d := newDatabase(ctx)
		s, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		conn := connect(ctx, d)
		for _, off := range []string{"enable_seqscan", "enable_sort"} { // an index that has the order would be taken
			_, err := conn.Exec(ctx, "SET "+off+" = off")
			Expect(err).NotTo(HaveOccurred())
		}
		terms, err := store.ParseSearch("word")
		Expect(err).NotTo(HaveOccurred())
		query, _ := search.ByTSQuery(terms, "", nil, 20)
		query = strings.NewReplacer("to_tsquery('simple', ?)", "to_tsquery('simple', 'word')", "LIMIT ?", "LIMIT 20", "OFFSET ?", "OFFSET 0").Replace(query)
		rows, err := conn.Query(ctx, "EXPLAIN "+query)
		Expect(err).NotTo(HaveOccurred())
		steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
		Expect(err).NotTo(HaveOccurred())
		plan := strings.Join(steps, "\n")
		Expect(strings.Count(plan, "Bitmap Index Scan on message_text")).To(Equal(1), plan)
		Expect(plan).NotTo(ContainSubstring("Backward"))
	})
})
