package definitions_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/kubetest"
)

func hook(name skeinv1.HookName, code string) skeinv1.Hook {
	return skeinv1.Hook{Hook: name, Code: skeinv1.CodeSource{Inline: code}}
}

var _ = Describe("Hooks", Label("HOK-01"), func() {
	It("of a prompt take the place of the agent's of the same name", func(ctx SpecContext) {
		p, a := prompt("p", "m"), agent("a", "p")
		p.Spec.Hooks = []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, "export default () => 'prompt';")}
		slow := hook(skeinv1.HookFilterMessages, "export default () => 'agent';")
		slow.Timeout = &metav1.Duration{Duration: time.Minute}
		a.Spec.Hooks = []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, "export default () => 'agent';"), slow}
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, scripted("m", skeinv1.ScriptStep{Content: "hi"}), p, a))
		got, err := d.Agent(ctx, kubetest.Namespace, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.A.Hooks).To(HaveLen(2))
		Expect(got.A.Hooks[skeinv1.HookAfterCreateMessage]).To(HaveValue(And(HaveField("Owner", "Prompt p"), HaveField("Module.Code", ContainSubstring("prompt")))))
		Expect(got.A.Hooks[skeinv1.HookFilterMessages]).To(HaveValue(And(HaveField("Owner", "Agent a"), HaveField("Module.Code", ContainSubstring("agent")), HaveField("Timeout", time.Minute))))
		Expect(d.Hooks(ctx, kubetest.Namespace, "a")).To(HaveLen(2))
	})

	It("are nil for an agent without hooks", func(ctx SpecContext) {
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, prompt("p", "m"), agent("a", "p")))
		Expect(d.Hooks(ctx, kubetest.Namespace, "a")).To(BeNil())
	})

	It("come from ConfigMaps, and say which of them is missing", func(ctx SpecContext) {
		a := agent("a", "p")
		a.Spec.Hooks = []skeinv1.Hook{{Hook: skeinv1.HookAfterThreadCreated, Code: skeinv1.CodeSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "code"}, Key: "hook.js"}}}}
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, prompt("p", "m"), a))
		_, err := d.Hooks(ctx, kubetest.Namespace, "a")
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, `the hook "after_thread_created"`, `ConfigMap "code"`, "spec.hooks[0].code.configMapKeyRef"))
		d = resolver(kubetest.Cluster(interceptor.Funcs{}, prompt("p", "m"), a,
			&corev1.ConfigMap{ObjectMeta: kubetest.Meta("code"), Data: map[string]string{"hook.js": "export default () => 1;"}}))
		Expect(d.Hooks(ctx, kubetest.Namespace, "a")).To(HaveKeyWithValue(skeinv1.HookAfterThreadCreated, HaveValue(HaveField("Module.Filename", "hook.js"))))
	})

	It("that do not compile keep their agent from being used, and say where", func(ctx SpecContext) {
		p, a := prompt("p", "m"), agent("a", "p")
		p.Spec.Hooks = []skeinv1.Hook{hook(skeinv1.HookFilterMessages, "export default (\n  =\n);")}
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, scripted("m", skeinv1.ScriptStep{Content: "hi"}), p, a))
		_, err := d.Agent(ctx, kubetest.Namespace, "a")
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonCompileFailed, `Prompt "p"`, `the hook "filter_messages": p.filter_messages.ts:2:3`))
	})
})
