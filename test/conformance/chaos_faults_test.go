package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
	"github.com/skein-dev/skein/test/harness"
)

// victim is a replica that faults strike.
type victim struct {
	*harness.Manager
	metrics string      // where it serves its metrics
	pprof   string      // where it serves its profiles
	clock   string      // the file that says how far its clock is ahead
	down    atomic.Bool // a fault keeps it from being started again
}

// chaos is what goes wrong, and to whom.
type chaos struct {
	worst     time.Duration // the longest outage
	victims   []*victim
	server    *pgtest.Server
	seed      uint64
	disk      *harness.Room // the disk of PostgreSQL
	rows      string        // the URL of the database, past its link
	database  *harness.Link // between the replicas and PostgreSQL
	apiserver *harness.Link // between the replicas and the API server
	room      *harness.Room // the disk of the bucket

	log    io.Writer // what strikes, when it is over
	mu     sync.Mutex
	struck map[string]int // how often each has struck, those that have not among them
	lasted map[string]time.Duration
}

// endedByItself is what the report calls a process that ended, and no fault had ended it.
const endedByItself = "a replica ended by itself"

// fault is something that goes wrong for a while. strike returns when all is well again, and reports whether it struck at all.
type fault struct {
	name   string
	strike func(ctx context.Context, rng *rand.Rand, long time.Duration) bool
}

// lasts waits for the time that an outage takes, or until the end of all of them.
func lasts(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// deck is faults of which one strikes at a time, after a calm of at most calm.
type deck struct {
	calm   time.Duration
	faults []fault
}

// rage lets the faults of a deck strike one after the other until raging ends: each of them once, in an order that the seed and the
// number of the deck decide, then each of them once more. The first time each is as long as outages get, also when raging ends
// meanwhile, so that each has struck in the end. A fault that found nothing to strike tries again.
func (c *chaos) rage(ctx, raging context.Context, n uint64, d deck) {
	order, chance := rand.New(rand.NewPCG(c.seed, 200+n)), rand.New(rand.NewPCG(c.seed, 300+n))
	until := ctx
	for round := 0; ; round++ {
		for _, i := range order.Perm(len(d.faults)) {
			for struck := false; !struck; {
				lasts(until, time.Duration(chance.Int64N(int64(d.calm))))
				if until.Err() != nil {
					return
				}
				began := time.Now()
				if struck = d.faults[i].strike(until, chance, c.long(chance, round)); struck {
					c.count(d.faults[i].name, time.Since(began))
				}
			}
		}
		until = raging
	}
}

// long returns how long a fault lasts, which most do for a short time.
func (c *chaos) long(rng *rand.Rand, round int) time.Duration {
	share := rng.Float64()
	if round == 0 {
		return c.worst
	}
	return max(500*time.Millisecond, time.Duration(float64(c.worst)*share*share*share))
}

// unstruck returns the names of the faults that have not struck.
func (c *chaos) unstruck() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range c.struck {
		if n == 0 && name != endedByItself {
			names = append(names, name)
		}
	}
	return names
}

func (c *chaos) count(name string, lasted time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.struck[name]++
	c.lasted[name] += lasted
	_, _ = fmt.Fprintf(c.log, "chaos: %s, for %s\n", name, lasted.Round(time.Millisecond))
}

// String is the report: how often each fault struck.
func (c *chaos) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.struck)) {
		fmt.Fprintf(&b, "%6d × %s, for %s in all\n", c.struck[name], name, c.lasted[name].Round(time.Millisecond))
	}
	return b.String()
}

// keep starts a replica again whenever it has ended, as a kubelet does, until ctx ends.
func (c *chaos) keep(ctx context.Context, v *victim) {
	for ctx.Err() == nil {
		if !v.down.Load() && !v.Running() {
			if v.PID() != 0 {
				c.count(endedByItself, 0)
			}
			v.Kill() // forgets the process that has ended
			starting, cancel := context.WithTimeout(ctx, 3*time.Second)
			_ = v.Start(starting) // it may become ready later
			cancel()
		}
		lasts(ctx, 100*time.Millisecond)
	}
}

func (c *chaos) anyone(rng *rand.Rand) *victim { return c.victims[rng.IntN(len(c.victims))] }

// processes are the faults of replicas.
func (c *chaos) processes() []fault {
	return []fault{
		{"kill -9 of a replica", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			v := c.anyone(rng)
			v.down.Store(true)
			defer v.down.Store(false)
			ran := v.Running()
			v.Kill()
			lasts(ctx, min(long, 2*time.Second))
			return ran
		}},
		{"pause of a replica", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			pid := c.anyone(rng).PID()
			if pid == 0 || syscall.Kill(pid, syscall.SIGSTOP) != nil {
				return false
			}
			lasts(ctx, long)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			return true
		}},
		{"the leader's lease taken away", func(ctx context.Context, _ *rand.Rand, _ time.Duration) bool {
			vacate(context.WithoutCancel(ctx)) // also when the chaos ends meanwhile
			return true
		}},
	}
}

