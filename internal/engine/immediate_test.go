package engine_test

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Immediate subagents", Label("SUB-07"), func() {
	kind := func(name string, edit ...func(*skeinv1.AgentSubagent)) skeinv1.AgentSubagent {
		k := skeinv1.AgentSubagent{Name: name, AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true, MaxInstances: 10,
			Immediate: true, Message: "look into " + name, ParentCommunication: skeinv1.CommunicationImplicit}
		for _, f := range edit {
			f(&k)
		}
		return k
	}
	with := func(kinds ...skeinv1.AgentSubagent) func(*definition.Agent) {
		return func(a *definition.Agent) { a.Spec.Subagents = kinds }
	}

	It("start before the first model step, without a tool of the prompt, and only with the thread", func(ctx SpecContext) {
		w := newWorld()
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("{{.Last.Content}}: {{.Arguments.depth}}")))
		w.Definitions.Put("parent", with(kind("law", func(k *skeinv1.AgentSubagent) { k.Arguments = &runtime.RawExtension{Raw: []byte(`{"depth":2}`)} }),
			kind("never", func(k *skeinv1.AgentSubagent) { k.Immediate = false })), enginetest.Script(enginetest.Say(`known: {{toolResult "subagent_create"}}`), enginetest.Say("more")))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create", "tool subagent_create success: look into law: 2", "assistant: known: look into law: 2"}))
		Expect(seen.tools("parent", 0)).To(BeEmpty(), "the model cannot start others")
		send(ctx, w, id, "again")
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(2))
		rest(ctx, w, id)
		Expect(w.Store.Children(ctx, id)).To(HaveLen(1))
	})

	It("are all started at once where they do not block, and a variable decides on optional ones", func(ctx SpecContext) {
		w, ring := newWorld(), &envkeys.Keyring{}
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(keyset)).To(BeTrue())
		w.Threads.ServeEnv(thread.EnvOptions{Cipher: ring, Layers: &required{}})
		seen := &spy{factory: w.Models}
		w.Models = seen
		free := func(k *skeinv1.AgentSubagent) {
			k.Blocking, k.ParentCommunication = false, skeinv1.CommunicationExplicit
		}
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("done")))
		optional := func(name string) func(*skeinv1.AgentSubagent) {
			return func(k *skeinv1.AgentSubagent) { k.Optional = name }
		}
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), with(kind("a", free), kind("b", free, optional("WITH_B")), kind("c", free, optional("WITH_C")), kind("d", free, optional("WITH_D"))),
			enginetest.Script(enginetest.Say("done")))
		w.Definitions.Put("none", enginetest.Builtin(skeinv1.BuiltinSubagents), with(kind("b", optional("WITH_B"))), enginetest.Script(enginetest.Say("done")))
		start(w)
		id, none := makeThread(ctx, w, "parent"), makeThread(ctx, w, "none")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for name, value := range map[string]string{"WITH_B": " Yes ", "WITH_C": "no"} {
			Expect(st.SetEnv(ctx, name, value, "text")).To(Succeed())
		}
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)[1]).To(Equal("assistant ->subagent_create ->subagent_create"))
		Expect(w.Store.Children(ctx, id)).To(ConsistOf(HaveField("Child.Name", "a"), HaveField("Child.Name", "b")))
		send(ctx, w, none, "go")
		rest(ctx, w, none)
		Expect(told(ctx, w, none)).To(Equal([]string{"user: go", "assistant: done"}))
		Expect(seen.tools("none", 0)).To(BeEmpty(), "what is not switched on is not offered either")
	})

	Describe("in a fork", Label("REL-02"), func() {
		// branch makes a fork, and returns it.
		branch := func(ctx context.Context, w *enginetest.World, name string, of thread.ForkOf) *thread.State {
			GinkgoHelper()
			_, _, err := w.Threads.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: name, Name: name}}, of)
			Expect(err).NotTo(HaveOccurred())
			fork, err := w.Threads.Open(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			return fork
		}
		// origin returns a world with a thread that has had its first run.
		origin := func(ctx context.Context, options ...func(*engine.Options)) (*enginetest.World, string) {
			GinkgoHelper()
			w := newWorld()
			w.Definitions.Put("child", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
			w.Definitions.Put("parent", with(kind("law")), enginetest.Script(skeinv1.ScriptStep{Times: new(int32), Content: "answer to {{.Last.Content}}"}))
			start(w, options...)
			id := makeThread(ctx, w, "parent")
			send(ctx, w, id, "go")
			rest(ctx, w, id)
			Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create", "tool subagent_create success: re: look into law", "assistant: answer to re: look into law"}))
			return w, id
		}

		It("are not started again, unless it begins before them", func(ctx SpecContext) {
			w, id := origin(ctx)
			branch(ctx, w, "behind", thread.ForkOf{ThreadID: id, Newest: true})
			send(ctx, w, "behind", "more")
			rest(ctx, w, "behind")
			Expect(told(ctx, w, "behind")[4:]).To(Equal([]string{"user: more", "assistant: answer to more"}))
			Expect(w.Store.Children(ctx, "behind")).To(BeEmpty())

			branch(ctx, w, "before", thread.ForkOf{ThreadID: id})
			_, err := w.Store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			send(ctx, w, "before", "more")
			rest(ctx, w, "before")
			Expect(told(ctx, w, "before")).To(Equal([]string{
				"user: go", "user: more", "assistant ->subagent_create", "tool subagent_create success: re: look into law", "assistant: answer to re: look into law"}))
			Expect(w.Store.Children(ctx, "before")).To(HaveLen(1))
		})

		It("are not started again by a run that is taken up, which answers to its input", Label("RUN-12"), func(ctx SpecContext) {
			w, id := origin(ctx)
			send(ctx, w, id, "again")
			run := rest(ctx, w, id)
			step, err := w.Threads.RunStep(ctx, id, run.ID, 1)
			Expect(err).NotTo(HaveOccurred())
			input := "something else"
			Expect(branch(ctx, w, "rerun", thread.ForkOf{ThreadID: id, Index: step.Last.Index}).Rerun(ctx, step, &input)).To(Succeed())
			rest(ctx, w, "rerun")
			Expect(told(ctx, w, "rerun")[4:]).To(Equal([]string{"user: something else", "assistant: answer to something else"}))
			Expect(w.Store.Children(ctx, "rerun")).To(BeEmpty())
		})

		It("are not started again where the run does not read that far back, also when an origin is gone", func(ctx SpecContext) {
			w, id := origin(ctx, func(o *engine.Options) { o.Limits.ContextMessages = 8 })
			for range 5 {
				send(ctx, w, id, "on")
				rest(ctx, w, id)
			}
			branch(ctx, w, "first", thread.ForkOf{ThreadID: id, Newest: true})
			branch(ctx, w, "second", thread.ForkOf{ThreadID: "first", Newest: true})
			branch(ctx, w, "third", thread.ForkOf{ThreadID: "first", Newest: true})
			send(ctx, w, "second", "more")
			rest(ctx, w, "second")
			for _, gone := range []string{id, "first"} {
				_, err := w.Store.PurgeThread(ctx, gone)
				Expect(err).NotTo(HaveOccurred())
			}
			send(ctx, w, "third", "more")
			rest(ctx, w, "third")
			for _, fork := range []string{"second", "third"} {
				Expect(told(ctx, w, fork)[14:]).To(Equal([]string{"user: more", "assistant: answer to more"}))
				Expect(w.Store.Children(ctx, fork)).To(BeEmpty())
			}
		})
	})

	It("are started once, whenever a crash comes", Label("RUN-02"), func(ctx SpecContext) {
		play := func(point string, n int) (points map[string]int, transcript []string) {
			w := newWorld()
			w.Logger = logr.Discard()
			w.Definitions.Put("child", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
			w.Definitions.Put("parent", with(kind("law"), kind("tax")), enginetest.Script(enginetest.Say(`known: {{toolResult "subagent_create"}}`)))
			c := cutAt(w, point, n)
			id := makeThread(ctx, w, "parent")
			_, stop := start(w, c.options)
			send(ctx, w, id, "go")
			c.restOrCut(ctx, id, stop)
			_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			defer stop()
			rest(ctx, w, id)
			Expect(w.Store.Children(ctx, id)).To(HaveLen(2))
			return c.reached(), told(ctx, w, id)
		}
		points, want := play("", 0)
		Expect(want).To(HaveLen(5))
		reaches("immediate", points)
		atEachPoint(points, each, func(point string, n int) {
			_, got := play(point, n)
			Expect(got[:2]).To(Equal(want[:2]), "after a crash at %s for the %d. time", point, n)
			Expect(got[2:4]).To(ConsistOf(want[2:4]))
			Expect(got[4:]).To(HaveLen(1))
		})
	}, NodeTimeout(manyPlays))
})
