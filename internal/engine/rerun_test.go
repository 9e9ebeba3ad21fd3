package engine_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A run that is taken up again", Label("RUN-12"), func() {
	It("goes on from a step in a fork, with another input, and the old one stays as it is", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool"}, Times: new(int32), Content: "It is {{.Last.Content}}."},
			skeinv1.ScriptStep{Times: new(int32), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("get_value", map[string]any{"key": "{{.Last.Content}}"})}},
		))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "before")
		rest(ctx, w, id)
		send(ctx, w, id, "one")
		run := rest(ctx, w, id)
		send(ctx, w, id, "after")
		rest(ctx, w, id)
		before := told(ctx, w, id)
		Expect(before).To(HaveLen(12))

		again := func(name string, n int, input *string) []string {
			GinkgoHelper()
			step, err := w.Threads.RunStep(ctx, id, run.ID, n)
			Expect(err).NotTo(HaveOccurred())
			_, _, err = w.Threads.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: name, Name: name}}, thread.ForkOf{ThreadID: id, Index: step.Last.Index})
			Expect(err).NotTo(HaveOccurred())
			fork, err := w.Threads.Open(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			Expect(fork.Rerun(ctx, step, input)).To(Succeed())
			Expect(fork.Rerun(ctx, step, input)).To(Succeed(), "a repeat changes nothing")
			Expect(rest(ctx, w, name).Status).To(Equal(store.RunSucceeded))
			runs, err := w.Runs(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			Expect(runs).To(HaveLen(1))
			return told(ctx, w, name)[4:]
		}
		two, seven := "two", "7"
		Expect(again("same", 1, nil)).To(HaveExactElements("user: one", "assistant ->get_value", ContainSubstring("tool get_value"), HavePrefix("assistant: It is")))
		Expect(again("edited", 1, &two)).To(HaveExactElements("user: two", "assistant ->get_value", ContainSubstring("tool get_value"), HavePrefix("assistant: It is")))
		Expect(again("later", 2, &seven)).To(HaveExactElements("user: one", "assistant ->get_value", "tool get_value success: 7", "assistant: It is 7."))
		Expect(told(ctx, w, id)).To(Equal(before))

		_, err := w.Threads.RunStep(ctx, id, run.ID, 3)
		Expect(err).To(MatchError(ContainSubstring("has 2 steps in the conversation: give one from 1 to 2, not 3")))
		_, err = w.Threads.RunStep(ctx, id, "sess_none", 1)
		Expect(err).To(MatchError(store.ErrNotFound))
	})
})