// networks are the faults between the replicas, PostgreSQL and the API server.
func (c *chaos) networks(calm context.Context) []fault {
	return []fault{
		{"cut of all connections to PostgreSQL", func(context.Context, *rand.Rand, time.Duration) bool {
			c.database.Cut()
			return true
		}},
		{"crash of PostgreSQL", func(ctx context.Context, _ *rand.Rand, long time.Duration) bool {
			Expect(c.server.Down()).To(Succeed())
			lasts(ctx, long/4)
			Expect(c.server.Up(calm)).To(Succeed())
			return true
		}},
		{"PostgreSQL out of reach", func(ctx context.Context, _ *rand.Rand, long time.Duration) bool {
			c.database.Leave()
			lasts(ctx, long/2)
			c.database.Return()
			return true
		}},
		{"packets to and from PostgreSQL delayed", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			c.database.Delay(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
			lasts(ctx, long/2)
			c.database.Delay(0)
			return true
		}},
		{"full disk of PostgreSQL", func(ctx context.Context, _ *rand.Rand, long time.Duration) bool {
			Expect(c.disk.Fill()).To(Succeed())
			lasts(ctx, long/2)
			Expect(c.disk.Clear()).To(Succeed())
			if !c.server.Running() { // it ends when it cannot write its log
				Expect(c.server.Up(calm)).To(Succeed())
			}
			return true
		}},
		{"packets to and from PostgreSQL swallowed", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			c.database.Swallow()
			lasts(ctx, long/2)
			c.database.Carry(rng.IntN(2) == 0)
			return true
		}},
		{"API server away", func(ctx context.Context, _ *rand.Rand, long time.Duration) bool {
			c.apiserver.Leave()
			lasts(ctx, long)
			c.apiserver.Return()
			return true
		}},
		{"packets to and from the API server swallowed", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			c.apiserver.Swallow()
			lasts(ctx, long/4)
			c.apiserver.Carry(rng.IntN(2) == 0)
			return true
		}},
	}
}

// disks are the faults of the bucket.
func (c *chaos) disks() []fault {
	return []fault{
		{"full disk of the bucket", func(ctx context.Context, _ *rand.Rand, long time.Duration) bool {
			Expect(c.room.Fill()).To(Succeed())
			lasts(ctx, long/2)
			Expect(c.room.Clear()).To(Succeed())
			return true
		}},
		{"loss of the bucket", func(ctx context.Context, _ *rand.Rand, long time.Duration) bool {
			here, away := filepath.Join(c.room.Path(), "bucket"), filepath.Join(c.room.Path(), "away")
			Expect(os.Rename(here, away)).To(Succeed())
			lasts(ctx, long/2)
			giveBack(away, here)
			return true
		}},
	}
}

// ownClock lets a database have a clock of its own, and returns the URL of a client that has it. Each replica measures leases and
// firings by the database's clock, which it reads with each new connection by the function that this one shadows.
func ownClock(ctx context.Context, url string) string {
	GinkgoHelper()
	for _, statement := range []string{
		"CREATE SCHEMA skew", "CREATE TABLE skew.ahead (jump interval NOT NULL)", "INSERT INTO skew.ahead VALUES ('0')",
		"CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() + (SELECT jump FROM skew.ahead)'",
	} {
		dictate(ctx, url, statement)
	}
	return url + "&search_path=public,skew,pg_catalog"
}

// dictate has a database do something.
func dictate(ctx context.Context, url, statement string, args ...any) {
	GinkgoHelper()
	db, err := sql.Open("pgx", url)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(db.Close()).To(Succeed()) }()
	// PostgreSQL may be down for a while, as another fault.
	Eventually(ctx, func() error {
		_, err := db.ExecContext(ctx, statement, args...)
		return err
	}).WithTimeout(5 * patience).Should(Succeed())
}

// clocks are the faults of the clock that replicas share, and of their own.
func (c *chaos) clocks(calm context.Context) []fault {
	jump := func(by time.Duration) {
		dictate(calm, c.rows, "UPDATE skew.ahead SET jump = make_interval(secs => $1)", by.Seconds())
		c.database.Cut() // the replicas read the clock when they connect
	}
	return []fault{
		{"jump of the database's clock, there and back", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			jump(time.Duration(rng.Int64N(int64(2*time.Minute))) - time.Minute)
			lasts(ctx, long/2)
			jump(0)
			return true
		}},
		{"jump of a replica's clock, forward and back", func(ctx context.Context, rng *rand.Rand, long time.Duration) bool {
			v := c.anyone(rng)
			// By more than a lease lasts, and than the clocks of nodes differ.
			by := 30*time.Second + time.Duration(rng.Int64N(int64(30*time.Second)))
			ran := v.Running()
			for _, ahead := range []time.Duration{by, -by} {
				Expect(v.moves(ahead)).To(Succeed())
				lasts(ctx, long/2)
			}
			Expect(v.moves(0)).To(Succeed())
			return ran
		}},
	}
}

// moves lets the clock of a replica be ahead. The file is never there in part.
func (v *victim) moves(by time.Duration) error {
	if err := os.WriteFile(v.clock+".new", []byte(by.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(v.clock+".new", v.clock)
}

// giveBack moves a folder back to where it was. What was written meanwhile to a folder of its name stays, too.
func giveBack(away, here string) {
	GinkgoHelper()
	meanwhile := here + "-meanwhile"
	err := os.Rename(here, meanwhile)
	if err != nil {
		Expect(err).To(MatchError(fs.ErrNotExist))
	}
	Expect(os.Rename(away, here)).To(Succeed())
	if err != nil {
		return
	}
	Expect(filepath.WalkDir(meanwhile, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(meanwhile, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(here, inside), 0o755)
		}
		return os.Rename(path, filepath.Join(here, inside))
	})).To(Succeed())
	Expect(os.RemoveAll(meanwhile)).To(Succeed())
}
