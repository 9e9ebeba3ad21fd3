package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// handsOff is an agent that hands off to a thread of another agent.
func handsOff(args map[string]any) []func(*definition.Agent) {
	again := func(s skeinv1.ScriptStep, m *skeinv1.ScriptMatch) skeinv1.ScriptStep {
		s.When, s.Times = m, new(int32)
		return s
	}
	return []func(*definition.Agent){enginetest.Builtin(skeinv1.BuiltinHandoff), enginetest.Script(
		again(enginetest.Say("summary: apples cost 3"), &skeinv1.ScriptMatch{Role: "user", Matches: "^Goal of the new conversation"}),
		again(enginetest.Call("handoff", args), &skeinv1.ScriptMatch{Role: "user"}),
		enginetest.Say("handed off"))}
}

var _ = Describe("A context handoff", Label("REL-03"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	It("that the cluster refuses leaves nothing behind, and nothing runs after a restart", func(ctx SpecContext) {
		e, stop := start(w)
		w.Definitions.Put("old", handsOff(map[string]any{"goal": "sell apples", "agent": "new"})...)
		w.Definitions.Put("new", enginetest.Script(enginetest.Say("on it")), func(a *definition.Agent) { a.Spec.ExposeAsTool = true })
		id := makeThread(ctx, w, "old")
		send(ctx, w, id, "hello")
		rest(ctx, w, id)
		before := relationships(ctx, w, id)
		w.Objects.Refuse("a webhook says no")
		_, err := e.HandOff(ctx, id, related.Handoff{Cause: "refused", Goal: "one", Agent: "new"})
		Expect(err).To(MatchError(HaveSuffix("a webhook says no")))
		Expect(relationships(ctx, w, id)).To(Equal(before))
		Expect(w.Store.Retained(ctx, enginetest.Namespace, "", 10, 0)).To(BeEmpty())
		w.Objects.Refuse("")
		stop()
		declared := w.Objects.Declared()
		e, _ = start(w)
		Expect(w.Objects.Declared()).To(Equal(declared))
		Expect(e.HandOff(ctx, id, related.Handoff{Cause: "refused", Goal: "one", Agent: "new"})).To(HaveField("Existed", false), "a repeat begins anew")
	})

	It("starts a thread from a goal, a summary and files, and leaves the old one as it was", func(ctx SpecContext) {
		e, _ := start(w)
		w.Definitions.Put("old", handsOff(map[string]any{"goal": "sell apples", "agent": "new", "files": []string{"/price.csv"}, "comment": "too long", "title": "Apples"})...)
		w.Definitions.Put("new", enginetest.Script(enginetest.Say("on it")), func(a *definition.Agent) { a.Spec.ExposeAsTool = true })
		id := makeThread(ctx, w, "old", func(n *thread.NewThread) { n.UserID = "ada" })
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/price.csv", strings.NewReader("apples;3"), thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(lastResult(ctx, w, id)).To(HavePrefix("tool handoff success"))
		own := relationships(ctx, w, id)
		Expect(own).To(HaveExactElements(And(HaveField("Type", store.RelationHandoff), HaveField("Role", store.RelationParent),
			HaveField("MessageIndex", BeEquivalentTo(1)), HaveField("Comment", "too long"))))
		next := own[0].ThreadID
		mirror := own[0]
		mirror.ThreadID, mirror.Role = id, store.RelationChild
		Expect(relationships(ctx, w, next)).To(HaveExactElements(mirror))
		rest(ctx, w, next)
		made, err := w.Store.Thread(ctx, next)
		Expect(err).NotTo(HaveOccurred())
		Expect(*made).To(And(HaveField("Agent", "new"), HaveField("UserID", "ada"), HaveField("Title", "Apples"), HaveField("RetainedAt", BeZero()), HaveField("ParentID", "")))
		Expect(told(ctx, w, next)).To(HaveExactElements(And(HavePrefix("user: sell apples"), ContainSubstring("summary: apples cost 3"), ContainSubstring("T-"+id)), "assistant: on it"))
		files, err := w.Store.File(ctx, next, "/attachments/price.csv")
		Expect(err).NotTo(HaveOccurred())
		Expect(files.Size).To(BeEquivalentTo(8))
		Expect(told(ctx, w, id)).To(HaveLen(4), "go, the call, its result, the answer")
		records, err := w.Store.UsageRecords(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(records).To(ContainElement(And(HaveField("Task", HavePrefix("handoff ")), HaveField("Agent", "old"), HaveField("RunID", Not(BeEmpty())))))

		By("repeating it")
		again, err := e.HandOff(ctx, id, related.Handoff{Cause: "k", Goal: "one"})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Existed).To(BeFalse())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				got, err := e.HandOff(ctx, id, related.Handoff{Cause: "k", Goal: "one"})
				Expect(err).NotTo(HaveOccurred())
				Expect(got).To(HaveValue(And(HaveField("Existed", true), HaveField("Name", again.Name), HaveField("Thread.ID", again.Thread.ID))))
			})
		}
		all.Wait()
		Expect(relationships(ctx, w, id)).To(HaveLen(2))
		Expect(w.Objects.Declared()).To(Equal(2))
	})

	It("refuses what cannot be handed off", func(ctx SpecContext) {
		e, _ := start(w)
		w.Definitions.Put("old", handsOff(map[string]any{"goal": "x", "agent": "shy"})...)
		w.Definitions.Put("shy")
		w.Definitions.Put("mute", enginetest.Script(skeinv1.ScriptStep{Error: "no", Times: new(int32)}))
		id := makeThread(ctx, w, "old")
		refuse := func(h related.Handoff, field, text string) {
			GinkgoHelper()
			h.Cause = field + text
			_, err := e.HandOff(ctx, id, h)
			Expect(err).To(MatchError(ContainSubstring(text)))
			var invalid *thread.InvalidError
			Expect(errors.As(err, &invalid)).To(BeTrue())
			Expect(invalid.Field).To(Equal(field))
		}
		refuse(related.Handoff{Goal: "x"}, "goal", "no messages")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(lastResult(ctx, w, id)).To(And(HavePrefix("tool handoff error"), ContainSubstring("exposeAsTool")))
		refuse(related.Handoff{Goal: " "}, "goal", "say what")
		refuse(related.Handoff{Goal: "x", Agent: "none"}, "agent", "does not exist")
		refuse(related.Handoff{Goal: "x", Files: []string{"/none"}}, "files", "no file /none")
		refuse(related.Handoff{Goal: "x", Files: strings.Split(strings.Repeat("/f,", 10)+"/f", ",")}, "files", "at most 10")
		refuse(related.Handoff{Goal: "x", Comment: strings.Repeat("c", 5000)}, "comment", "more than 4096")
		Expect(w.Store.Apply(ctx, id, nil, &store.UpdateThread{})).To(Succeed())
		w.Definitions.Put("old", enginetest.Script(skeinv1.ScriptStep{Error: "overloaded", Times: new(int32)}))
		_, err := e.HandOff(ctx, id, related.Handoff{Cause: "m", Goal: "x"})
		Expect(err).To(BeAssignableToTypeOf(&related.ModelError{}))
		Expect(err).To(MatchError(And(ContainSubstring("overloaded"), ContainSubstring("nothing was handed off"))))
		Expect(relationships(ctx, w, id)).To(BeEmpty())
		Expect(w.Objects.Declared()).To(BeZero())
	})

	It("gets its object from the next manager when one ended before it could make it", func(ctx SpecContext) {
		w.Definitions.Put("old", handsOff(nil)...)
		id := makeThread(ctx, w, "old")
		kept := makeThread(ctx, w, "old") // retained in the usual way
		Expect(w.Store.Apply(ctx, kept, nil, &store.Retain{})).To(Succeed())
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		text := "hello"
		_, err = st.Inject(ctx, thread.NewMessage{Content: &text})
		Expect(err).NotTo(HaveOccurred())
		e, stop := start(w, func(o *engine.Options) {
			// As it starts, this manager too looks for threads without an object, perhaps not before HandOff has stored one.
			o.ThreadObjects = unreachableObjects{w.Objects}
			o.Faults = func(p string) {
				if p == "declare.before" {
					panic("crash")
				}
			}
		})
		Expect(func() { _, _ = e.HandOff(ctx, id, related.Handoff{Cause: "k", Goal: "go on"}) }).To(PanicWith("crash"))
		stop()
		Expect(w.Objects.Declared()).To(BeZero())
		start(w)
		next := relationships(ctx, w, id)[0].ThreadID
		rest(ctx, w, next)
		Expect(w.Objects.Declared()).To(Equal(1))
		Expect(w.Store.Retained(ctx, enginetest.Namespace, "", 0, 0)).To(ConsistOf(HaveField("ID", kept)))
	})

	It("ends a chain of handoffs that models ask for", func(ctx SpecContext) {
		start(w)
		w.Definitions.Put("old", handsOff(map[string]any{"goal": "go on"})...)
		id := makeThread(ctx, w, "old")
		send(ctx, w, id, "go")
		for range 20 {
			rest(ctx, w, id)
			rs := relationships(ctx, w, id)
			Expect(rs).To(ContainElement(HaveField("Role", store.RelationParent)))
			id = rs[len(rs)-1].ThreadID
		}
		rest(ctx, w, id)
		Expect(lastResult(ctx, w, id)).To(And(HavePrefix("tool handoff error"), ContainSubstring("20 handoffs")))
	})
})

