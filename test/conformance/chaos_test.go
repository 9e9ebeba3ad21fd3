package conformance

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
	"github.com/skein-dev/skein/test/harness"
)

// What `make chaos` asks for. Without it there is less chaos, for an ordinary run.
const (
	chaosEnv        = "SKEIN_CHAOS"         // how long faults strike, such as 1h
	chaosThreadsEnv = "SKEIN_CHAOS_THREADS" // on how many threads
	seedEnv         = "SKEIN_SEED"          // which faults strike, and what clients do; of `make trees` too
)

// chaosLong returns how long faults strike, and how long one outage takes at most.
func chaosLong() (long, worst time.Duration) {
	GinkgoHelper()
	text := os.Getenv(chaosEnv)
	if text == "" {
		return 5 * time.Minute, 20 * time.Second
	}
	long, err := time.ParseDuration(text)
	Expect(err).NotTo(HaveOccurred(), "%s: write a time such as 1h or 5m", chaosEnv)
	return long, min(10*time.Minute, long/6)
}

func chaosThreads() int {
	GinkgoHelper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(chaosThreadsEnv), "60"))
	Expect(err).NotTo(HaveOccurred(), "%s: write a number", chaosThreadsEnv)
	Expect(n).To(And(BeNumerically(">=", 10), BeNumerically("<=", 800)), "%s: write a number from 10 to 800", chaosThreadsEnv)
	return n
}

// link puts a proxy before the server at a URL, and returns it with the URL that goes through it.
func link(of string) (*harness.Link, string) {
	GinkgoHelper()
	u, err := url.Parse(of)
	Expect(err).NotTo(HaveOccurred())
	k, err := harness.NewLink(u.Host)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(k.Close()).To(Succeed()) })
	u.Host = k.Address()
	return k, u.String()
}

// room makes a folder on a small disk of its own, which the spec can fill.
func room(dir, size string) *harness.Room {
	GinkgoHelper()
	Expect(os.Mkdir(dir, 0o700)).To(Succeed())
	r, err := harness.NewRoom(dir, size)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(r.Close()).To(Succeed()) })
	return r
}

