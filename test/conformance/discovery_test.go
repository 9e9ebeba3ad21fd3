package conformance

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// Two groups have a resource of the name threads: the objects, and the parent of what is in them.
var _ = Describe("The resource threads of the runtime API", Label("K8S-04"), func() {
	It("can be asked about with kubectl auth can-i, and leaves the plain name to the objects", func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		kubectl := func(args ...string) string {
			GinkgoHelper()
			out, err := cluster.Kubectl(ctx, append([]string{"-n", t.Namespace}, args...)...)
			Expect(err).NotTo(HaveOccurred())
			return out
		}
		Expect(kubectl("auth", "can-i", "get", "threads.runtime.skein.dev", "--subresource=messages")).To(Equal("yes\n"))
		Expect(kubectl("auth", "can-i", "create", "threads.runtime.skein.dev/"+t.Name, "--subresource=queue")).To(Equal("yes\n"))

		for _, name := range []string{"thread", "threads", "thr", "threads.skein.dev"} {
			Expect(kubectl("get", name, "-o", "name")).To(Equal("thread.skein.dev/thread\n"), name)
		}
		Expect(kubectl("get", "skein", "-o", "name")).To(ContainSubstring("thread.skein.dev/thread\n"))
		Expect(kubectl("explain", "threads.spec.agentRef")).To(ContainSubstring("GROUP:      skein.dev"))

		By("showing the record of one thread, and saying where lists are")
		var record runtimev1.ThreadRecord
		Expect(json.Unmarshal([]byte(kubectl("get", "threads.runtime.skein.dev", t.Name, "-o", "json")), &record)).To(Succeed())
		Expect(record.AgentID).To(Equal("agent"))
		for _, args := range [][]string{{"get", "threads.runtime.skein.dev"}, {"delete", "threads.runtime.skein.dev", "--all"}} {
			_, err := cluster.Kubectl(ctx, append([]string{"-n", t.Namespace}, args...)...)
			Expect(err).To(MatchError(And(ContainSubstring("(MethodNotAllowed)"), ContainSubstring("threads.skein.dev"))))
		}
		_, err := cluster.Kubectl(ctx, "-n", t.Namespace, "delete", "threads.runtime.skein.dev", t.Name)
		Expect(err).To(MatchError(ContainSubstring("(MethodNotAllowed)")))
		Expect(kubectl("get", "thread", t.Name)).To(ContainSubstring("Idle"))
	}, SpecTimeout(2*time.Minute))

	It("is ignored by the deletion of namespaces and by the garbage collector", Label("THR-09"), func(ctx SpecContext) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "row-"}}
		Expect(cluster.Client.Create(ctx, ns)).To(Succeed())
		if onV8 {
			defaultPool(ctx, ns.Name, skeinv1.SandboxPoolSpec{})
		}
		t := family(ctx, ns.Name,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hi"})), harness.After("subagent_create", harness.Answer("ok"))},
			[]skeinv1.ScriptStep{harness.Echo()}, helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		say(ctx, t, 1, "go")
		child := onlyChild(ctx, ns.Name)
		create(ctx, harness.NewThread(ns.Name, "other", "parent"))
		other := ready(ctx, cluster.Thread(ns.Name, "other"))

		_, err := cluster.Kubectl(ctx, "-n", ns.Name, "delete", "thread", t.Name, "--cascade=foreground", "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{t.Name, child.Name} {
			err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: name}, &skeinv1.Thread{})
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", name, err)
		}
		_, err = other.Object(ctx)
		Expect(err).NotTo(HaveOccurred(), "no thread but those that are owned goes")

		_, err = cluster.Kubectl(ctx, "delete", "namespace", ns.Name, "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(3*time.Minute))
})