// unreachableObjects creates no objects, as when the API server does not answer.
type unreachableObjects struct{ ports.ThreadObjects }

func (unreachableObjects) Declare(context.Context, *store.Thread, string) error {
	return errors.New("the API server does not answer")
}

var _ = Describe("A crash during a context handoff", Label("RUN-02", "REL-03", "REL-04"), func() {
	play := func(ctx SpecContext, point string, n int) map[string]int {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		w.Definitions.Put("old", handsOff(map[string]any{"goal": "sell", "agent": "new"})...)
		w.Definitions.Put("new", enginetest.Script(enginetest.Say("on it")), func(a *definition.Agent) { a.Spec.ExposeAsTool = true })
		c := cutAt(w, point, n)
		_, stop := start(w, c.options)
		id := makeThread(ctx, w, "old")
		send(ctx, w, id, "go")
		c.restOrCut(ctx, id, stop)
		_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		defer stop()
		rest(ctx, w, id)
		own := relationships(ctx, w, id)
		Expect(own).To(HaveLen(1), "after a crash at %s for the %d. time", point, n)
		Expect(w.Objects.Declared()).To(Equal(1))
		rest(ctx, w, own[0].ThreadID)
		Expect(told(ctx, w, own[0].ThreadID)).To(HaveLen(2))
		Expect(told(ctx, w, id)).To(HaveLen(4))
		retained, _, err := w.Store.Retained(ctx, enginetest.Namespace, "", 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(retained).To(BeEmpty())
		return c.reached()
	}

	It("makes one thread", func(ctx SpecContext) {
		points := play(ctx, "", 0)
		reaches("handoffs", points)
		atEachPoint(points, each, func(point string, n int) { play(ctx, point, n) })
	}, NodeTimeout(manyPlays))
})
