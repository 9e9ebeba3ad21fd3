package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// reads is an agent that reads the thread that a message names, with what the agent may read.
func reads(rights skeinv1.ReadThreads) []func(*definition.Agent) {
	ask := enginetest.Call("read_thread", map[string]any{"thread": "{{.Last.Content}}", "goal": "the price of apples"})
	ask.When, ask.Times = &skeinv1.ScriptMatch{Role: "user"}, new(int32)
	return []func(*definition.Agent){
		enginetest.Builtin(skeinv1.BuiltinThreads), enginetest.Script(ask, enginetest.Say("read")),
		func(a *definition.Agent) { a.Spec.ReadThreads = rights },
	}
}

// relationships gives the relationships of a thread, without the names of the other ends.
func relationships(ctx context.Context, w *enginetest.World, id string) []store.Relationship {
	GinkgoHelper()
	rs, _, err := w.Store.Relationships(ctx, id, 0, 0)
	Expect(err).NotTo(HaveOccurred())
	for i := range rs {
		rs[i].Name = ""
	}
	return rs
}

// lastResult returns the last result of a call in a thread.
func lastResult(ctx context.Context, w *enginetest.World, id string) string {
	GinkgoHelper()
	lines := told(ctx, w, id)
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "tool ") {
			return lines[i]
		}
	}
	return ""
}

