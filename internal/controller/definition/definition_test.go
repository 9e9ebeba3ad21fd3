package definition

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

func TestDefinition(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "definition controllers")
}

func of[T any, P object[T]](e *Env, status func(P) *skeinv1.DefinitionStatus, check func(context.Context, P) error) *reconciler[T, P] {
	return &reconciler[T, P]{client: e.Client, recorder: e.Recorder, clock: e.Clock, status: status, check: check}
}

var _ = Describe("The definition controllers", func() {
	var (
		e *Env
		c *checker
	)
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		c = &checker{reader: e.Client, defs: definitions.New(e.Client, objects.NewContents(e.Client, e.Client), compile.Compile, providers.NewFactory(nil))}
	})
	ready := func(list []metav1.Condition) *metav1.Condition {
		return meta.FindStatusCondition(list, skeinv1.ConditionReady)
	}

	It("turn a mistake into a condition, write it once, and heal", Label("K8S-01", "K8S-02"), func(ctx SpecContext) {
		m := &skeinv1.Model{ObjectMeta: Meta("m"), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI, Model: "x", Credentials: &skeinv1.ModelCredentials{
			SecretKeyRef: corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "apiKey"}}}}
		e.Create(ctx, m)
		r := of(e, func(m *skeinv1.Model) *skeinv1.DefinitionStatus { return &m.Status }, c.model)
		Expect(Reconcile(ctx, r, m).RequeueAfter).To(BeZero(), "a user's mistake is no reason to try again")
		Expect(ready(Get(ctx, e, m).Status.Conditions)).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonReferenceNotFound),
			HaveField("Message", And(ContainSubstring(`"key"`), ContainSubstring(`"apiKey"`))), HaveField("ObservedGeneration", int64(1)))))
		Expect(e.Recorder.Events).To(Receive(ContainSubstring("ReferenceNotFound")))
		e.Writes()
		Reconcile(ctx, r, m)
		Expect(e.Writes()).To(BeEmpty())
		e.Create(ctx, &corev1.Secret{ObjectMeta: Meta("key"), Data: map[string][]byte{"apiKey": []byte("canary")}})
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, m)
		Expect(ready(Get(ctx, e, m).Status.Conditions)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("LastTransitionTime.Time", BeTemporally("==", Start.Add(time.Minute))))))
		Expect(e.Recorder.Events).To(Receive(ContainSubstring("Ready")))
	})

	It("try again after a failure that is not the user's", func(ctx SpecContext) {
		t := &skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{Code: &skeinv1.CodeSource{Inline: "export default 1"}}}
		e.Create(ctx, t)
		r := of(e, func(t *skeinv1.Tool) *skeinv1.DefinitionStatus { return &t.Status }, func(context.Context, *skeinv1.Tool) error {
			return &definition.NotReadyError{Reason: skeinv1.ReasonInternalError, Message: "the compiler did not start"}
		})
		for range 2 { // whether or not the status changes
			Expect(Reconcile(ctx, r, t).RequeueAfter).To(Equal(15 * time.Second))
		}
		Expect(ready(Get(ctx, e, t).Status.Conditions)).To(HaveValue(HaveField("Reason", skeinv1.ReasonInternalError)))
	})

	It("try again when what is beside Ready could not be found out", func(ctx SpecContext) {
		t := &skeinv1.Tool{ObjectMeta: Meta("t")}
		e.Create(ctx, t)
		r := of(e, func(t *skeinv1.Tool) *skeinv1.DefinitionStatus { return &t.Status }, func(context.Context, *skeinv1.Tool) error { return nil })
		r.more = func(_ context.Context, _ *skeinv1.Tool, w conditions.Writer) {
			w.Set(skeinv1.ConditionTitlesReady, metav1.ConditionUnknown, skeinv1.ReasonInternalError, "there was no answer in time")
		}
		for range 2 { // whether or not the status changes
			Expect(Reconcile(ctx, r, t).RequeueAfter).To(Equal(15 * time.Second))
		}
	})

	It("judge what an object refers to by its own condition", Label("K8S-02"), func(ctx SpecContext) {
		a := &skeinv1.Agent{ObjectMeta: Meta("a"), Spec: skeinv1.AgentSpec{SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "p"}},
			Subagents:      []skeinv1.AgentSubagent{{Name: "self", AgentRef: skeinv1.LocalRef{Name: "a"}}, {Name: "other", AgentRef: skeinv1.LocalRef{Name: "b"}}},
			SandboxPoolRef: &skeinv1.LocalRef{Name: "gpu"}}}
		p := &skeinv1.Prompt{ObjectMeta: Meta("p"), Spec: skeinv1.PromptSpec{ModelRef: skeinv1.LocalRef{Name: "m"}, Tools: []skeinv1.PromptTool{{Builtin: skeinv1.BuiltinFiles}, {Name: "t"}}}}
		e.Create(ctx, a)
		agents := of(e, func(a *skeinv1.Agent) *skeinv1.DefinitionStatus { return &a.Status }, c.agent)
		prompts := of(e, func(p *skeinv1.Prompt) *skeinv1.DefinitionStatus { return &p.Status }, c.prompt)
		step := func(reason, message string) {
			GinkgoHelper()
			Reconcile(ctx, agents, a)
			Get(ctx, e, a)
			Expect(ready(a.Status.Conditions)).To(HaveValue(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
		}
		step(skeinv1.ReasonReferenceNotFound, `Prompt "p" does not exist`)
		e.Create(ctx, p)
		step(skeinv1.ReasonReferenceNotReady, `Prompt "p" has not been checked yet`)
		Reconcile(ctx, prompts, p)
		step(skeinv1.ReasonReferenceNotReady, `Prompt "p" is not ready: Model "m" does not exist`)
		m, t := &skeinv1.Model{ObjectMeta: Meta("m")}, &skeinv1.Tool{ObjectMeta: Meta("t")}
		e.Create(ctx, m, t)
		e.SetReady(ctx, m, &m.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonCompileFailed, "t.ts:1:2: oops")
		Reconcile(ctx, prompts, p)
		step(skeinv1.ReasonReferenceNotReady, "t.ts:1:2: oops")
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		Reconcile(ctx, prompts, p)
		step(skeinv1.ReasonReferenceNotFound, `Agent "b" does not exist in namespace "demo": create it, or correct spec.subagents[1].agentRef`)
		e.Create(ctx, &skeinv1.Agent{ObjectMeta: Meta("b")})
		step(skeinv1.ReasonReferenceNotFound, `SandboxPool "gpu"`)
		e.Create(ctx, &skeinv1.SandboxPool{ObjectMeta: Meta("gpu")})
		step(skeinv1.ReasonReady, "")
	})

	It("have the older of two endpoints with one path answer", Label("END-01", "K8S-02"), func(ctx SpecContext) {
		endpoint := func(name, path string, age time.Duration, methods ...skeinv1.EndpointMethod) *skeinv1.ThreadEndpoint {
			e := &skeinv1.ThreadEndpoint{ObjectMeta: Meta(name), Spec: skeinv1.ThreadEndpointSpec{Path: path, Methods: methods, Code: skeinv1.CodeSource{Inline: "export default () => 1"}}}
			e.CreationTimestamp = metav1.NewTime(Start.Add(-age))
			return e
		}
		old, young := endpoint("old", "/a/[x]", time.Hour, "GET"), endpoint("young", "/a/[y]", time.Minute, "GET", "PUT")
		other, own := endpoint("other", "/a/[z]", time.Minute, "DELETE"), endpoint("own", "/a/[z]", time.Minute, "GET")
		own.Spec.AgentRef = &skeinv1.LocalRef{Name: "a"}
		wrong := endpoint("wrong", "/[*]/a", 0)
		e.Create(ctx, old, young, other, own, wrong)
		r := of(e, func(o *skeinv1.ThreadEndpoint) *skeinv1.DefinitionStatus { return &o.Status }, c.endpoint)
		check := func(o *skeinv1.ThreadEndpoint, reason, message string) {
			GinkgoHelper()
			Expect(Reconcile(ctx, r, o).RequeueAfter).To(BeZero())
			Expect(ready(Get(ctx, e, o).Status.Conditions)).To(HaveValue(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
		}
		check(old, skeinv1.ReasonReady, "")
		check(young, skeinv1.ReasonPathTaken, `ThreadEndpoint "old" is older. It also has the path /a/[x] and answers GET: change`)
		check(other, skeinv1.ReasonReady, "")
		check(own, skeinv1.ReasonReferenceNotFound, `Agent "a"`)
		e.Create(ctx, &skeinv1.Agent{ObjectMeta: Meta("a")})
		check(own, skeinv1.ReasonReady, "")
		check(wrong, skeinv1.ReasonInvalidSpec, "spec.path: ")
		Expect(e.Client.Delete(ctx, old)).To(Succeed())
		check(young, skeinv1.ReasonReady, "")
	})

	It("let one of two endpoints that were made in the same second answer, by name", Label("END-01", "K8S-02"), func(ctx SpecContext) {
		endpoint := func(name string) *skeinv1.ThreadEndpoint {
			e := &skeinv1.ThreadEndpoint{ObjectMeta: Meta(name), Spec: skeinv1.ThreadEndpointSpec{Path: "/a", Code: skeinv1.CodeSource{Inline: "export default () => 1"}}}
			e.CreationTimestamp = metav1.NewTime(Start)
			return e
		}
		second, first := endpoint("b"), endpoint("a")
		e.Create(ctx, second, first)
		r := of(e, func(o *skeinv1.ThreadEndpoint) *skeinv1.DefinitionStatus { return &o.Status }, c.endpoint)
		Reconcile(ctx, r, first)
		Reconcile(ctx, r, second)
		Expect(ready(Get(ctx, e, first).Status.Conditions)).To(HaveValue(HaveField("Reason", skeinv1.ReasonReady)))
		Expect(ready(Get(ctx, e, second).Status.Conditions)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonPathTaken),
			HaveField("Message", ContainSubstring(`ThreadEndpoint "a" was created in the same second and precedes this one by name. It also has the path /a`)))))
	})

	It("keep an agent Ready whose titles have no model, and say so", Label("RUN-07", "K8S-02"), func(ctx SpecContext) {
		p := &skeinv1.Prompt{ObjectMeta: Meta("p")}
		e.Create(ctx, p)
		e.SetReady(ctx, p, &p.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		a := &skeinv1.Agent{ObjectMeta: Meta("titled"), Spec: skeinv1.AgentSpec{
			SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "p"}}, TitleModelRef: &skeinv1.LocalRef{Name: "namer"}}}
		e.Create(ctx, a)
		r := of(e, func(a *skeinv1.Agent) *skeinv1.DefinitionStatus { return &a.Status }, c.agent)
		r.more = c.titles
		check := func(status metav1.ConditionStatus, reason, message string) {
			GinkgoHelper()
			Reconcile(ctx, r, a)
			got := Get(ctx, e, a).Status.Conditions
			Expect(ready(got)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
			Expect(meta.FindStatusCondition(got, skeinv1.ConditionTitlesReady)).To(HaveValue(And(
				HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
			e.Writes()
			Reconcile(ctx, r, a)
			Expect(e.Writes()).To(BeEmpty())
		}
		check(metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `threads of this agent get no titles: Model "namer" does not exist in namespace`)
		m := &skeinv1.Model{ObjectMeta: Meta("namer")}
		e.Create(ctx, m)
		check(metav1.ConditionFalse, skeinv1.ReasonReferenceNotReady, "has not been checked yet")
		e.SetReady(ctx, m, &m.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		check(metav1.ConditionTrue, skeinv1.ReasonReady, "")
		a.Spec.TitleModelRef = nil
		Expect(e.Client.Update(ctx, a)).To(Succeed())
		Reconcile(ctx, r, a)
		Expect(meta.FindStatusCondition(Get(ctx, e, a).Status.Conditions, skeinv1.ConditionTitlesReady)).To(BeNil())
	})

	It("say of a tool whether it can be taken elsewhere", Label("TOL-04"), func(ctx SpecContext) {
		t := &skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{Code: &skeinv1.CodeSource{Inline: "export default (state) => state._notPackableRuntimeContext.region"}}}
		e.Create(ctx, t)
		r := of(e, func(t *skeinv1.Tool) *skeinv1.DefinitionStatus { return &t.Status }, c.tool)
		r.more = c.packable
		check := func(status metav1.ConditionStatus, reason string) {
			GinkgoHelper()
			Reconcile(ctx, r, t)
			Expect(meta.FindStatusCondition(Get(ctx, e, t).Status.Conditions, skeinv1.ConditionPackable)).To(HaveValue(And(HaveField("Status", status), HaveField("Reason", reason))))
			e.Writes()
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(BeEmpty())
		}
		check(metav1.ConditionFalse, skeinv1.ReasonReadsRuntimeContext)
		for _, step := range []struct {
			source, reason string
			status         metav1.ConditionStatus
		}{
			{"export default () => 1", skeinv1.ReasonPortable, metav1.ConditionTrue},
			{"export default (", skeinv1.ReasonReferenceNotReady, metav1.ConditionUnknown},
		} {
			t.Spec.Code.Inline = step.source
			t.Generation++
			Expect(e.Client.Update(ctx, t)).To(Succeed())
			check(step.status, step.reason)
		}
	})

	It("say where code does not compile", Label("K8S-02"), func(ctx SpecContext) {
		t := &skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{Code: &skeinv1.CodeSource{Inline: "export default {\n  a: = 1\n}"}}}
		x := &skeinv1.Effect{ObjectMeta: Meta("x"), Spec: skeinv1.EffectSpec{Code: skeinv1.CodeSource{Inline: "export default ("}}}
		e.Create(ctx, t, x)
		Reconcile(ctx, of(e, func(t *skeinv1.Tool) *skeinv1.DefinitionStatus { return &t.Status }, c.tool), t)
		Expect(ready(Get(ctx, e, t).Status.Conditions)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonCompileFailed), HaveField("Message", ContainSubstring("line 2, column 6")))))
		Reconcile(ctx, of(e, func(x *skeinv1.Effect) *skeinv1.DefinitionStatus { return &x.Status }, c.effect), x)
		Expect(ready(Get(ctx, e, x).Status.Conditions)).To(HaveValue(HaveField("Reason", skeinv1.ReasonCompileFailed)))
	})

	It("say which hook does not compile, and where", Label("K8S-02", "HOK-01"), func(ctx SpecContext) {
		wrong := []skeinv1.Hook{
			{Hook: skeinv1.HookAfterThreadCreated, Code: skeinv1.CodeSource{Inline: "export default () => 1;"}},
			{Hook: skeinv1.HookFilterMessages, Code: skeinv1.CodeSource{Inline: "export default () => {\n  a: = 1\n}"}},
		}
		p := &skeinv1.Prompt{ObjectMeta: Meta("p"), Spec: skeinv1.PromptSpec{ModelRef: skeinv1.LocalRef{Name: "m"}, Hooks: wrong}}
		a := &skeinv1.Agent{ObjectMeta: Meta("a"), Spec: skeinv1.AgentSpec{SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "p"}}, Hooks: wrong}}
		e.Create(ctx, p, a)
		broken := HaveValue(And(HaveField("Reason", skeinv1.ReasonCompileFailed), HaveField("Message", And(ContainSubstring(`the hook "filter_messages"`), ContainSubstring("line 2, column 6")))))
		Reconcile(ctx, of(e, func(p *skeinv1.Prompt) *skeinv1.DefinitionStatus { return &p.Status }, c.prompt), p)
		Expect(ready(Get(ctx, e, p).Status.Conditions)).To(broken)
		Reconcile(ctx, of(e, func(a *skeinv1.Agent) *skeinv1.DefinitionStatus { return &a.Status }, c.agent), a)
		Expect(ready(Get(ctx, e, a).Status.Conditions)).To(broken)
	})
})
