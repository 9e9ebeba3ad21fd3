package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

// Replicas that share a PostgreSQL database: engines of this process, each with connections and a user of its own, so that the database
// tells what each of them costs it.
var _ = Describe("Replicas on PostgreSQL", Ordered, Label("replicas"), func() {
	var server *pgtest.Server

	BeforeAll(func(ctx SpecContext) {
		var err error
		server, err = pgtest.Start(ctx, pgtest.Options{Durable: true, Settings: []string{"shared_preload_libraries=pg_stat_statements"}})
		if err != nil {
			Skip("PostgreSQL's pg_stat_statements counts the statements of replicas: " + err.Error())
		}
		DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
	}, NodeTimeout(2*time.Minute))

	AfterEach(func() { load() })

	// What limits a replica here is how many runs it may have under way, so three may do three times as much.
	It("make more turns than one when neither the database nor the processors are the limit", func(ctx SpecContext) {
		const workers, latency = 50, time.Second
		one, three := alternately(ctx, server, 15*time.Second, latency, 180, func(o *engine.Options) { o.Workers = workers })
		figure("turns a second of three replicas, PostgreSQL", "%.0f, %.2f times the %.0f of one (goal 2.5; models of %s, %d workers each)",
			three.rate(), three.rate()/one.rate(), one.rate(), latency, workers)
		three.beside(one)
	}, SpecTimeout(5*time.Minute))

	It("make turns when the processors are the limit", func(ctx SpecContext) {
		one, three := alternately(ctx, server, 8*time.Second, 0, 96, func(*engine.Options) {})
		figure("  with models of 0 ms", "%.0f, %.2f times the %.0f of one (on these processors: database, engines and bench)", three.rate(), three.rate()/one.rate(), one.rate())
		three.beside(one)
	}, SpecTimeout(5*time.Minute))

	It("leave alone what others do", func(ctx SpecContext) {
		for _, latency := range []time.Duration{200 * time.Millisecond, 0} {
			r := startReplicas(ctx, server, 3, latency, func(o *engine.Options) { o.LeaseTTL, o.SweepInterval = 15*time.Second, 15*time.Second })
			u := r.work(ctx, 30*time.Second, [][]string{r.threads(ctx, 0, 60)}) // two intervals in which a replica looks at what others have
			idle := u.of(r.all[1:])
			figure(fmt.Sprintf("two idle replicas beside a busy one, models of %s", latency), "%.1f %% of the database's processor time (goal 5), %.1f %% of its statements (%.2f a turn, of %.1f)",
				100*float64(idle.database)/float64(u.sum.database), 100*float64(idle.statements)/float64(u.sum.statements),
				float64(idle.statements)/float64(u.sum.turns), float64(u.sum.statements)/float64(u.sum.turns))
			figure("  leases that they asked for", "%.3f a turn in vain, %.3f that they got; they made %d of %d turns",
				float64(idle.refused)/float64(u.sum.turns), float64(idle.taken)/float64(u.sum.turns), idle.turns, u.sum.turns)
			r.stop()
		}
	}, SpecTimeout(5*time.Minute))
})

// alternately measures one replica and three with the same threads, in turns, because the machine's speed changes.
func alternately(ctx context.Context, server *pgtest.Server, d, latency time.Duration, threads int, edit func(*engine.Options)) (one, three cost) {
	GinkgoHelper()
	for range 2 {
		for _, n := range []int{1, 3} {
			r := startReplicas(ctx, server, n, latency, edit)
			ids := make([][]string, n)
			for i := range ids {
				ids[i] = r.threads(ctx, i, threads/n)
			}
			u := r.work(ctx, d, ids)
			r.stop()
			if n == 1 {
				one.add(u.sum)
			} else {
				three.add(u.sum)
			}
		}
	}
	return one, three
}

// cost is what turns have cost.
type cost struct {
	took           time.Duration
	turns          int64
	engines        time.Duration // of a processor, the bench included
	database       time.Duration // of a processor
	statements     int64
	taken, refused int64 // leases
}

func (c *cost) add(o cost) {
	c.took += o.took
	c.turns += o.turns
	c.engines += o.engines
	c.database += o.database
	c.statements += o.statements
	c.taken += o.taken
	c.refused += o.refused
}