var _ = Describe("Reading another thread", Label("REL-04"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	// talked makes a thread with a conversation.
	talked := func(ctx context.Context, change ...func(*thread.NewThread)) string {
		GinkgoHelper()
		w.Definitions.Put("shop", enginetest.Script(enginetest.Say("apples cost 3")))
		id := makeThread(ctx, w, "shop", change...)
		send(ctx, w, id, "what do apples cost?")
		rest(ctx, w, id)
		return id
	}

	It("gives the conversation and records one mention at both ends", func(ctx SpecContext) {
		start(w)
		other := talked(ctx)
		w.Definitions.Put("reader", reads(skeinv1.ReadThreadsNamespace)...)
		id := makeThread(ctx, w, "reader")
		for _, name := range []string{"t-" + other[:8], other, "@T-" + strings.ToUpper(other), other[len(other)-12:]} {
			send(ctx, w, id, name)
			rest(ctx, w, id)
			Expect(lastResult(ctx, w, id)).To(And(HavePrefix("tool read_thread success"), ContainSubstring("T-"+other), ContainSubstring("user"), ContainSubstring("apples cost 3")), name)
		}
		own := relationships(ctx, w, id)
		Expect(own).To(HaveExactElements(And(HaveField("ThreadID", other), HaveField("Type", store.RelationMention),
			HaveField("Role", store.RelationParent), HaveField("MessageIndex", BeEquivalentTo(1)), HaveField("CreatedAt", BeNumerically(">", 0)))))
		mirror := own[0]
		mirror.ThreadID, mirror.Role = id, store.RelationChild
		Expect(relationships(ctx, w, other)).To(HaveExactElements(mirror))
	})

	It("finds the thread that has a name now, however many had it before", func(ctx SpecContext) {
		start(w)
		for i := range 101 {
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			_, _, err := w.Store.CreateThread(ctx, store.Thread{ID: id, Namespace: enginetest.Namespace, Name: "nightly", Agent: "shop", CreatedAt: int64(i + 1)})
			Expect(err).NotTo(HaveOccurred())
			Expect(w.Store.Apply(ctx, id, nil, &store.Retain{})).To(Succeed())
		}
		other := talked(ctx, func(n *thread.NewThread) { n.Name = "nightly" })
		w.Definitions.Put("reader", reads(skeinv1.ReadThreadsNamespace)...)
		id := makeThread(ctx, w, "reader")
		send(ctx, w, id, "nightly")
		rest(ctx, w, id)
		Expect(lastResult(ctx, w, id)).To(And(HavePrefix("tool read_thread success"), ContainSubstring("T-"+other), ContainSubstring("apples cost 3")))
	})

	It("obeys the rights of the agent, and says the same of what is not there", func(ctx SpecContext) {
		start(w)
		other := talked(ctx, func(n *thread.NewThread) { n.UserID = "ada" })
		foreign := talked(ctx, func(n *thread.NewThread) { n.UserID = "bob" })
		nobodys := talked(ctx)
		retained := talked(ctx, func(n *thread.NewThread) { n.UserID = "ada" })
		Expect(w.Store.Apply(ctx, retained, nil, &store.Retain{})).To(Succeed())
		abroad := talked(ctx, func(n *thread.NewThread) { n.UserID = "ada" })
		elsewhere, _, err := w.Threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "00000000-0000-4000-8000-00000000000a", Namespace: "elsewhere", Name: "x", Agent: "shop", UserID: "ada"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.Apply(ctx, abroad, nil, &store.Terminate{Reason: "x"})).To(Succeed())
		try := func(rights skeinv1.ReadThreads, user, name string) string {
			GinkgoHelper()
			w.Definitions.Put("reader", reads(rights)...)
			id := makeThread(ctx, w, "reader", func(n *thread.NewThread) { n.UserID = user })
			if name == "" {
				name = id
			}
			send(ctx, w, id, name)
			rest(ctx, w, id)
			result := lastResult(ctx, w, id)
			if strings.HasPrefix(result, "tool read_thread error") {
				Expect(relationships(ctx, w, id)).To(BeEmpty())
			}
			return result
		}
		refused := And(HavePrefix("tool read_thread error"), ContainSubstring("there is no thread"), ContainSubstring("readThreads"))
		ok := HavePrefix("tool read_thread success")
		Expect(try(skeinv1.ReadThreadsSameUser, "ada", other)).To(ok)
		Expect(try(skeinv1.ReadThreadsSameUser, "ada", foreign)).To(refused)
		Expect(try(skeinv1.ReadThreadsSameUser, "", nobodys)).To(refused, "no user is not the same user")
		Expect(try(skeinv1.ReadThreadsNone, "ada", other)).To(refused)
		Expect(try(skeinv1.ReadThreadsFamily, "ada", other)).To(refused)
		Expect(try("", "ada", other)).To(refused, "the default is the family")
		Expect(try(skeinv1.ReadThreadsNamespace, "ada", foreign)).To(ok)
		Expect(try(skeinv1.ReadThreadsNamespace, "ada", retained)).To(refused)
		Expect(try(skeinv1.ReadThreadsNamespace, "ada", elsewhere.ID)).To(refused)
		Expect(try(skeinv1.ReadThreadsNamespace, "ada", "no-such-thread")).To(refused)
		Expect(try(skeinv1.ReadThreadsNamespace, "ada", "")).To(And(HavePrefix("tool read_thread error"), ContainSubstring("this conversation itself")))
		Expect(try(skeinv1.ReadThreadsNamespace, "ada", abroad)).To(And(ok, ContainSubstring("terminated")))
	})

	It("shortens a long conversation to what matters for the goal", func(ctx SpecContext) {
		start(w)
		other := talked(ctx)
		st, err := w.Threads.Open(ctx, other)
		Expect(err).NotTo(HaveOccurred())
		for i := range 30 {
			text := fmt.Sprintf("number %d: ", i) + strings.Repeat("filler ", 800)
			if i == 7 {
				text += " the PRICE of apples rose to 4"
			}
			_, err := st.Inject(ctx, thread.NewMessage{Content: &text})
			Expect(err).NotTo(HaveOccurred())
		}
		w.Definitions.Put("reader", reads(skeinv1.ReadThreadsNamespace)...)
		id := makeThread(ctx, w, "reader")
		send(ctx, w, id, other)
		rest(ctx, w, id)
		text := lastResult(ctx, w, id)
		Expect(len(text)).To(And(BeNumerically(">", 40<<10), BeNumerically("<", 50<<10)))
		Expect(text).To(And(ContainSubstring("what do apples cost?"), ContainSubstring("rose to 4"), ContainSubstring("number 29"), ContainSubstring("are left out]")))
		Expect(text).NotTo(ContainSubstring("number 15:"))
	})

	It("records one mention each when twenty threads read one at once", func(ctx SpecContext) {
		start(w)
		other := talked(ctx)
		w.Definitions.Put("reader", reads(skeinv1.ReadThreadsNamespace)...)
		var all sync.WaitGroup
		ids := make([]string, 20)
		for i := range ids {
			ids[i] = makeThread(ctx, w, "reader")
			all.Go(func() {
				defer GinkgoRecover()
				send(ctx, w, ids[i], other)
				send(ctx, w, ids[i], other)
			})
		}
		all.Wait()
		var want []store.Relationship
		for _, id := range ids {
			rest(ctx, w, id)
			own := relationships(ctx, w, id)
			Expect(own).To(HaveLen(1))
			own[0].ThreadID, own[0].Role = id, store.RelationChild
			want = append(want, own[0])
		}
		Expect(relationships(ctx, w, other)).To(ConsistOf(want))
	})
})
