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
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
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
	long, err := time.ParseDuration(cmp.Or(os.Getenv(chaosEnv), "2m"))
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

// chaotic starts three replicas on PostgreSQL in place of the suite's manager, which reach it, the API server and their bucket through
// what fails. It returns them, the clients of each of them, and the folder for temporary files that they and their sandboxes alone have.
func chaotic(ctx context.Context, ns string, worst time.Duration) (c *chaos, clients []*runtimeclient.Client, temporary string) {
	GinkgoHelper()
	server, database, options := postgresFor(ctx, ns)
	c = &chaos{worst: worst, server: server, rows: server.URL(database), struck: map[string]int{}, lasted: map[string]time.Duration{}}
	var databaseURL, apiserverURL string
	c.database, databaseURL = link(ownClock(ctx, c.rows))
	c.apiserver, apiserverURL = link(cluster.Config.Host)
	dir := GinkgoT().TempDir()
	temporary, disk := filepath.Join(dir, "tmp"), filepath.Join(dir, "disk")
	Expect(os.Mkdir(temporary, 0o700)).To(Succeed())
	Expect(os.Mkdir(disk, 0o700)).To(Succeed())
	kubeconfig := kubeconfigFor(apiserverURL)
	var err error
	c.room, err = harness.NewRoom(disk, "128m")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(c.room.Close()).To(Succeed()) })
	token, err := cluster.Token(ctx, ns, "clients")
	Expect(err).NotTo(HaveOccurred())
	clients = append(clients, api())
	for range 3 {
		port, err := scratch.Port()
		Expect(err).NotTo(HaveOccurred())
		v := &victim{metrics: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
		o := options()
		o.Within = c.room.Within()
		o.Env = []string{"SKEIN_DATABASE_URL=" + databaseURL, "TMPDIR=" + temporary}
		o.Args = append(o.Args, "--kubeconfig="+kubeconfig, "--blob-url=file://"+filepath.Join(disk, "bucket"), "--metrics-bind-address="+v.metrics)
		v.Manager, err = cluster.NewManager(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(v.Stop)
		Expect(v.Start(ctx)).To(Succeed())
		direct, err := cluster.Direct(ctx, v.Manager, token)
		Expect(err).NotTo(HaveOccurred())
		clients = append(clients, direct)
		c.victims = append(c.victims, v)
	}
	served(ctx)
	return c, clients, temporary
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
		raging, calm := context.WithTimeout(ctx, long)
		defer calm()
		var keepers, faults, users sync.WaitGroup
		keeping, enough := context.WithCancel(ctx)
		defer enough()
		for _, v := range c.victims {
			keepers.Go(func() {
				defer GinkgoRecover()
				c.keep(keeping, v)
			})
		}
		for i, deck := range []struct {
			calm   time.Duration
			faults []fault
		}{
			{2 * time.Second, c.processes()},
			// What needs both PostgreSQL and the API server needs a time when both are there. Long outages without a pause between
			// them would leave none, and the work that waits would only prove how patient its client is.
			{2*time.Second + worst/5, c.networks(ctx)},
			{2 * time.Second, append(c.disks(), c.clocks(ctx)...)},
		} {
			faults.Go(func() {
				defer GinkgoRecover()
				defer calm() // nothing goes on when a fault has failed
				c.rage(raging, rand.New(rand.NewPCG(seed(), uint64(200+i))), deck.calm, deck.faults)
			})
		}
		for i := range max(12, threads/10) {
			users.Go(func() {
				defer GinkgoRecover()
				l.work(ctx, rand.New(rand.NewPCG(seed(), uint64(300+i))), func() bool { return raging.Err() == nil })
			})
		}
		faults.Wait()
		users.Wait()
		for _, v := range c.victims {
			Eventually(ctx, v.Ready).WithTimeout(l.patience).Should(BeTrue())
		}
		enough()
		keepers.Wait()
		summary := fmt.Sprintf("seed %d, %d threads, %s\nfaults:\n%soperations: %v\n", seed(), threads, time.Since(began).Round(time.Second), c, l.done)
		AddReportEntry("chaos", summary)
		GinkgoWriter.Println(summary)
		if CurrentSpecReport().Failed() {
			return
		}
		served(ctx)
		l.clients = clients[:1] // some of what is looked at takes rights for the whole cluster
		l.settle(ctx)
		l.report()
		Expect(cluster.Client.DeleteAllOf(ctx, &skeinv1.ScheduledEffect{}, client.InNamespace(ns))).To(Succeed())
		l.clear(ctx, func(ctx context.Context) []string { return rowsOfPostgres(ctx, c.rows) })
		c.leaks(ctx, l.patience, before, temporary)
	}, NodeTimeout(5*time.Hour))
})

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
	text := fmt.Sprintf("%d requests to tools, %d of them repeated under their keys; %d decisions; %d effects without a thread", requests, repeated, len(l.decided), len(l.alone))
	AddReportEntry("tools", text)
	GinkgoWriter.Println("chaos: " + text)
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
	AddReportEntry("goroutines and descriptors, before and after", fmt.Sprintf("%+v, %+v", before, after))
	GinkgoWriter.Printf("chaos: open before: %+v, after: %+v\n", before, after)
}
