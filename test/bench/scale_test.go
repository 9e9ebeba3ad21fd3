package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// The specs with the label scale measure what one event costs beside N of something and beside ten times as many. An event that does not
// depend on N costs the same, so the goal is a factor of 1.2, which leaves room for deeper indexes and a noisy machine. Where the cost grows up
// to a bound by design, the line says so.

// grownFor is how long one line is measured at most, once it has two rounds.
const grownFor = 12 * time.Second

// event is something whose cost is not to grow with what else there is.
type event struct {
	prepare func(calls int) // makes what the next calls of do need, and is not measured; nil for nothing
	do      func()
}

// always is an event that needs no preparation.
func always(do func()) event { return event{do: do} }

// growth is what an event has cost beside some others and beside ten times as many.
type growth struct {
	took [2][]time.Duration
	work [2]time.Duration // of processors
}

// grow measures an event beside few others and beside many, in turns, because the machine's speed changes. Each turn has so many calls.
func grow(calls int, few, many event) (g growth) {
	GinkgoHelper()
	const rounds = 10
	began := time.Now()
	for round := 0; round < rounds && (round < 2 || time.Since(began) < grownFor); round++ {
		for i, e := range []event{few, many} {
			if e.prepare != nil {
				e.prepare(calls)
			}
			g.work[i] += workOf(func() {
				for range calls {
					g.took[i] = append(g.took[i], timed(e.do))
				}
			})
		}
	}
	return g
}

// print prints one line. note is what a reader has to know beside the goal; it may be empty.
func (g growth) print(name string, n int, note string) {
	GinkgoHelper()
	few, many := quantile(g.took[0], .5), quantile(g.took[1], .5)
	each := func(i int) time.Duration { return g.work[i] / time.Duration(len(g.took[i])) }
	text := ""
	if each(0) > 0 {
		text = fmt.Sprintf("; of processors %s and %s: %.2f times", short(each(0)), short(each(1)), float64(each(1))/float64(each(0)))
	}
	figure(name, "%s with %s, %s with %s: %.2f times (goal 1.2)%s%s", short(few), thousands(n), short(many), thousands(10*n), float64(many)/float64(few), text, note)
}

// short rounds to three digits or so.
func short(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Microsecond:
		return d.Round(10 * time.Nanosecond)
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// workOf returns for how long processors work for f: in this process, and in the connections of PostgreSQL servers that it has started. The
// latter are counted in ticks.
func workOf(f func()) time.Duration {
	GinkgoHelper()
	servers := backends()
	own := processors()
	f()
	own = processors() - own
	return own + backends() - servers
}

// backends is for how long processors have worked for the connections of PostgreSQL servers that this process has started.
func backends() (sum time.Duration) {
	GinkgoHelper()
	all := processes()
	for id, p := range all {
		if p.name != "postgres" || all[p.parent].parent != os.Getpid() {
			continue
		}
		if title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id)); err == nil && strings.HasPrefix(string(title), "postgres: skein") {
			sum += p.used
		}
	}
	return sum
}

// planted is a store whose database the bench also writes to directly. To make what there are thousands of by operations would take most of
// the time.
type planted struct {
	store.Store
	db     *sql.DB
	series string // a table s of the numbers i from 1 to a given one
	settle string // what makes reads cheap after many writes, as the database does by itself in time
}

// plantables open stores to plant in, by the name of their database.
var plantables = []struct {
	name string
	open func(ctx context.Context) *planted
}{{"SQLite", plantSQLite}, {"PostgreSQL", plantPostgres}}

func plantSQLite(ctx context.Context) *planted {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "skein.db")+"?_pragma=busy_timeout(5000)")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	return &planted{
		Store: s, db: db, settle: `PRAGMA wal_checkpoint(TRUNCATE)`,
		series: `(WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d) SELECT i FROM c) s`,
	}
}

func plantPostgres(ctx context.Context) *planted {
	GinkgoHelper()
	return plantAt(ctx, postgresURL(ctx))
}

// plantAt opens the PostgreSQL database with a URL.
func plantAt(ctx context.Context, url string) *planted {
	GinkgoHelper()
	s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: url})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	db, err := sql.Open("pgx", url)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	return &planted{Store: s, db: db, settle: `VACUUM ANALYZE`, series: `generate_series(1, %d) s (i)`}
}

// copies adds n copies of the rows o of a table that a condition selects. change has the values of columns that differ, in which s.i is the
// number of the copy. The database itself gives values to columns whose change is empty.
func (p *planted) copies(ctx context.Context, table, where string, n int, change map[string]string) {
	GinkgoHelper()
	rows, err := p.db.QueryContext(ctx, `SELECT * FROM `+table+` LIMIT 0`)
	Expect(err).NotTo(HaveOccurred())
	all, err := rows.Columns()
	Expect(err).NotTo(HaveOccurred())
	Expect(rows.Close()).To(Succeed())
	var columns, values []string
	for _, c := range all {
		value, changed := change[c]
		switch {
		case !changed:
			value = "o." + c
		case value == "":
			continue
		}
		columns, values = append(columns, c), append(values, value)
	}
	r, err := p.db.ExecContext(ctx, `INSERT INTO `+table+` (`+strings.Join(columns, ", ")+`) SELECT `+strings.Join(values, ", ")+
		` FROM `+table+` o CROSS JOIN `+fmt.Sprintf(p.series, n)+` WHERE `+where)
	Expect(err).NotTo(HaveOccurred())
	Expect(r.RowsAffected()).To(BeNumerically(">=", n), "copies in %s", table)
}

// settled ends the planting, so that reads cost what they cost later.
func (p *planted) settled(ctx context.Context) {
	GinkgoHelper()
	_, err := p.db.ExecContext(ctx, p.settle)
	Expect(err).NotTo(HaveOccurred())
}

// apart is the distance between the numbers of a row and those of its copies.
const apart = 1_000_000

// behind is the change of copies that stand behind the rows of a thread that they are copies of.
func behind(edit map[string]string) map[string]string {
	change := map[string]string{"key": "", "seq": fmt.Sprintf("o.seq + s.i * %d", apart)}
	for column, value := range edit {
		change[column] = value
	}
	return change
}

// newThread makes a thread.
func newThread(ctx context.Context, s store.Store, id string) string {
	GinkgoHelper()
	_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "bench", Name: id, Agent: "a"})
	Expect(err).NotTo(HaveOccurred())
	return id
}

// say appends a message to a thread.
func say(ctx context.Context, s store.Store, id, content string) {
	GinkgoHelper()
	Expect(s.Apply(ctx, id, nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &content}})).To(Succeed())
}
