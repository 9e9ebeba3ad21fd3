package conformance

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/test/harness"
)

// stormy is a manager that is killed again and again.
type stormy struct {
	*harness.Manager
	leads atomic.Bool // as far as its log says
	pid   atomic.Int64
	kills *atomic.Int64
}

// Write implements io.Writer. It reads the log of the manager.
func (m *stormy) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("uccessfully acquired lease")) {
		m.leads.Store(true)
	}
	return logFile.Write(p)
}

// live starts the manager and kills it when it has lived for so long, be it ready by then or not.
func (m *stormy) live(ctx context.Context, long time.Duration) {
	enough := time.After(long)
	starting, cancel := context.WithTimeout(ctx, long)
	_ = m.Start(starting) // it may be killed before it is ready
	cancel()
	m.pid.Store(int64(m.PID()))
	select {
	case <-enough:
	case <-ctx.Done():
	}
	m.pid.Store(0)
	if m.Running() {
		m.kills.Add(1)
	}
	m.Kill()
	m.leads.Store(false)
}

// life returns a random time: some managers are killed while they start, and most while they work.
func life(rng *rand.Rand, longest time.Duration) time.Duration {
	if rng.IntN(10) < 3 {
		return 100*time.Millisecond + rand.N(2*time.Second)
	}
	return 1500*time.Millisecond + time.Duration(rng.Int64N(int64(longest)))
}