// chaotic starts three replicas on PostgreSQL in place of the suite's manager, which reach it, the API server and their bucket through
// what fails. It returns them, the clients of each of them, and the folder for temporary files that they and their sandboxes alone have.
func chaotic(ctx context.Context, ns string, worst time.Duration) (c *chaos, clients []*runtimeclient.Client, temporary string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	disk := room(filepath.Join(dir, "postgres"), "8g") // of which only what is used takes memory
	server, database, options := postgresFor(ctx, ns, func(o *pgtest.Options) {
		o.Dir, o.Settings = disk.Path(), []string{"max_wal_size=128MB"}
	})
	c = &chaos{
		log: GinkgoWriter, worst: worst, seed: seed(), server: server, disk: disk, rows: server.URL(database),
		struck: map[string]int{endedByItself: 0}, lasted: map[string]time.Duration{},
	}
	var databaseURL, apiserverURL string
	c.database, databaseURL = link(ownClock(ctx, c.rows))
	c.apiserver, apiserverURL = link(cluster.Config.Host)
	temporary = filepath.Join(dir, "tmp")
	Expect(os.Mkdir(temporary, 0o700)).To(Succeed())
	bucket := filepath.Join(dir, "disk", "bucket")
	c.room = room(filepath.Dir(bucket), "128m")
	kubeconfig := kubeconfigFor(apiserverURL)
	token, err := cluster.Token(ctx, ns, "clients")
	Expect(err).NotTo(HaveOccurred())
	clients = append(clients, api())
	for i := range 3 {
		v := &victim{metrics: freeAddress(), pprof: freeAddress(), clock: filepath.Join(dir, fmt.Sprint("clock-", i))}
		Expect(v.moves(0)).To(Succeed())
		o := options()
		o.Within = c.room.Within()
		o.Env = []string{"SKEIN_DATABASE_URL=" + databaseURL, "TMPDIR=" + temporary, "SKEIN_TEST_CLOCK=" + v.clock}
		o.Args = append(o.Args, "--kubeconfig="+kubeconfig, "--blob-url=file://"+bucket, "--metrics-bind-address="+v.metrics, "--pprof-bind-address="+v.pprof)
		v.Manager, err = cluster.NewManager(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(v.Stop)
		Expect(v.Start(ctx)).To(Succeed())
		direct, err := cluster.Direct(ctx, v.Manager, token)
		Expect(err).NotTo(HaveOccurred())
		clients = append(clients, direct)
		c.victims = append(c.victims, v)
	}
	DeferCleanup(func(ctx SpecContext) {
		for i, v := range c.victims {
			if !CurrentSpecReport().Failed() {
				return
			}
			stacks, err := harness.Waiting(ctx, v.pprof)
			GinkgoWriter.Printf("chaos: goroutines of replica %d that have waited for minutes: %v\n%s\n", i, err, stacks)
		}
	}, NodeTimeout(time.Minute))
	served(ctx)
	return c, clients, temporary
}

// freeAddress returns an address of the loopback interface whose port is free.
func freeAddress() string {
	GinkgoHelper()
	port, err := scratch.Port()
	Expect(err).NotTo(HaveOccurred())
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// usage is what a replica has open.
type usage struct{ goroutines, descriptors int }

func (c *chaos) usage(ctx context.Context) (most usage, err error) {
	for _, v := range c.victims {
		goroutines, err := v.Metric(ctx, v.metrics, "go_goroutines")
		if err != nil {
			return most, err
		}
		descriptors, err := v.Descriptors()
		if err != nil {
			return most, err
		}
		most = usage{max(most.goroutines, int(goroutines)), max(most.descriptors, descriptors)}
	}
	return most, nil
}

// plantAll makes threads, many at once.
func (l *load) plantAll(ctx context.Context, n int) {
	GinkgoHelper()
	var planters sync.WaitGroup
	for range 10 {
		planters.Go(func() {
			defer GinkgoRecover()
			for range n / 10 {
				l.plant(ctx)
			}
		})
	}
	planters.Wait()
}

// decks are all faults, in decks that strike at the same time.
func (c *chaos) decks(ctx context.Context) []deck {
	decks := []deck{
		{2 * time.Second, c.processes()},
		// What needs both PostgreSQL and the API server needs a time when both are there. Long outages without a pause between
		// them would leave none, and the work that waits would only prove how patient its client is.
		{2*time.Second + c.worst/5, c.networks(ctx)},
		{2 * time.Second, append(c.disks(), c.clocks(ctx)...)},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range decks {
		for _, f := range d.faults {
			c.struck[f.name] += 0 // the report names those that do not strike, too
		}
	}
	return decks
}

// upset lets faults strike for so long, and until each has struck, while clients work and replicas that end are started again. It ends
// early when one of them has failed.
func (c *chaos) upset(ctx context.Context, long time.Duration, l *load, clients int) {
	GinkgoHelper()
	striking, failed := context.WithCancel(ctx)
	defer failed()
	raging, calm := context.WithTimeout(striking, long)
	defer calm()
	begin := func(group *sync.WaitGroup, do func()) {
		group.Go(func() {
			done := false
			defer func() {
				if !done {
					failed()
				}
			}()
			defer GinkgoRecover()
			do()
			done = true
		})
	}
	keeping, enough := context.WithCancel(ctx)
	defer enough()
	var keepers, faults, users sync.WaitGroup
	for _, v := range c.victims {
		begin(&keepers, func() { c.keep(keeping, v) })
	}
	for i, d := range c.decks(ctx) {
		begin(&faults, func() { c.rage(striking, raging, uint64(i), d) })
	}
	working, rest := context.WithCancel(striking)
	defer rest()
	for i := range clients {
		begin(&users, func() {
			l.work(ctx, rand.New(rand.NewPCG(c.seed, uint64(400+i))), func() bool { return working.Err() == nil })
		})
	}
	faults.Wait()
	rest()
	users.Wait()
	for _, v := range c.victims {
		Eventually(ctx, v.Ready).WithTimeout(l.patience).Should(BeTrue())
	}
	enough()
	keepers.Wait()
	Expect(striking.Err()).NotTo(HaveOccurred(), "a fault or a client failed")
}

var _ = Describe("Chaos", Serial, outages, Label("chaos", "K8S-05", "RUN-02", "EFF-04", "MSG-11", "RUN-11", "FIL-01", "KVS-01"), func() {
	It("on three replicas loses nothing that was acknowledged, doubles nothing, and leaves nothing over", func(ctx SpecContext) {
		long, worst := chaosLong()
		threads := chaosThreads()
		ns := namespace(ctx)
		GinkgoWriter.Printf("chaos: seed %d, namespace %s, %d threads, for %s\n", seed(), ns, threads, long)
		c, clients, temporary := chaotic(ctx, ns, worst)
		before, err := c.usage(ctx)
		Expect(err).NotTo(HaveOccurred())
		l := loads(ctx, ns, threads)
		l.clients = clients
		l.patience = 5*patience + 3*worst
		l.plantAll(ctx, threads*3/4)
		began := time.Now()
		DeferCleanup(func() {
			entry("chaos", "seed %d, %d threads, %s\nfaults:\n%soperations: %v", seed(), threads, time.Since(began).Round(time.Second), c, l.done)
			l.report()
		})

		c.upset(ctx, long, l, max(12, threads/10))
		Expect(c.unstruck()).To(BeEmpty(), "faults that did not strike")
		served(ctx)
		l.clients = clients[:1] // some of what is looked at takes rights for the whole cluster
		l.cutOff(ctx)
		l.settle(ctx)
		l.rung(ctx)
		Expect(cluster.Client.DeleteAllOf(ctx, &skeinv1.ScheduledEffect{}, client.InNamespace(ns))).To(Succeed())
		otherLeads(ctx) // the next leader soon sweeps what a fault has left
		l.clear(ctx, func(ctx context.Context) []string { return rowsOfPostgres(ctx, c.rows) })
		c.leaks(ctx, l.patience, before, temporary)
	}, NodeTimeout(5*time.Hour))
})

// entry writes an entry of the report, and into the output as well.
func entry(name, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	AddReportEntry(name, text)
	GinkgoWriter.Printf("chaos: %s\n", text)
}

// report says how many requests the tools got.
func (l *load) report() {
	requests, repeated := 0, 0
	l.locked(func() {
		for _, keys := range l.arrived {
			for _, n := range keys {
				requests, repeated = requests+n, repeated+n-1
			}
		}
	})
	entry("tools", "%d requests to tools, %d of them repeated under their keys; %d decisions; %d effects without a thread; %d firings of a schedule",
		requests, repeated, len(l.decided), len(l.alone), l.fires)
}

// slack is how many goroutines and descriptors a replica may have more than before: connections to the database and the API server
// are kept for a while.
const slack = 100

// leaks waits until the replicas have no more open than before, and stops them. It expects that no process of theirs, or of those that
// were killed, is left.
func (c *chaos) leaks(ctx context.Context, patience time.Duration, before usage, temporary string) {
	GinkgoHelper()
	var after usage
	Eventually(ctx, func(g Gomega) {
		var err error
		after, err = c.usage(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after.goroutines).To(BeNumerically("<=", before.goroutines+slack), "goroutines: %+v", before)
		g.Expect(after.descriptors).To(BeNumerically("<=", before.descriptors+slack), "descriptors: %+v", before)
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	for _, v := range c.victims {
		v.Stop()
	}
	// Sandboxes of replicas that live end when they have been idle for minutes, and with their replicas. None outlives those.
	Eventually(ctx, func() ([]string, error) { return harness.Inheritors("TMPDIR=" + temporary) }).WithTimeout(patience).Should(BeEmpty(), "processes are left")
	emptyBucket(ctx, filepath.Join(c.room.Path(), "bucket"), func(clock *testingclock.FakeClock) store.Store {
		st, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: c.rows, Clock: clock})
		Expect(err).NotTo(HaveOccurred())
		return st
	})
	entry("goroutines and descriptors", "before: %+v, after: %+v", before, after)
}
