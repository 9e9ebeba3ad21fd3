package engine_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Listeners of a module", Label("STA-06", "AGT-09"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})
	// logged returns what the code of a thread wrote to the console.
	logged := func(ctx context.Context, id string) (out []string) {
		GinkgoHelper()
		list, err := w.Store.Lines(ctx, id, store.LineQuery{})
		Expect(err).NotTo(HaveOccurred())
		for _, e := range list {
			var l store.CodeLine
			Expect(json.Unmarshal(e.Data, &l)).To(Succeed())
			out = append(out, l.Message)
		}
		return out
	}

	It("are told of the thread and of each session, in order", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`import { addEventListener } from '@agentuity/runtime';
for (const name of ['thread.created', 'thread.destroyed', 'session.started', 'session.completed', 'agent.started', 'agent.completed', 'agent.errored']) {
  addEventListener(name, (event, target) => console.log(event, target.id ?? target.metadata.name));
}
export default createAgent('A', { handler: async (ctx, input) => {
  if (input === 'bye') await ctx.thread.destroy();
  return 'done';
} });`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "hello")
		first := rest(ctx, w, id)
		Expect(first.Status).To(Equal(store.RunSucceeded), first.Message)
		var thread string
		Eventually(logged).WithContext(ctx).WithArguments(id).Should(HaveLen(5))
		told := logged(ctx, id)
		Expect(told[0]).To(HavePrefix("thread.created thrd_"))
		thread = told[0][len("thread.created "):]
		Expect(told).To(HaveExactElements("thread.created "+thread, "session.started "+first.ID, "agent.started A", "agent.completed A", "session.completed "+first.ID))

		send(ctx, w, id, "bye")
		second := rest(ctx, w, id)
		Expect(second.Status).To(Equal(store.RunSucceeded), second.Message)
		Eventually(logged).WithContext(ctx).WithArguments(id).Should(HaveLen(10))
		Expect(logged(ctx, id)[5:]).To(HaveExactElements("session.started "+second.ID, "agent.started A", "thread.destroyed "+thread, "agent.completed A", "session.completed "+second.ID))
	})

	DescribeTable("have names that are known", func(ctx SpecContext, source, says string) {
		w.Definitions.Put("a", handler(`import { addEventListener } from '@agentuity/runtime';
`+source, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "hello")
		run := rest(ctx, w, id)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonHandlerFailed, ContainSubstring(says)))
	},
		Entry("of the module", `addEventListener('session.begun', () => {});
export default createAgent('A', { handler: async () => 'done' });`,
			`there is no event "session.begun" here: use thread.created, thread.destroyed, session.started, session.completed, agent.started, agent.completed, agent.errored`),
		Entry("of an agent", `const agent = createAgent('A', { handler: async () => 'done' });
agent.addEventListener('agent.started', () => {});
export default agent;`, `there is no event "agent.started" here: use started, completed, errored`),
		Entry("of the session", `export default createAgent('A', { handler: async (ctx) => { ctx.session.addEventListener('ended', () => {}); } });`,
			`there is no event "ended" here: use completed`),
		Entry("of the thread", `export default createAgent('A', { handler: async (ctx) => { ctx.thread.addEventListener('created', () => {}); } });`,
			`there is no event "created" here: use destroyed`),
	)
})
