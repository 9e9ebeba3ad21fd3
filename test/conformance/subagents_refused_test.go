package conformance

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionwebhook "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/test/harness"
)

// obstacle keeps a namespace from having more objects of a resource until it is lifted.
type obstacle func(ctx SpecContext, ns, resource string) (lift func(SpecContext))

// created selects what is created of a resource.
func created(resource string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"skein.dev"}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}
}

// inVain returns an object of a resource to create in vain.
func inVain(ns, resource string) client.Object {
	if resource == "threads" {
		return harness.NewThread(ns, "probe", "parent")
	}
	return &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}, Spec: skeinv1.SubagentSpec{
		ParentRef: skeinv1.LocalRef{Name: "thread"}, AgentRef: skeinv1.LocalRef{Name: "worker"}, Name: "helper"}}
}

// byWebhook refuses by a webhook that answers with a status.
func byWebhook(status metav1.Status) obstacle {
	return func(ctx SpecContext, ns, resource string) func(SpecContext) {
		GinkgoHelper()
		hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionwebhook.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
				return
			}
			review.Response = &admissionwebhook.AdmissionResponse{UID: review.Request.UID, Result: status.DeepCopy()}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review)
		}))
		DeferCleanup(hook.Close)
		config := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ns}, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "no.example.com", Rules: []admissionv1.RuleWithOperations{created(resource)}, AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionv1.Fail),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To(hook.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
		}}}
		return refusedWhile(ctx, ns, resource, config)
	}
}

// byPolicy refuses by a policy for a reason.
func byPolicy(reason metav1.StatusReason) obstacle {
	return func(ctx SpecContext, ns, resource string) func(SpecContext) {
		GinkgoHelper()
		return refusedWhile(ctx, ns, resource,
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: created(resource)}}},
				Validations:      []admissionv1.Validation{{Expression: "false", Message: "nobody may", Reason: &reason}},
			}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: ns, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}},
			}})
	}
}

// refusedWhile waits until the API server refuses new objects because of others, and returns how to end that.
func refusedWhile(ctx SpecContext, ns, resource string, because ...client.Object) func(SpecContext) {
	GinkgoHelper()
	create(ctx, because...)
	DeferCleanup(func(ctx SpecContext) {
		for _, o := range because {
			Expect(client.IgnoreNotFound(cluster.Client.Delete(ctx, o))).To(Succeed())
		}
	})
	try := func(ctx SpecContext) error { return cluster.Client.Create(ctx, inVain(ns, resource), client.DryRunAll) }
	Eventually(ctx, try).Should(HaveOccurred())
	return func(ctx SpecContext) {
		for _, o := range because {
			Expect(cluster.Client.Delete(ctx, o)).To(Succeed())
		}
		Eventually(ctx, try).Should(Succeed())
	}
}

// byResourceQuota refuses by a quota of Kubernetes that is used up.
func byResourceQuota(ctx SpecContext, ns, kind string) func(SpecContext) {
	GinkgoHelper()
	name := corev1.ResourceName("count/" + kind + ".skein.dev")
	have := map[string]string{"threads": "1", "subagents": "0"}[kind]
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse(have)}}}
	create(ctx, q)
	pods := int64(0)
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, key(q), q)).To(Succeed())
		if _, counted := q.Status.Used[name]; !counted { // a quota of a kind that was not known is counted again when its spec changes
			pods++
			q.Spec.Hard[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
			g.Expect(cluster.Client.Update(ctx, q)).To(Succeed())
		}
		g.Expect(q.Status.Used).To(HaveKeyWithValue(name, WithTransform(func(n resource.Quantity) string { return n.String() }, Equal(have))))
	}).WithTimeout(3*patience).WithPolling(time.Second).Should(Succeed(), "Kubernetes looks for new kinds twice a minute")
	return func(ctx SpecContext) {
		Expect(cluster.Client.Delete(ctx, q)).To(Succeed())
		Eventually(ctx, func() error { return cluster.Client.Create(ctx, inVain(ns, kind), client.DryRunAll) }).Should(Succeed())
	}
}

