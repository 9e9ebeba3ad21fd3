package bench

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// One thread makes its turns by itself here, so that no two transactions share a commit of the database.
var _ = Describe("A turn", func() {
	It("has few transactions and statements", func(ctx SpecContext) {
		const turns = 200
		var counted counters
		dir := GinkgoT().TempDir()
		s, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: filepath.Join(dir, "store"), Executed: counted.executed})
		Expect(err).NotTo(HaveOccurred())
		w, err := enginetest.NewOn(s, dir)
		Expect(err).NotTo(HaveOccurred())
		w.Definitions.Put("agent", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
		b, _ := startEngine(ctx, w, func(*engine.Options) {})
		ids := b.threads(ctx, 1)
		b.turns(ctx, ids, 2) // what is made once
		before := counted.statements()
		b.turns(ctx, ids, turns)
		after := counted.statements()
		each := func(of func(statements) int64) float64 { return float64(of(after)-of(before)) / turns }
		figure("a turn, SQLite", "%.2f transactions (goal 5) of %.2f statements that write (goal 18); %.2f that read, with those of this bench",
			each(func(s statements) int64 { return s.commits }), each(func(s statements) int64 { return s.writes }), each(func(s statements) int64 { return s.reads }))
	}, NodeTimeout(5*time.Minute))
})

// statements are how many were executed.
type statements struct{ commits, writes, reads int64 }

// counters count the statements of a store.
type counters struct{ commits, writes, reads atomic.Int64 }

func (c *counters) statements() statements {
	return statements{commits: c.commits.Load(), writes: c.writes.Load(), reads: c.reads.Load()}
}

func (c *counters) executed(query string) {
	switch word, _, _ := strings.Cut(strings.TrimSpace(query), " "); {
	case word == "COMMIT":
		c.commits.Add(1)
	case word == "BEGIN", word == "END", word == "ROLLBACK", word == "PRAGMA":
	case strings.Contains(query, "INSERT "), strings.Contains(query, "DELETE FROM"), strings.Contains(query, "UPDATE "): // some after a WITH
		c.writes.Add(1)
	default:
		c.reads.Add(1)
	}
}
