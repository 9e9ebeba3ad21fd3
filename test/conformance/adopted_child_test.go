package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A subagent whose data was retained", Label("THR-09", "ENV-04", "SUB-08"), func() {
	It("keeps its variables when another Thread adopts it, and is the root of its own subagents", func(ctx SpecContext) {
		ns := namespace(ctx)
		step := []skeinv1.ScriptStep{harness.On("^go$", harness.Calls("subagent_create", map[string]any{"agent": "below", "message": "go", "name": "B"})), always("ok")}
		create(ctx, harness.Scripted(ns, "model", step...), harness.Prompt(ns, "prompt", "model", "builtin:subagents"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{{Name: "below", AgentRef: skeinv1.LocalRef{Name: "agent"}, Description: "d", Resumable: true}}
			}),
			harness.NewThread(ns, "top", "agent"))
		top := ready(ctx, cluster.Thread(ns, "top"))
		Expect(conversation(top).SetEnv(ctx, "TOKEN", "of-top", "text")).To(Succeed())
		childOf := func(t *harness.Thread) *harness.Thread {
			GinkgoHelper()
			var name string
			Eventually(ctx, func(g Gomega) {
				o, err := t.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.Status.Children).To(HaveLen(1))
				name = o.Status.Children[0].ThreadName
			}).Should(Succeed())
			return ready(ctx, cluster.Thread(ns, name))
		}
		Expect(top.Say(ctx, "go")).To(Succeed())
		middle := childOf(top)
		o := must(middle.Object(ctx))
		patch := client.MergeFrom(o.DeepCopy())
		o.Spec.DeletionPolicy = skeinv1.DeletionRetain
		Expect(cluster.Client.Patch(ctx, o, patch)).To(Succeed())
		Expect(conversation(middle).Env(ctx, "TOKEN")).To(Equal("of-top"))
		id := o.ThreadID()
		Expect(middle.Delete(ctx)).To(Succeed())
		Eventually(ctx, func() bool { _, err := middle.Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())

		create(ctx, harness.NewThread(ns, "adopter", "agent", func(s *skeinv1.ThreadSpec) { s.ThreadID = id }))
		adopter := ready(ctx, cluster.Thread(ns, "adopter"))
		Expect(conversation(adopter).Env(ctx, "TOKEN")).To(Equal("of-top"))
		Expect(conversation(adopter).SetEnv(ctx, "TOKEN", "of-adopter", "text")).To(Succeed())
		Expect(conversation(top).Env(ctx, "TOKEN")).To(Equal("of-top"))
		Expect(adopter.Say(ctx, "go")).To(Succeed())
		below := childOf(adopter)
		Expect(conversation(below).Env(ctx, "TOKEN")).To(Equal("of-adopter"))

		By("refusing to attach it below its own subagent")
		create(ctx, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cycle"}, Spec: skeinv1.SubagentSpec{
			ParentRef: skeinv1.LocalRef{Name: must(below.Object(ctx)).Name}, AgentRef: skeinv1.LocalRef{Name: "agent"}, Name: "below",
			ThreadRef: &skeinv1.LocalRef{Name: "adopter"}}})
		Eventually(ctx, func(g Gomega) {
			var s skeinv1.Subagent
			g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "cycle"}, &s)).To(Succeed())
			g.Expect(s.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("below"))))
			g.Expect(s.Status.Conditions).To(ContainElement(HaveField("Status", metav1.ConditionFalse)))
		}).Should(Succeed())
		Expect(must(adopter.Object(ctx)).OwnerReferences).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})
