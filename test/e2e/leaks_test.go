package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// noLeaks counts the sandbox pods of a namespace by label and owner. Each belongs to an existing thread, which has one
// at most, or waits in a pool that asks for it. Pods go with what they belong to.
func noLeaks(ctx context.Context, ns string) {
	GinkgoHelper()
	By("looking for pods without a user")
	in := client.InNamespace(ns)
	Eventually(ctx, func(g Gomega) {
		var threads skeinv1.ThreadList
		g.Expect(cluster.Client.List(ctx, &threads, in)).To(Succeed())
		alive := map[types.UID]bool{}
		for _, t := range threads.Items {
			alive[t.UID] = true
		}
		var pools skeinv1.SandboxPoolList
		g.Expect(cluster.Client.List(ctx, &pools, in)).To(Succeed())
		wanted := 0
		for _, p := range pools.Items {
			wanted += int(p.Status.DesiredWarm)
		}
		warm, has := 0, map[types.UID]string{}
		for _, p := range everySandbox(ctx, g, ns) {
			g.Expect(sandboxpod.IsOver(&p)).To(BeFalse(), "%s has ended and is there still", p.Name)
			owner := metav1.GetControllerOf(&p)
			g.Expect(owner).NotTo(BeNil(), p.Name)
			if p.Labels[skeinv1.LabelSandboxState] == sandboxpod.Warm {
				g.Expect(owner.Kind).To(Equal("SandboxPool"))
				warm++
				continue
			}
			g.Expect(owner.Kind).To(Equal("Thread"))
			g.Expect(alive).To(HaveKey(owner.UID), "%s belongs to a thread that is gone", p.Name)
			g.Expect(has).NotTo(HaveKey(owner.UID), "%s is its thread's second", p.Name)
			has[owner.UID] = p.Name
		}
		g.Expect(warm).To(BeNumerically("<=", wanted))
	}).WithTimeout(2 * patience).Should(Succeed())

	By("deleting what they belong to")
	Expect(cluster.Client.DeleteAllOf(ctx, &skeinv1.Thread{}, in)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		for _, p := range everySandbox(ctx, g, ns) {
			g.Expect(p.Labels).To(HaveKeyWithValue(skeinv1.LabelSandboxState, sandboxpod.Warm), p.Name)
		}
	}).Should(Succeed())
	Expect(cluster.Client.DeleteAllOf(ctx, &skeinv1.SandboxPool{}, in)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(everySandbox(ctx, g, ns)).To(BeEmpty())
		for _, l := range []client.ObjectList{&corev1.SecretList{}, &networkingv1.NetworkPolicyList{}} {
			g.Expect(cluster.Client.List(ctx, l, in, client.HasLabels{skeinv1.LabelPool})).To(Succeed())
			g.Expect(l).To(HaveField("Items", BeEmpty()))
		}
	}).Should(Succeed())
}

// everySandbox lists the sandbox pods of a namespace in every phase.
func everySandbox(ctx context.Context, g Gomega, ns string) []corev1.Pod {
	var l corev1.PodList
	g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns), client.HasLabels{skeinv1.LabelPool})).To(Succeed())
	return l.Items
}