func (c *cost) rate() float64 { return float64(c.turns) / c.took.Seconds() }

// beside prints what a turn costs three replicas and one.
func (c *cost) beside(one cost) {
	each := func(c *cost, d time.Duration) time.Duration {
		return (d / time.Duration(c.turns)).Round(10 * time.Microsecond)
	}
	per := func(n, turns int64) float64 { return float64(n) / float64(turns) }
	figure("  processor time of a turn", "the replicas %s, the database %s; with one replica %s and %s: %.2f times in all", each(c, c.engines), each(c, c.database),
		each(&one, one.engines), each(&one, one.database), per(int64(c.engines+c.database), c.turns)/per(int64(one.engines+one.database), one.turns))
	figure("  statements of a turn", "%.1f, with one replica %.1f: %.2f times; leases %.2f taken and %.2f asked for in vain, with one %.2f and %.2f",
		per(c.statements, c.turns), per(one.statements, one.turns), per(c.statements, c.turns)/per(one.statements, one.turns),
		per(c.taken, c.turns), per(c.refused, c.turns), per(one.taken, one.turns), per(one.refused, one.turns))
}

// replicas are engines with one database.
type replicas struct {
	server  *pgtest.Server
	name    string // of the database
	latency time.Duration
	edit    func(*engine.Options)
	all     []*replica
	ended   sync.Map // of chan struct{}, by thread: a run of it has ended
	stop    func()
}

// replica is the store of one of them, which counts what it does.
type replica struct {
	store.Store
	of    *replicas
	user  string
	bench *engineBench

	turns, taken, refused atomic.Int64
}

// Acquire implements store.Store.
func (r *replica) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (*store.Fence, error) {
	f, err := r.Store.Acquire(ctx, id, owner, ttl)
	switch {
	case err == nil:
		r.taken.Add(1)
	case errors.Is(err, store.ErrLeaseHeld):
		r.refused.Add(1)
	}
	return f, err
}

// Apply implements store.Store. It tells when a run has ended, so that the bench need not ask the database.
func (r *replica) Apply(ctx context.Context, id string, f *store.Fence, ops ...store.Op) error {
	err := r.Store.Apply(ctx, id, f, ops...)
	for _, op := range ops {
		if run, ok := op.(*store.PutRun); ok && err == nil && run.Run.Status.Ended() {
			r.turns.Add(1)
			if ended, ok := r.of.ended.Load(id); ok {
				ended.(chan struct{}) <- struct{}{}
			}
		}
	}
	return err
}

// startReplicas runs n replicas with a new database. Their models answer after a time.
func startReplicas(ctx context.Context, server *pgtest.Server, n int, latency time.Duration, edit func(*engine.Options)) *replicas {
	GinkgoHelper()
	name, err := server.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	r := &replicas{server: server, name: name, latency: latency, edit: edit, stop: func() {}}
	r.add(ctx, n)
	return r
}

// add runs n more replicas.
func (r *replicas) add(ctx context.Context, n int) {
	GinkgoHelper()
	for range n {
		one := &replica{of: r, user: fmt.Sprintf("%s_replica%d", r.name, len(r.all))}
		r.exec(ctx, fmt.Sprintf("CREATE ROLE %s SUPERUSER LOGIN", one.user))
		u, err := url.Parse(r.server.URL(r.name))
		Expect(err).NotTo(HaveOccurred())
		u.User = url.User(one.user)
		one.Store, err = sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: u.String()})
		Expect(err).NotTo(HaveOccurred())
		w, err := enginetest.NewOn(one, GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		step := skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "ok"}
		if r.latency > 0 {
			step.Latency = &metav1.Duration{Duration: r.latency}
		}
		w.Definitions.Put("agent", enginetest.Script(step))
		var stop func()
		one.bench, stop = startEngine(ctx, w, func(o *engine.Options) {
			o.Owner = one.user
			r.edit(o)
		})
		others := r.stop
		r.stop = func() {
			others()
			stop()
		}
		r.all = append(r.all, one)
	}
}

