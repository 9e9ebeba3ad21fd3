package engine_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// readings counts how often messages are read.
type readings struct {
	store.Store
	n atomic.Int64
}

func (r *readings) Messages(ctx context.Context, id string, q store.MessageQuery) (*store.MessagePage, error) {
	r.n.Add(1)
	return r.Store.Messages(ctx, id, q)
}

var _ = Describe("A conversation between two runs", Label("RUN-01"), func() {
	It("is kept in memory, and read again after a change from outside", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("a")
		m := listening(w, says("said"))
		counted := &readings{Store: w.Store}
		start(w, func(o *engine.Options) { o.Threads = w.Over(counted) })
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		turn := func(text string) []string {
			GinkgoHelper()
			send(ctx, w, id, text)
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			all := m.requests()
			return view(all[len(all)-1])
		}

		Expect(turn("one")).To(Equal([]string{"user one"}))
		before := counted.n.Load()
		Expect(turn("two")).To(Equal([]string{"user one", "assistant said", "user two"}))
		Expect(counted.n.Load()).To(Equal(before), "what it has said itself it knows")

		messages, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		edited := "ONE"
		_, err = st.UpdateMessage(ctx, messages[0].ID, thread.MessageUpdate{Content: &edited})
		Expect(err).NotTo(HaveOccurred())
		Expect(turn("three")).To(Equal([]string{"user ONE", "assistant said", "user two", "assistant said", "user three"}))

		Expect(st.DeleteMessage(ctx, messages[1].ID)).To(BeTrue())
		put := "put there"
		_, err = st.Inject(ctx, thread.NewMessage{Role: store.RoleUser, Content: &put})
		Expect(err).NotTo(HaveOccurred())
		Expect(turn("four")).To(Equal([]string{"user ONE", "user two", "assistant said", "user three", "assistant said", "user put there", "user four"}))

		Expect(w.Store.Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})).To(Succeed())
		Expect(turn("five")).To(Equal([]string{"user five"}))
	})

	It("shows what was edited and removed while a run was under way, to its next step and to later runs", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV))
		m := newHeld()
		w.Models = m
		start(w)
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{"one", "two"} {
			send(ctx, w, id, text)
			m.says("a", "said "+text)
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		}

		send(ctx, w, id, "three")
		Eventually(m.asked).Should(Receive())
		Expect(<-m.history).To(Equal([]string{"user: one", "assistant: said one", "user: two", "assistant: said two", "user: three"}))
		messages, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.UpdateMessage(ctx, messages[0].ID, thread.MessageUpdate{Content: ptr.To("ONE")})
		Expect(err).NotTo(HaveOccurred())
		Expect(st.DeleteMessage(ctx, messages[1].ID)).To(BeTrue())
		m.answers <- toolCall("get_value", `{"key":"k"}`)
		m.says("a", "said three")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		now := []string{"user: ONE", "user: two", "assistant: said two", "user: three", "assistant ->get_value", "tool: null"}
		Expect(m.read[2]).To(Equal(now))

		send(ctx, w, id, "four")
		m.says("a", "said four")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(m.read[3]).To(Equal(append(now, "assistant: said three", "user: four")))
	})

	It("leaves out the messages within called prompts", func(ctx SpecContext) {
		w := newWorld()
		m := newHeld()
		w.Models = m
		w.Definitions.Put("child")
		w.Definitions.Put("a", func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{
				Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true, ParentCommunication: skeinv1.CommunicationImplicit,
			}}
		}, enginetest.CallsPrompt("delegate", skeinv1.PromptTool{}, enginetest.Builtin(skeinv1.BuiltinSubagents)))
		start(w, func(o *engine.Options) { o.Limits.ContextMessages = 4 }) // as many as the first turn leaves
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		m.calls("a", "c1", "delegate", `{"message":"it"}`)
		m.calls("delegate", "c2", "subagent_create", `{"agent":"helper","message":"figures"}`)
		m.says("child", "checked")
		m.says("delegate", "delegated")
		m.says("a", "done")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		send(ctx, w, id, "again")
		m.says("a", "done again")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(m.read[5]).To(Equal([]string{"user: go", "assistant ->delegate", "tool: delegated", "assistant: done", "user: again"}))
	})
})
