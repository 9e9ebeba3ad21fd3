package conformance

import (
	"context"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

var _ = Describe("A manager on SQLite that is killed", Serial, Label("K8S-05"), func() {
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

	It("is not followed by one on another folder, be it a copy, before its lease expires", func(ctx SpecContext) {
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
