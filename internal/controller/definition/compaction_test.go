package definition

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

var _ = Describe("A prompt that asks for compaction", Label("MSG-12", "K8S-02"), func() {
	It("stays Ready where it cannot have any, and says why", func(ctx SpecContext) {
		e := New(ctx)
		c := &checker{reader: e.Client, defs: definitions.New(e.Client, objects.NewContents(e.Client, e.Client), compile.Compile, providers.NewFactory(nil))}
		m := &skeinv1.Model{ObjectMeta: Meta("own"), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}}
		p := &skeinv1.Prompt{ObjectMeta: Meta("p"), Spec: skeinv1.PromptSpec{Text: "x", ModelRef: skeinv1.LocalRef{Name: "own"}, Compaction: &skeinv1.PromptCompaction{ModelRef: &skeinv1.LocalRef{Name: "other"}}}}
		e.Create(ctx, m, p)
		e.SetReady(ctx, m, &m.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		r := of(e, func(p *skeinv1.Prompt) *skeinv1.DefinitionStatus { return &p.Status }, c.prompt)
		r.more = c.compaction
		check := func(status metav1.ConditionStatus, reason, message string) {
			GinkgoHelper()
			Reconcile(ctx, r, p)
			got := Get(ctx, e, p).Status.Conditions
			Expect(meta.FindStatusCondition(got, skeinv1.ConditionReady)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
			Expect(meta.FindStatusCondition(got, skeinv1.ConditionCompactionReady)).To(HaveValue(And(
				HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
		}
		check(metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `without a summary: Model "other" does not exist`)
		other := &skeinv1.Model{ObjectMeta: Meta("other"), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}}
		e.Create(ctx, other)
		e.SetReady(ctx, other, &other.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		check(metav1.ConditionFalse, skeinv1.ReasonInvalidSpec, "set its spec.capabilities.contextWindow in tokens, or spec.compaction.mode: manual")
		m.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: 8000}
		Expect(e.Client.Update(ctx, m)).To(Succeed())
		check(metav1.ConditionTrue, skeinv1.ReasonReady, "")
		p.Spec.Compaction = nil
		Expect(e.Client.Update(ctx, p)).To(Succeed())
		Reconcile(ctx, r, p)
		Expect(meta.FindStatusCondition(Get(ctx, e, p).Status.Conditions, skeinv1.ConditionCompactionReady)).To(BeNil())
	})
})
