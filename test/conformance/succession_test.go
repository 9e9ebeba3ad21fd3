package conformance

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// leaderLease returns the lease of the leader.
func leaderLease(ctx context.Context) *coordinationv1.Lease {
	GinkgoHelper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: harness.SystemNamespace, Name: "manager.skein.dev"}}
	Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(l), l)).To(Succeed())
	return l
}

// killForLong kills a manager that leads. Its lease does not expire while the spec runs.
func killForLong(ctx context.Context, m *harness.Manager) *coordinationv1.Lease {
	GinkgoHelper()
	m.Kill()
	l := leaderLease(ctx)
	Expect(l.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())), "nobody gave the lease back")
	Expect(cluster.Client.Patch(ctx, l, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":3600}}`)))).To(Succeed())
	return l
}

var _ = Describe("A manager on SQLite that is killed", Serial, outages, Label("K8S-05"), func() {
	It("is followed at once by the next one on its data folder", func(ctx SpecContext) {
		ns := namespace(ctx)
		m := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{"--namespaces=" + ns, "--leader-elect"}})
		for range 3 {
			before := killForLong(ctx, m)
			starting, cancel := context.WithTimeout(ctx, patience)
			Expect(m.Start(starting)).To(Succeed(), "it is ready only when it leads")
			cancel()
			after := leaderLease(ctx)
			Expect(after.Spec.HolderIdentity).NotTo(HaveValue(Equal(*before.Spec.HolderIdentity)))
			Expect(after.Spec.LeaseTransitions).To(HaveValue(Equal(*before.Spec.LeaseTransitions + 1)))
		}
		served(ctx)
	}, NodeTimeout(6*patience))

	It("is not followed by one on a copy of its folder before its lease expires", func(ctx SpecContext) {
		ns := namespace(ctx)
		dir := GinkgoT().TempDir()
		args := []string{"--namespaces=" + ns, "--leader-elect"}
		m := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(dir, "data"), Args: args})
		before := killForLong(ctx, m)
		Expect(exec.CommandContext(ctx, "cp", "-a", filepath.Join(dir, "data"), filepath.Join(dir, "copy")).Run()).To(Succeed())
		log := &lines{}
		other, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "copy"), Log: log, Args: args})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(other.Stop)
		starting, cancel := context.WithCancel(ctx)
		DeferCleanup(cancel)
		started := make(chan error, 1)
		go func() { started <- other.Start(starting) }()
		// It has stood for election for a while.
		Eventually(ctx, log.String).WithTimeout(2 * patience).Should(ContainSubstring("This replica does not become ready"))
		Expect(leaderLease(ctx).Spec.HolderIdentity).To(HaveValue(Equal(*before.Spec.HolderIdentity)))

		By("starting the next one on its own folder")
		Expect(m.Start(ctx)).To(Succeed())
		after := leaderLease(ctx)
		Expect(after.Spec.LeaseTransitions).To(HaveValue(Equal(*before.Spec.LeaseTransitions+1)), "nobody was in between")
		Expect(other.Ready(ctx)).To(BeFalse())
		cancel()
		Expect(<-started).To(MatchError(ContainSubstring("not ready")))
	}, NodeTimeout(6*patience))
})

var _ = Describe("A leader that loses its lease", Serial, outages, Label("K8S-05"), func() {
	It("stops its controllers, keeps its runs, and leads again when it can", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := onPostgres(ctx, ns, 1)
		h := newHanging()
		hanging(ctx, ns, h, "thread")
		t := rs[0].api.Thread(ns, "thread")
		_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "hello"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, h.asked.Load).Should(Equal(int64(1)))

		By("giving the lease to another holder")
		was := *leaderLease(ctx).Spec.HolderIdentity
		assign := func(holder string) {
			GinkgoHelper()
			patch := fmt.Sprintf(`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":3600,"renewTime":%q}}`, holder, time.Now().UTC().Format(metav1.RFC3339Micro))
			Expect(cluster.Client.Patch(ctx, leaderLease(ctx), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		assign("another")
		Eventually(ctx, func(g Gomega) {
			var events corev1.EventList
			g.Expect(cluster.Client.List(ctx, &events, client.InNamespace(harness.SystemNamespace))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(HaveField("Message", was+" stopped leading")))
		}).Should(Succeed())
		create(ctx, harness.NewThread(ns, "later", "agent"))

		By("answering")
		close(h.speak)
		Eventually(ctx, func(g Gomega) { g.Expect(newestBy(ctx, g, t).Status).To(Equal("succeeded")) }).Should(Succeed())
		Expect(h.asked.Load()).To(Equal(int64(1)), "the run went on, and nothing was asked again")
		_, err = rs[0].api.Thread(ns, "later").Get(ctx)
		Expect(err).To(HaveOccurred(), "no controller has made it")

		By("giving the lease back")
		assign("")
		ready(ctx, cluster.Thread(ns, "later"))
		Expect(leaderLease(ctx).Spec.HolderIdentity).To(HaveValue(Equal(was)), "it is the same process")
	}, NodeTimeout(6*patience))
})