// vacate makes the leader's lease free for another replica at once. A leader that lives believes for a while that it still leads.
func vacate(ctx context.Context) {
	GinkgoHelper()
	l := leaderLease(ctx)
	Expect(client.IgnoreNotFound(cluster.Client.Patch(ctx, l, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`))))).To(Succeed())
}

// otherLeads takes the lease from the leader until another replica has it. The leader itself may acquire it again.
func otherLeads(ctx context.Context) {
	GinkgoHelper()
	holder := func() string { return ptr.Deref(leaderLease(ctx).Spec.HolderIdentity, "") }
	led := holder()
	Eventually(ctx, func(g Gomega) {
		vacate(ctx)
		g.Eventually(ctx, holder).Should(Not(BeEmpty()))
		g.Expect(holder()).NotTo(Equal(led))
	}).WithTimeout(5 * patience).Should(Succeed())
}

// terminate terminates a thread while managers come and go.
func terminate(ctx context.Context, t *harness.Thread) bool {
	GinkgoHelper()
	Eventually(ctx, func() error { return t.Terminate(ctx) }).WithTimeout(2 * patience).Should(Succeed())
	return true
}

var _ = Describe("A storm", Serial, outages, Label("EFF-04", "EFF-06"), func() {
	It("of kills, changes of the leader and cuts of the database, on three replicas with PostgreSQL: each due time fires once", Label("K8S-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		kills := stormKills(30)
		server, database, options := postgresFor(ctx, ns)
		var killed atomic.Int64
		var all []*stormy
		for range 3 {
			m := &stormy{kills: &killed}
			o := options()
			o.Log = m
			var err error
			m.Manager, err = cluster.NewManager(o)
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Start(ctx)).To(Succeed())
			DeferCleanup(m.Stop)
			all = append(all, m)
		}
		served(ctx)
		s := storms(ctx, ns, time.Duration(kills)*1400*time.Millisecond)

		began := time.Now()
		raging, calm := context.WithCancel(ctx)
		defer calm()
		var wg sync.WaitGroup
		for i, m := range all {
			m.Kill()
			wg.Go(func() {
				defer GinkgoRecover()
				rng := rand.New(rand.NewPCG(seed(), uint64(i)))
				for raging.Err() == nil {
					m.live(raging, life(rng, 6*time.Second))
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed(), 12))
		cuts, crashes, changes, pauses := 0, 0, 0, 0
		terminated := false
		for n := 0; int(killed.Load()) < kills || !terminated; n++ {
			<-time.After(500*time.Millisecond + time.Duration(rng.IntN(1000))*time.Millisecond) // the random point, not a wait for anything
			switch what := rng.IntN(10); {
			case !terminated && int(killed.Load()) >= kills/2:
				terminated = terminate(ctx, s.doomed)
			case what < 5:
				vacate(ctx)
				changes++
			case what < 7:
				Expect(server.Disconnect(ctx, database)).To(Succeed())
				cuts++
			case what < 8:
				Expect(server.Down()).To(Succeed())
				Expect(server.Up(ctx)).To(Succeed())
				crashes++
			default:
				if pause(ctx, all) {
					pauses++
				}
			}
		}
		calm()
		wg.Wait()
		for _, m := range all {
			Expect(m.Start(ctx)).To(Succeed())
		}
		served(ctx)
		report(began, &killed)
		AddReportEntry("leases taken away", changes)
		AddReportEntry("leaders that stood still while another took over", pauses)
		AddReportEntry("cuts of all connections", cuts)
		AddReportEntry("crashes of the database", crashes)
		GinkgoWriter.Printf("storm: %d leases taken away, %d leaders paused, %d cuts, %d crashes of the database\n", changes, pauses, cuts, crashes)
		s.check(ctx)
	}, NodeTimeout(20*time.Minute))

	It("of kills and of a full disk on SQLite: each due time fires once", func(ctx SpecContext) {
		ns := namespace(ctx)
		kills := stormKills(30)
		dir := filepath.Join(GinkgoT().TempDir(), "data")
		Expect(os.Mkdir(dir, 0o700)).To(Succeed())
		room, err := harness.NewRoom(dir, "96m")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(room.Close()).To(Succeed()) })
		m := &stormy{kills: &atomic.Int64{}}
		m.Manager = instead(ctx, harness.ManagerOptions{
			Dir: dir, Within: room.Within(), Args: []string{"--namespaces=" + ns, "--leader-elect", "--tool-private-hosts=127.0.0.1"},
		})
		s := storms(ctx, ns, time.Duration(kills)*2*time.Second)
		rng := rand.New(rand.NewPCG(seed(), 12))
		began := time.Now()
		terminated := false
		m.Kill()
		disk := &fullDisk{path: room.Path()}
		raging, calm := context.WithCancel(ctx)
		defer calm()
		var wg sync.WaitGroup
		wg.Go(func() {
			defer GinkgoRecover()
			disk.rage(raging, rand.New(rand.NewPCG(seed(), 13)))
		})
		for int(m.kills.Load()) < kills {
			m.live(ctx, life(rng, 2*time.Second))
			if !terminated && int(m.kills.Load()) >= kills/2 {
				disk.Lock()
				Expect(m.Start(ctx)).To(Succeed())
				terminated = terminate(ctx, s.doomed)
				m.Kill()
				disk.Unlock()
				m.kills.Add(1)
			}
		}
		calm()
		wg.Wait()
		Expect(m.Start(ctx)).To(Succeed())
		served(ctx)
		report(began, m.kills)
		AddReportEntry("times that the disk was full", disk.times)
		GinkgoWriter.Printf("storm: the disk was full %d times\n", disk.times)
		s.check(ctx)
	}, NodeTimeout(20*time.Minute))
})

// fullDisk is a disk that is full now and then. Its lock keeps it from being so.
type fullDisk struct {
	sync.Mutex
	path  string
	times int
}

// rage fills the disk again and again until ctx ends, and makes room each time.
func (d *fullDisk) rage(ctx context.Context, rng *rand.Rand) {
	GinkgoHelper()
	for {
		lasts(ctx, time.Second+time.Duration(rng.IntN(3000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		d.full(ctx, 300*time.Millisecond+time.Duration(rng.IntN(1500))*time.Millisecond)
	}
}

// full fills the disk for a while.
func (d *fullDisk) full(ctx context.Context, long time.Duration) {
	GinkgoHelper()
	d.Lock()
	defer d.Unlock()
	filler := fill(d.path)
	lasts(ctx, long)
	Expect(os.Remove(filler)).To(Succeed())
	d.times++
}

func report(began time.Time, kills *atomic.Int64) {
	AddReportEntry("kills", kills.Load())
	AddReportEntry("the storm took", time.Since(began).String())
	GinkgoWriter.Printf("storm: %d kills in %s\n", kills.Load(), time.Since(began))
}

// pause stops the leader, has another take over, and lets it go on. It reports false when no leader was there.
func pause(ctx context.Context, all []*stormy) bool {
	GinkgoHelper()
	for _, m := range all {
		pid := int(m.pid.Load())
		if pid == 0 || !m.leads.Load() || syscall.Kill(pid, syscall.SIGSTOP) != nil {
			continue
		}
		vacate(ctx)
		var taken bool
		for range 30 { // the others may all be dead
			if h := leaderLease(ctx).Spec.HolderIdentity; h != nil && *h != "" {
				taken = true
				break
			}
			<-time.After(100 * time.Millisecond)
		}
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
		return taken
	}
	return false
}
