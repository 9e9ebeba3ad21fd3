package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/test/harness"
)

// spin is a tool that says that it runs and then never ends by itself.
func spin(ns string) *skeinv1.Tool {
	t := harness.CodeTool(ns, "spin", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => { await state.setValue('spinning', true); for (;;); } });`, nil)
	t.Spec.Timeout = &metav1.Duration{Duration: 10 * time.Minute}
	return t
}

// spinner declares an agent with that tool, and a message that calls it.
func spinner(ctx context.Context, ns string) {
	GinkgoHelper()
	create(ctx, spin(ns),
		harness.Scripted(ns, "model", harness.On("go", harness.Calls("spin", map[string]any{})), harness.After("spin", harness.Answer("went on"))),
		harness.Prompt(ns, "prompt", "model", "spin"), harness.Agent(ns, "agent", "prompt"))
}

// spinning makes a thread whose code runs, and gives its pod.
func spinning(ctx context.Context, ns, name string) (*harness.Thread, corev1.Pod) {
	GinkgoHelper()
	t := thread(ctx, ns, name)
	Expect(t.Say(ctx, "go")).To(Succeed())
	Eventually(ctx, func() (string, error) { return t.Value(ctx, "spinning") }).Should(MatchJSON("true"))
	return t, podOf(ctx, ns, name)
}

// podOf gives the thread's sandbox.
func podOf(ctx context.Context, ns, thread string) corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(ctx, func(g Gomega) { // the one before may be on its way out
		pods = sandboxes(ctx, g, ns, client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Claimed, skeinv1.LabelThread: thread})
		g.Expect(pods).To(HaveLen(1))
	}).Should(Succeed())
	return pods[0]
}

// failedCall expects that the tool call of a spinning thread failed with a clear error, and that its run went on.
func failedCall(ctx context.Context, t *harness.Thread) {
	GinkgoHelper()
	ms := settled(ctx, t, 1)
	Expect(*ms[len(ms)-1].Content).To(Equal("went on"))
	res := ms[len(ms)-2]
	Expect(res.ToolStatus).To(Equal("error"))
	Expect(*res.Content).To(ContainSubstring("sandbox"))
}

// serves expects that the thread's code runs.
func serves(ctx context.Context, t *harness.Thread) {
	GinkgoHelper()
	r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 6 * 7"})
	Expect(err).NotTo(HaveOccurred())
	Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
	Expect(r.Result).To(MatchJSON("42"))
}

// says waits until the pool's Ready condition has a reason, and gives its message.
func says(ctx context.Context, p *skeinv1.SandboxPool, reason string) string {
	GinkgoHelper()
	var message string
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		c := meta.FindStatusCondition(p.Status.Conditions, skeinv1.ConditionReady)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		message = c.Message
	}).Should(Succeed())
	return message
}

// change edits the pool's spec.
func change(ctx context.Context, p *skeinv1.SandboxPool, edit func(*skeinv1.SandboxPoolSpec)) {
	GinkgoHelper()
	before := p.DeepCopy()
	edit(&p.Spec)
	Expect(cluster.Client.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("Faults of sandbox pods", Label("COD-09"), func() {
	It("an eviction fails the call under way clearly, and the next one gets another pod", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := pool(ctx, ns, 1)
		spinner(ctx, ns)
		t, pod := spinning(ctx, ns, "thread")
		evict := func(pod *corev1.Pod) {
			GinkgoHelper()
			Expect(cluster.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod.Name}})).To(Succeed())
		}
		evict(&pod)
		failedCall(ctx, t)
		serves(ctx, t)
		Expect(podOf(ctx, ns, "thread").UID).NotTo(Equal(pod.UID))

		By("evicting the warm one, which is replaced")
		says(ctx, p, skeinv1.ReasonWarm)
		warm := func(other types.UID) (w corev1.Pod) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				pods := sandboxes(ctx, g, ns, client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Warm})
				g.Expect(pods).To(HaveExactElements(And(HaveField("UID", Not(Equal(other))), Satisfy(func(p corev1.Pod) bool { return sandboxpod.IsReady(&p) }))))
				w = pods[0]
			}).Should(Succeed())
			return w
		}
		w := warm("")
		evict(&w)
		warm(w.UID)
	}, SpecTimeout(12*time.Minute))

	It("a drained node fails the call under way, and a call that finds no node waits for one", Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		p := pool(ctx, ns, 1)
		spinner(ctx, ns)
		t, pod := spinning(ctx, ns, "thread")
		node := pod.Spec.NodeName
		uncordon := func(ctx SpecContext) {
			_, err := cluster.Kubectl(ctx, "uncordon", node)
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(uncordon, NodeTimeout(patience))
		// Everything but the sandboxes may stay: there is no other node for it.
		_, err := cluster.Kubectl(ctx, "drain", node, "--pod-selector="+skeinv1.LabelPool, "--timeout=180s")
		Expect(err).NotTo(HaveOccurred(), "each sandbox has a controller, so that no --force is needed")
		failedCall(ctx, t)
		Expect(says(ctx, p, skeinv1.ReasonUnschedulable)).To(And(ContainSubstring("unschedulable"), ContainSubstring("make room on the nodes")))

		By("a call that waits until there is room")
		answer := make(chan error, 1)
		go func() {
			r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
			if err == nil && r.Status != runtimev1.CodeSuccess {
				err = fmt.Errorf("%s: %s", r.Status, r.Error.Message)
			}
			answer <- err
		}()
		Eventually(ctx, func(g Gomega) { g.Expect(sandboxes(ctx, g, ns, claimed())).To(HaveLen(1)) }).Should(Succeed())
		uncordon(ctx)
		Eventually(ctx, answer).Should(Receive(BeNil()))
		says(ctx, p, skeinv1.ReasonWarm)
	}, SpecTimeout(12*time.Minute))

	It("an image that is missing fails calls at once and says what to do; the right one heals it", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := poolOf(ctx, ns, func(s *skeinv1.SandboxPoolSpec) {
			s.Image, s.ImagePullPolicy = "skein.dev/missing:dev", corev1.PullNever
		})
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")
		Expect(says(ctx, p, skeinv1.ReasonImageUnavailable)).To(And(ContainSubstring("ErrImageNeverPull"), ContainSubstring("skein.dev/missing:dev"), ContainSubstring("spec.imagePullPolicy")))
		Expect(p.Status.Failing).To(BeEquivalentTo(1), "status is written as a whole")
		_, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
		Expect(err).To(MatchError(And(ContainSubstring("does not start: ErrImageNeverPull"), ContainSubstring("put the image on the nodes"))), "it does not wait for what cannot come")
		Eventually(ctx, func(g Gomega) {
			g.Expect(sandboxes(ctx, g, ns, claimed())).To(BeEmpty(), "nothing is left of the attempt")
		}).Should(Succeed())

		change(ctx, p, func(s *skeinv1.SandboxPoolSpec) { s.Image, s.ImagePullPolicy = "", "" })
		says(ctx, p, skeinv1.ReasonWarm)
		serves(ctx, t)
	}, SpecTimeout(12*time.Minute))

	It("a quota that is used up fails calls clearly and says what to do; more of it heals it", func(ctx SpecContext) {
		ns := namespace(ctx)
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "small"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: harness.Quantity("1")}}}
		create(ctx, quota)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
			g.Expect(quota.Status.Hard).NotTo(BeEmpty(), "the quota counts")
		}).Should(Succeed())
		p := pool(ctx, ns, 1)
		echo(ctx, ns)
		serves(ctx, thread(ctx, ns, "first"))
		Expect(says(ctx, p, skeinv1.ReasonQuotaExceeded)).To(And(ContainSubstring("exceeded quota: small"), ContainSubstring("raise the namespace's ResourceQuota")))
		second := thread(ctx, ns, "second")
		_, err := second.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
		Expect(err).To(MatchError(And(ContainSubstring("exceeded quota: small"), ContainSubstring("raise the namespace's ResourceQuota"))))
		before := quota.DeepCopy()
		quota.Spec.Hard[corev1.ResourcePods] = harness.Quantity("5")
		Expect(cluster.Client.Patch(ctx, quota, client.MergeFrom(before))).To(Succeed())
		says(ctx, p, skeinv1.ReasonWarm)
		serves(ctx, second)
	}, SpecTimeout(12*time.Minute))

	It("a change of the template replaces the warm pods, and leaves a running thread its own", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := pool(ctx, ns, 2)
		spinner(ctx, ns)
		t, pod := spinning(ctx, ns, "thread")
		says(ctx, p, skeinv1.ReasonWarm)
		old := pod.Labels[skeinv1.LabelTemplateHash]
		change(ctx, p, func(s *skeinv1.SandboxPoolSpec) {
			s.PodMetadata = &skeinv1.SandboxPodMetadata{Labels: map[string]string{"team": "b"}, Annotations: map[string]string{"cost": "c"}}
		})
		Eventually(ctx, func(g Gomega) {
			warm := sandboxes(ctx, g, ns, client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Warm})
			ready := 0
			for _, p := range warm {
				if sandboxpod.IsReady(&p) {
					ready++
				}
			}
			g.Expect(warm).To(HaveLen(2))
			g.Expect(ready).To(Equal(2))
			g.Expect(warm).To(HaveEach(And(HaveField("Labels", And(HaveKeyWithValue("team", "b"), Not(HaveKeyWithValue(skeinv1.LabelTemplateHash, old)))), HaveField("Annotations", HaveKeyWithValue("cost", "c")))))
		}).Should(Succeed())
		_, err := cluster.Kubectl(ctx, "-n", ns, "wait", "--for=jsonpath={.status.outdated}=0", "sandboxpool/default", "--timeout=180s")
		Expect(err).NotTo(HaveOccurred())
		Expect(podOf(ctx, ns, "thread").UID).To(Equal(pod.UID), "its thread has it still")
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveExactElements(Satisfy(func(r runtimev1.Run) bool { return !r.Ended() })), "and it runs")
		Expect(t.Terminate(ctx)).To(Succeed())
	}, SpecTimeout(12*time.Minute))

	It("a busy time makes more pods wait", func(ctx SpecContext) {
		ns := namespace(ctx)
		most := int32(4)
		p := poolOf(ctx, ns, func(s *skeinv1.SandboxPoolSpec) { s.Warm, s.MaxWarm = 1, &most })
		says(ctx, p, skeinv1.ReasonWarm)
		echo(ctx, ns)
		// All at once: what counts is how many claims there are in half a minute.
		var busy sync.WaitGroup
		threads := []*harness.Thread{thread(ctx, ns, "a"), thread(ctx, ns, "b"), thread(ctx, ns, "c")}
		for _, t := range threads {
			busy.Go(func() {
				defer GinkgoRecover()
				serves(ctx, t)
			})
		}
		busy.Wait()
		Eventually(ctx, func(g Gomega) {
			g.Expect(sandboxes(ctx, g, ns, client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Warm})).To(HaveLen(3))
		}).Should(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status).To(And(HaveField("DesiredWarm", int32(3)), HaveField("Warm", int32(3)), HaveField("Claimed", int32(3))))
		}).WithTimeout(2 * patience).Should(Succeed()) // counts are shown together, after half a minute
	}, SpecTimeout(12*time.Minute))
})