// byThreadQuota refuses by a quota of Skein that is used up.
func byThreadQuota(ctx SpecContext, ns, _ string) func(SpecContext) {
	GinkgoHelper()
	q := &skeinv1.ThreadQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "few"}}
	q.Spec.Hard.Threads = ptr.To[int64](1)
	create(ctx, q)
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, key(q), q)).To(Succeed())
		g.Expect(q.Status.Used).To(HaveValue(HaveField("Threads", HaveValue(BeEquivalentTo(1)))))
	}).Should(Succeed())
	return func(ctx SpecContext) {
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "threadquota", "few", "--type=merge", "-p", `{"spec":{"hard":{"threads":9}}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(q), q)).To(Succeed())
			g.Expect(q.Status.ObservedGeneration).To(Equal(q.Generation))
		}).Should(Succeed())
	}
}

var _ = Describe("A subagent that cannot be created", Label("SUB-03", "MSG-09"), func() {
	spawn := func(title string) skeinv1.ScriptStep {
		return harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add", "name": title})
	}
	blocking := func(s *skeinv1.AgentSubagent) { s.Blocking = true }
	denies := func(code int32, reason metav1.StatusReason) obstacle {
		return byWebhook(metav1.Status{Code: code, Reason: reason, Message: "not in this house"})
	}

	DescribeTable("is the error of its call, which the parent's model reads", func(ctx SpecContext, kind string, refuse obstacle, says string) {
		ns := namespace(ctx)
		t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("go", spawn("One")), harness.On("fine", spawn("Two")), harness.After("subagent_create", harness.Answer("so: {{ .Last.Content }}"))},
			[]skeinv1.ScriptStep{always("5")}, helper(blocking))
		lift := refuse(ctx, ns, kind)
		Expect(last(say(ctx, t, 1, "go"))).To(And(HavePrefix("so: "), ContainSubstring(says)))
		_, status := result(must(t.Messages(ctx)), "subagent_create")
		Expect(status).To(Equal("error"))
		for _, s := range subagents(ctx, ns) { // there is one when its Thread was refused
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, key(&s), &s)).To(Succeed())
				g.Expect(s.Status.Entry).To(HaveValue(HaveField("Status", "failed")))
				g.Expect(s.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonChildRefused), HaveField("Message", ContainSubstring(says)))))
			}).Should(Succeed())
		}
		lift(ctx)
		Expect(last(say(ctx, t, 2, "fine"))).To(Equal("so: 5"), "others are created")
	},
		Entry("Threads, by a ResourceQuota", "threads", obstacle(byResourceQuota), "exceeded quota: few"),
		Entry("Subagents, by a ResourceQuota", "subagents", obstacle(byResourceQuota), "exceeded quota: few"),
		Entry("Threads, by a ThreadQuota", "threads", obstacle(byThreadQuota), `its quota of 1 threads (ThreadQuota "few")`),
		Entry("Threads, by a policy", "threads", byPolicy(metav1.StatusReasonForbidden), "nobody may"),
		Entry("Subagents, by a policy that finds them too large", "subagents", byPolicy(metav1.StatusReasonRequestEntityTooLarge), "nobody may"),
		Entry("Threads, by a policy that finds them too large", "threads", byPolicy(metav1.StatusReasonRequestEntityTooLarge), "nobody may"),
		Entry("Threads, by a webhook", "threads", denies(0, ""), "not in this house"),
		Entry("Threads, by a webhook that forbids", "threads", denies(http.StatusForbidden, metav1.StatusReasonForbidden), "not in this house"),
		Entry("Threads, by a webhook that answers Conflict", "threads", denies(http.StatusConflict, metav1.StatusReasonConflict), "not in this house"),
		Entry("Threads, by a webhook that answers AlreadyExists", "threads", denies(http.StatusConflict, metav1.StatusReasonAlreadyExists), "not in this house"),
		Entry("Threads, by a webhook that answers NotFound", "threads", denies(http.StatusNotFound, metav1.StatusReasonNotFound), "not in this house"),
		Entry("Threads, by a webhook that answers an internal error", "threads", denies(http.StatusInternalServerError, metav1.StatusReasonInternalError), "not in this house"),
		Entry("Subagents, by a webhook that answers AlreadyExists", "subagents", denies(http.StatusConflict, metav1.StatusReasonAlreadyExists), "not in this house"),
		Entry("Subagents, by a webhook that answers an internal error", "subagents", denies(http.StatusInternalServerError, metav1.StatusReasonInternalError), "not in this house"),
	)

	for _, kind := range []string{"Thread", "Subagent"} {
		It("because a "+kind+" has its name, is the error of its call, and the other is left alone", Label("SUB-07"), func(ctx SpecContext) {
			ns := namespace(ctx)
			create(ctx, harness.Scripted(ns, "parent", harness.On("", harness.Answer("so: {{ .Last.Content }}"))), harness.Prompt(ns, "parent", "parent"),
				harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
					s.Subagents = []skeinv1.AgentSubagent{helper(blocking, func(s *skeinv1.AgentSubagent) { s.Immediate, s.Message = true, "add" })}
				}),
				harness.Scripted(ns, "worker", always("5")), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
				harness.NewThread(ns, "thread", "parent"), harness.NewThread(ns, "other", "parent"))
			t := ready(ctx, cluster.Thread(ns, "thread"))
			id := idOf(ctx, t)
			taken := objects.DerivedName("thread-helper", id, fmt.Sprintf("immediate-%s-helper", id))
			var o client.Object = harness.NewThread(ns, taken, "worker")
			if kind == "Subagent" {
				o = &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: taken}, Spec: skeinv1.SubagentSpec{
					ParentRef: skeinv1.LocalRef{Name: "other"}, AgentRef: skeinv1.LocalRef{Name: "worker"}, Name: "helper"}}
			}
			create(ctx, o)
			Expect(say(ctx, t, 1, "go")).NotTo(BeEmpty())
			content, status := result(must(t.Messages(ctx)), "subagent_create")
			Expect(content).To(ContainSubstring(fmt.Sprintf("%s %q exists already", kind, taken)))
			Expect(status).To(Equal("error"))
			Expect(cluster.Client.Get(ctx, key(o), o)).To(Succeed())
			Expect(o.GetDeletionTimestamp()).To(BeNil())
			Expect(say(ctx, cluster.Thread(ns, "other"), 1, "go")).To(ContainElement(HaveField("Content", HaveValue(Equal("5")))), "others are created")
		}, SpecTimeout(2*time.Minute))
	}
})
