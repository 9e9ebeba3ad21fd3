package engine_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("What a summary is made of", Label("MSG-12"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	It("has nothing that hooks hide from the prompt's model, near the end of the window and by hand", Label("HOK-01"), func(ctx SpecContext) {
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Minute, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Definitions.Put("a", compacting(1100),
			hook(skeinv1.HookFilterMessages, `export default defineHook('filter_messages', async (state, messages) => messages.filter((m) => !m.content?.startsWith('number-1.')));`),
			hook(skeinv1.HookPrefilterLLMHistory, `export default defineHook('prefilter_llm_history', async (state, history) => history.map((m) => ({ ...m, content: m.content && m.content.replace('number-2.', 'hidden') })));`))
		m := listening(w, remembering)
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		for n := range 8 {
			send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		}
		automatic := len(summariesOf(ctx, w, id))
		Expect(automatic).To(BeNumerically(">", 0))
		_, err = e.Compact(ctx, id, "", "")
		Expect(err).NotTo(HaveOccurred())
		quiet(ctx, w, id)
		asked, answered := summed(m.requests())
		Expect(len(asked)).To(BeNumerically(">", automatic))
		for _, req := range asked {
			Expect(req.Messages[1].Content).NotTo(Or(ContainSubstring("number-1. x"), ContainSubstring("number-2. x")))
		}
		Expect(fmt.Sprint(view(answered[len(answered)-1]))).To(ContainSubstring("<summary>"))
		Expect(eventsOf(ctx, w, id, store.EventHookFailed)).To(BeEmpty())
	})

	It("is in the log without secrets", Label("ENV-03"), func(ctx SpecContext) {
		w.Definitions.Put("a", compacting(1100))
		listening(w, func(n int, req model.Request) *model.Response {
			if strings.HasPrefix(req.Messages[0].Content, memory) {
				return &model.Response{Content: "The key is hush-hush."}
			}
			return remembering(n, req)
		})
		start(w, func(o *engine.Options) {
			o.Redact = func(_, text string) string { return strings.ReplaceAll(text, "hush-hush", "***") }
		})
		id := makeThread(ctx, w, "a")
		for n := range 8 {
			send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
			rest(ctx, w, id)
		}
		Expect(summariesOf(ctx, w, id)).To(And(Not(BeEmpty()), HaveEach(HaveField("Content", HaveValue(Equal("The key is ***."))))))
	})

	It("does not end within a call that waits, and leaves the run waiting", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinWait))
		listening(w, func(n int, req model.Request) *model.Response {
			if last := req.Messages[len(req.Messages)-1]; last.Content == "wait" {
				return toolCall("wait", `{"delayMs":3600000}`)
			}
			return remembering(n, req)
		})
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		for n := range 4 {
			send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
			rest(ctx, w, id)
		}
		send(ctx, w, id, "wait")
		Eventually(func(g Gomega) {
			runs, err := w.Runs(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(runs[len(runs)-1].Status).To(Equal(store.RunWaiting))
		}).WithContext(ctx).Should(Succeed())
		_, err := e.Compact(ctx, id, "", "")
		Expect(err).NotTo(HaveOccurred())
		quiet(ctx, w, id)
		summaries := summariesOf(ctx, w, id)
		Expect(summaries).To(HaveLen(1))
		all, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for _, msg := range all {
			if len(msg.ToolCalls) > 0 {
				Expect(msg.Seq).To(BeNumerically(">", summaries[0].Summary.ToSeq))
			}
		}
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[len(runs)-1].Status).To(Equal(store.RunWaiting), "it still waits")
	})
})
