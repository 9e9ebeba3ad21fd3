package conformance

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// part ends families whose members all live, in each way once. By chance alone, a short run may end none of them.
func (w *trees) part(ctx context.Context) {
	GinkgoHelper()
	parent, _ := w.couple(ctx)
	w.end(ctx, parent)
	for _, o := range []client.Object{&skeinv1.Subagent{}, &skeinv1.Thread{}} { // the parent stays
		_, child := w.couple(ctx)
		o.SetNamespace(w.ns)
		o.SetName(child.name)
		w.locked(func() { child.deleted = true })
		w.until(ctx, "delete a child", func(ctx context.Context) error { return cluster.Client.Delete(ctx, o) })
	}
	parent, child := w.couple(ctx)
	w.until(ctx, "mention", func(ctx context.Context) error {
		_, err := w.client().Thread(w.ns, child.id).Relate(ctx, runtimev1.Relationship{ThreadID: w.root(ctx).id, Type: "mention", Role: "parent"})
		return err
	})
	w.locked(func() { parent.deleted = true })
	w.until(ctx, "delete", func(ctx context.Context) error {
		return cluster.Client.Delete(ctx, harness.NewThread(w.ns, parent.name, ""))
	})
}

// compute has a thread run code.
func (w *trees) compute(ctx context.Context) {
	GinkgoHelper()
	t := w.root(ctx)
	w.queue(ctx, "compute", t, "code "+w.text())
	Eventually(ctx, func(g Gomega) {
		ms, err := w.client().Thread(w.ns, t.id).Messages(ctx, runtimeclient.MessageOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(texts(ms.Messages)).To(ContainElement("tool: computed 42"))
	}).WithTimeout(w.patience).Should(Succeed())
}

// couple makes a thread and a child of it, which has answered.
func (w *trees) couple(ctx context.Context) (parent, child *tree) {
	GinkgoHelper()
	parent = w.root(ctx)
	name := "child-" + w.text()
	create(ctx, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: skeinv1.SubagentSpec{
		ParentRef: skeinv1.LocalRef{Name: parent.name}, AgentRef: skeinv1.LocalRef{Name: "agent"}, Name: "stays", Message: "work", Resumable: true}})
	var o skeinv1.Thread
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, &o)).To(Succeed())
		g.Expect(o.Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunSucceeded)))
	}).WithTimeout(w.patience).Should(Succeed())
	return parent, w.tree(o.Status.ThreadID, name)
}
