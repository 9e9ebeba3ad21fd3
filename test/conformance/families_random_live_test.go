package conformance

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Families under random operations", Serial, outages, Label("trees", "SUB-08", "REL-01", "THR-09", "MSG-11"), func() {
	// live grows trees, which have ordinary threads in an ordinary run. Then it has clients work, with so many disturbances evenly among their
	// operations, and checks the families that are left. The managers have a folder for temporary files of their own, which identifies the
	// processes of their sandboxes.
	live := func(ctx SpecContext, ns, temporary, ordinary string, disturbances int64, disturb func(context.Context, *rand.Rand), rows func(context.Context) []string) {
		GinkgoHelper()
		GinkgoWriter.Printf("trees: seed %d, namespace %s\n", seed(), ns)
		most, steps := treeSize(ordinary)
		w := grow(ctx, ns, most, growth{})
		w.patience += time.Duration(most) * time.Second / 2 // to look at each of them takes some time
		grown := time.Now()
		w.spread(ctx)
		if CurrentSpecReport().Failed() {
			return
		}
		GinkgoWriter.Printf("trees: grown to %d threads in %s: %v\n", w.peak.Load(), time.Since(grown), w.done)
		var one sync.Mutex
		var step, disturbed atomic.Int64
		chance := rand.New(rand.NewPCG(seed(), 200))
		began := time.Now()
		w.together(ctx, 0, func() bool {
			n := step.Add(1)
			if n > int64(steps) {
				return false
			}
			if !one.TryLock() {
				return true // the others go on meanwhile
			}
			defer one.Unlock()
			if n*(disturbances+1)/int64(steps) > disturbed.Load() && disturbed.Load() < disturbances {
				disturbed.Add(1)
				disturb(ctx, chance)
			}
			return true
		})
		if CurrentSpecReport().Failed() {
			return
		}
		Expect(disturbed.Load()).To(BeNumerically(">", 0), "no disturbance struck")
		w.part(ctx)
		AddReportEntry("disturbances", disturbed.Load())
		AddReportEntry("threads at once", w.peak.Load())
		GinkgoWriter.Printf("trees: %d operations with %d disturbances in %s: %v\n", steps, disturbed.Load(), time.Since(began), w.done)
		w.settle(ctx)
		w.compute(ctx)
		Expect(sandboxes(temporary)).NotTo(BeEmpty(), "that of the thread which has run code just now, among others")
		w.clear(ctx, rows)
		Eventually(ctx, remains).WithArguments(ns).WithTimeout(patience).Should(BeEmpty())
		GinkgoWriter.Printf("trees: settled after %s\n", time.Since(began))
	}

	It("while the manager is killed and its database cut off, on SQLite, end as they were asked to, and leave nothing over", func(ctx SpecContext) {
		ns := namespace(ctx)
		temporary := GinkgoT().TempDir()
		m := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{"--namespaces=" + ns}, Env: []string{"TMPDIR=" + temporary}})
		cut := false
		live(ctx, ns, temporary, "60", 6, func(ctx context.Context, _ *rand.Rand) {
			if cut = !cut; cut {
				cutSQLite(ctx, m)
				return
			}
			m.Kill()
			Expect(m.Start(ctx)).To(Succeed())
		}, func(ctx context.Context) []string {
			return append(rowsOfSQLite(ctx, filepath.Join(m.Dir, "skein.db")), sandboxes(temporary)...)
		})
		m.Stop()
		emptyBucket(ctx, filepath.Join(m.Dir, "blobs"), func(clock *testingclock.FakeClock) store.Store {
			st, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: m.Dir, Clock: clock})
			Expect(err).NotTo(HaveOccurred())
			return st
		})
	}, NodeTimeout(treesTimeout()))

	It("while two replicas are killed and PostgreSQL is cut off, end as they were asked to, and leave nothing over", Label("K8S-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server, database, options := postgresFor(ctx, ns)
		bucket, temporary := "", GinkgoT().TempDir()
		var all []*harness.Manager
		for range 2 {
			o := options()
			o.Env = append(o.Env, "TMPDIR="+temporary)
			for _, arg := range o.Args { // the replicas share one
				if url, ok := strings.CutPrefix(arg, "--blob-url=file://"); ok {
					bucket = url
				}
			}
			m, err := cluster.NewManager(o)
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Start(ctx)).To(Succeed())
			DeferCleanup(m.Stop)
			all = append(all, m)
		}
		served(ctx)
		live(ctx, ns, temporary, "200", 8, func(ctx context.Context, rng *rand.Rand) {
			switch rng.IntN(4) {
			case 0:
				Expect(server.Disconnect(ctx, database)).To(Succeed())
			case 1:
				Expect(server.Down()).To(Succeed())
				Expect(server.Up(ctx)).To(Succeed())
			default:
				m := all[rng.IntN(len(all))]
				m.Kill()
				vacate(ctx) // so that the other one need not wait until the lease has run out
				Expect(m.Start(ctx)).To(Succeed())
			}
		}, func(ctx context.Context) []string { return rowsOfPostgres(ctx, server.URL(database)) })
		for _, m := range all {
			m.Stop()
		}
		// A replica that did not delete the thread of a sandbox ends it when it has been idle for minutes, or with itself.
		Eventually(ctx, func() []string { return sandboxes(temporary) }).WithTimeout(patience).Should(BeEmpty())
		emptyBucket(ctx, bucket, func(clock *testingclock.FakeClock) store.Store {
			st, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: server.URL(database), Clock: clock})
			Expect(err).NotTo(HaveOccurred())
			return st
		})
	}, NodeTimeout(treesTimeout()))
})