// threads makes n threads that get their messages through the i-th replica.
func (r *replicas) threads(ctx context.Context, i, n int) []string {
	GinkgoHelper()
	ids := r.all[i].bench.threads(ctx, n)
	for _, id := range ids {
		r.ended.Store(id, make(chan struct{}, 1))
	}
	return ids
}

// used is what the replicas have cost within a time, by user and in all.
type used struct {
	users map[string]cost
	sum   cost
}

func (u used) of(some []*replica) (sum cost) {
	for _, r := range some {
		sum.add(u.users[r.user])
	}
	return sum
}

// work has the threads of each replica make one turn after the other, and returns what that costs within a time.
func (r *replicas) work(ctx context.Context, d time.Duration, threads [][]string) used {
	GinkgoHelper()
	running, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for i, ids := range threads {
		for _, id := range ids {
			all.Go(func() {
				defer GinkgoRecover()
				ended, _ := r.ended.Load(id)
				for running.Err() == nil {
					Expect(r.all[i].bench.world.Send(ctx, id, "hello")).To(Succeed())
					select {
					case <-ended.(chan struct{}):
					case <-ctx.Done():
						return
					}
				}
			})
		}
	}
	time.Sleep(3 * time.Second) // statements are prepared, and threads have come apart
	before, began := r.read(ctx), time.Now()
	time.Sleep(d)
	after, took := r.read(ctx), time.Since(began)
	stop()
	all.Wait()
	for user, c := range after.users {
		after.users[user] = c.minus(before.users[user])
	}
	after.sum = after.sum.minus(before.sum)
	after.sum.took = took
	return after
}

func (c cost) minus(o cost) cost {
	return cost{
		turns: c.turns - o.turns, engines: c.engines - o.engines, database: c.database - o.database, statements: c.statements - o.statements,
		taken: c.taken - o.taken, refused: c.refused - o.refused,
	}
}

// read reads what the replicas have cost until now.
func (r *replicas) read(ctx context.Context) used {
	GinkgoHelper()
	statements, database := r.statements(ctx), r.backends()
	u := used{users: map[string]cost{}}
	for _, one := range r.all {
		c := cost{turns: one.turns.Load(), taken: one.taken.Load(), refused: one.refused.Load(), statements: statements[one.user], database: database[one.user]}
		u.users[one.user] = c
		u.sum.add(c)
	}
	u.sum.engines = processors()
	u.sum.database += database[""]
	return u
}

// statements counts what each user has had the database do.
func (r *replicas) statements(ctx context.Context) map[string]int64 {
	GinkgoHelper()
	c, err := pgx.Connect(ctx, r.server.URL("postgres"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(c.Close(ctx)).To(Succeed()) }()
	_, err = c.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	Expect(err).NotTo(HaveOccurred())
	rows, err := c.Query(ctx, "SELECT r.rolname, sum(s.calls)::bigint FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid GROUP BY 1")
	Expect(err).NotTo(HaveOccurred())
	out := map[string]int64{}
	var user string
	var calls int64
	_, err = pgx.ForEachRow(rows, []any{&user, &calls}, func() error {
		out[user] = calls
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	return out
}

// backends returns for how long processors have worked for the connections of each user, as the titles of their processes say, and under ""
// for the server's other processes, such as those that write its log to disk.
func (r *replicas) backends() map[string]time.Duration {
	GinkgoHelper()
	out := map[string]time.Duration{}
	all := processes()
	for id, p := range all {
		if p.name != "postgres" || p.parent != os.Getpid() && all[p.parent].parent != os.Getpid() {
			continue
		}
		title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id))
		if err != nil {
			continue // it has ended
		}
		words := strings.Fields(strings.TrimRight(string(title), "\x00"))
		user := ""
		for _, one := range r.all {
			if len(words) > 1 && words[0] == "postgres:" && words[1] == one.user {
				user = one.user
			}
		}
		out[user] += p.used
	}
	return out
}

func (r *replicas) exec(ctx context.Context, query string) {
	GinkgoHelper()
	c, err := pgx.Connect(ctx, r.server.URL("postgres"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(c.Close(ctx)).To(Succeed()) }()
	_, err = c.Exec(ctx, query)
	Expect(err).NotTo(HaveOccurred())
}
