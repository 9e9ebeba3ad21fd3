package main

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/build"
)

var _ = Describe("kubectl skein dev", Label("K8S-04"), func() {
	var out *lockedBuffer
	object := func(apiVersion, kind, name string, spec map[string]any) build.Object {
		return build.Object{Fields: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
	}
	agent := func(name, title string) build.Object {
		return object("skein.dev/v1alpha1", "Agent", name, map[string]any{"title": title, "sideA": map[string]any{"promptRef": map[string]any{"name": "p"}}})
	}
	start := func(ctx context.Context, ns string) (*plugin, *scratch) {
		GinkgoHelper()
		p := &plugin{IOStreams: genericiooptions.IOStreams{Out: out, ErrOut: out}, flags: genericclioptions.NewConfigFlags(true)}
		p.flags.KubeConfig, p.flags.Namespace = ptr.To(kubeconfig), &ns
		session := &session{}
		session.out.Store(p)
		s, err := p.newScratch(ctx, session.say)
		Expect(err).NotTo(HaveOccurred())
		return p, s
	}

	BeforeEach(func() { out = &lockedBuffer{} })

	It("applies what has changed, deletes what is no more, and leaves what was there", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		mine := &skeinv1.Agent{}
		mine.Namespace, mine.Name, mine.Spec.SideA.PromptRef = ns, "mine", skeinv1.LocalRef{Name: "p"}
		Expect(env.Client.Create(ctx, mine)).To(Succeed())
		p, s := start(ctx, ns)
		Expect(s.made).To(BeFalse())
		_, used, err := p.config()
		Expect(err).NotTo(HaveOccurred())
		Expect(used).To(Equal(ns))

		Expect(s.apply(ctx, &build.Result{Objects: []build.Object{agent("mine", "one"), agent("a", "one"), agent("b", "one")}})).To(Succeed())
		Expect(out.String()).To(And(ContainSubstring("agent/mine applied"), ContainSubstring("agent/a applied"), ContainSubstring("sandboxpool/default applied")))
		out = &lockedBuffer{}
		p.ErrOut = out
		Expect(s.apply(ctx, &build.Result{Objects: []build.Object{agent("mine", "one"), agent("a", "two")}})).To(Succeed())
		Expect(out.String()).To(And(ContainSubstring("agent/a applied"), ContainSubstring("agent/b deleted"), Not(ContainSubstring("agent/mine")), Not(ContainSubstring("sandboxpool"))))
		Expect(s.apply(ctx, &build.Result{Objects: []build.Object{object("v1", "Namespace", "x", nil)}})).To(MatchError(ContainSubstring("only objects of a namespace")))
		Expect(s.apply(ctx, &build.Result{Objects: []build.Object{object("skein.dev/v1alpha1", "Agent", "c", map[string]any{})}})).To(MatchError(ContainSubstring("agent/c")))

		Expect(s.remove(ctx, false)).To(Succeed())
		var agents skeinv1.AgentList
		Expect(env.Client.List(ctx, &agents, client.InNamespace(ns))).To(Succeed())
		Expect(agents.Items).To(ConsistOf(HaveField("Name", "mine")))
		var pools skeinv1.SandboxPoolList
		Expect(env.Client.List(ctx, &pools, client.InNamespace(ns))).To(Succeed())
		Expect(pools.Items).To(BeEmpty())
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})).To(Succeed())
	})

	It("has a namespace of its own for each session, and deletes no other", func(ctx SpecContext) {
		var wait sync.WaitGroup
		var mu sync.Mutex
		all := map[string]*scratch{}
		for range 20 {
			wait.Go(func() {
				defer GinkgoRecover()
				_, s := start(ctx, "")
				mu.Lock()
				defer mu.Unlock()
				all[s.namespace.Name] = s
			})
		}
		wait.Wait()
		Expect(all).To(HaveLen(20))
		Expect(all).To(HaveKey("skein-dev-" + devUser()))
		kept := ""
		for name, s := range all {
			Expect(s.made).To(BeTrue())
			Expect(s.remove(ctx, kept == "")).To(Succeed())
			if kept == "" {
				kept = name
			}
		}
		for name := range all {
			var ns corev1.Namespace
			err := env.Client.Get(ctx, client.ObjectKey{Name: name}, &ns)
			if name == kept {
				Expect(err).NotTo(HaveOccurred())
				Expect(ns.DeletionTimestamp).To(BeNil())
				Expect(ns.Labels).To(HaveKeyWithValue(labelDev, devUser()))
				continue
			}
			Expect(apierrors.IsNotFound(err) || ns.DeletionTimestamp != nil).To(BeTrue(), name)
		}
		_, s := start(ctx, "")
		Expect(out.String()).To(ContainSubstring("kubectl delete namespace " + kept))
		Expect(s.remove(ctx, false)).To(Succeed())
		Expect(all[kept].remove(ctx, false)).To(Succeed())
	})

	It("knows which agent to chat with", func() {
		two := &build.Result{Objects: []build.Object{agent("a", ""), agent("b", "")}}
		Expect(agentOf(two, "b")).To(Equal("b"))
		Expect(agentOf(&build.Result{Objects: two.Objects[:1]}, "")).To(Equal("a"))
		for wanted, says := range map[string]string{"": "set --agent to the agent to chat with: a, b", "c": "the folder has the agents: a, b"} {
			_, err := agentOf(two, wanted)
			Expect(err).To(MatchError(ContainSubstring(says)))
		}
		_, err := agentOf(&build.Result{}, "")
		Expect(err).To(MatchError(ContainSubstring("has no Agent to chat with")))
		Expect(plain("dev").err).To(ContainSubstring("DIR is missing"))
		Expect(plain("dev", "nowhere").err).To(ContainSubstring("nowhere"))
		Expect(plain("dev", ".", "--check=x").err).To(ContainSubstring("auto, always or never"))
	})
})
