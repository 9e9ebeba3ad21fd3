package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("What code logs", Label("LOG-03"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})

	// lines of a thread, as "level source: message".
	lines := func(ctx context.Context, id string) []string {
		GinkgoHelper()
		events, err := w.Store.Lines(ctx, id, store.LineQuery{Limit: 10_000})
		Expect(err).NotTo(HaveOccurred())
		out := []string{}
		for i := range events {
			var l store.CodeLine
			Expect(json.Unmarshal(events[i].Data, &l)).To(Succeed())
			out = append(out, l.Level+" "+l.Source+": "+l.Message)
		}
		return out
	}
	compiled := func(source string) sandbox.Module {
		GinkgoHelper()
		m, failed := compile.Compile("code.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		return m
	}

	It("in a tool is in the events of the run, before the call's end", Label("TOL-02"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state) => {
  console.log('seen', { a: 1 }); console.warn('careful');
  state.waitUntil((async () => { await state.getValue('x'); throw new Error('too late') })());
  return 'ok';
}`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r.Status).To(Equal(store.RunSucceeded), r.Message)
		Expect(lines(ctx, id)).To(HaveExactElements("info tool/t: seen { a: 1 }", "warn tool/t: careful",
			And(HavePrefix("error tool/t: work after the response failed: Error: too late"), ContainSubstring("tool.ts:3:"))))
		events, err := w.Store.Events(ctx, id, 0, 1000)
		Expect(err).NotTo(HaveOccurred())
		kinds := []string{}
		for _, e := range events {
			switch e.Type {
			case store.EventCodeLog:
				Expect(e.RunID).To(Equal(r.ID))
				var l store.CodeLine
				Expect(json.Unmarshal(e.Data, &l)).To(Succeed())
				Expect(l.Time).To(BeNumerically(">", 0))
				Expect(l.Call).NotTo(BeEmpty())
				kinds = append(kinds, e.Type)
			case store.EventRunEnded, store.EventToolStarted:
				kinds = append(kinds, e.Type)
			}
		}
		Expect(kinds).To(Equal([]string{store.EventToolStarted, store.EventCodeLog, store.EventCodeLog, store.EventCodeLog, store.EventRunEnded}))
	})

	It("in a hook", Label("HOK-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", hook(skeinv1.HookBeforeCreateMessage, `export default defineHook('before_create_message', async (state, m) => { console.info('about to say', m.role); return m; });`),
			enginetest.Script(enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(lines(ctx, id)).To(ContainElement("info hook/before_create_message: about to say assistant"))
	})

	It("in an effect, with why it failed", Label("EFF-02"), func(ctx SpecContext) {
		w.Definitions.PutEffect("remind", definition.Effect{ObjectName: "remind", Module: compiled(`export default async () => { console.debug('at work'); throw new RangeError('too far'); }`)})
		start(w)
		id := makeThread(ctx, w, "a")
		f := store.Firing{EffectID: uuid.NewString(), Due: time.Now().UnixMicro(), ThreadID: id, Namespace: enginetest.Namespace, Name: "se", Effect: "remind", Args: enginetest.JSON(nil)}
		Expect(w.Store.RecordFiring(ctx, f)).To(BeTrue())
		Eventually(func() []string { return lines(ctx, id) }).Should(HaveExactElements("debug effect/remind: at work", HavePrefix("error effect/remind: RangeError: too far")))
		events, err := w.Store.Lines(ctx, id, store.LineQuery{})
		Expect(err).NotTo(HaveOccurred())
		for i := range events {
			var l store.CodeLine
			Expect(json.Unmarshal(events[i].Data, &l)).To(Succeed())
			Expect(l.Firing).To(Equal("se/" + time.UnixMicro(f.Due).UTC().Format(time.RFC3339Nano)))
		}
	})

	It("in an endpoint, with the stack that its client does not get", Label("END-01"), func(ctx SpecContext) {
		w.Definitions.PutEndpoint("GET /x", definition.Endpoint{ObjectName: "report", Module: compiled(endpointHead +
			`export default defineThreadEndpoint(async () => { console.log('asked'); throw new Error('no report'); });`)})
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		err := e.ServeEndpoint(ctx, id, endpoints.Request{Method: "GET", Path: []string{"x"}, URL: "https://skein.example/x"}, &answered{})
		Expect(err).To(MatchError(ContainSubstring("its code failed: Error: no report")))
		Expect(lines(ctx, id)).To(HaveExactElements("info endpoint/report: asked", And(HavePrefix("error endpoint/report: Error: no report"), ContainSubstring("code.ts:"))))
	})

	It("in a handler, beside its logger", Label("AGT-09"), func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Counter', { handler: async (ctx) => { console.log('first'); ctx.logger.info('second'); console.error('third'); return 'done'; } });`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r.Status).To(Equal(store.RunSucceeded), r.Message)
		Expect(lines(ctx, id)).To(ConsistOf("info handler/a: first", "info : second", "error handler/a: third"))
	})

	It("in a tool that is called from outside comes with its result too", Label("TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state) => { console.log('beside'); state.waitUntil(Promise.reject(new Error('late'))); return 'ok'; }`))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		res, err := e.InvokeTool(ctx, id, "", "t", enginetest.JSON(map[string]any{}))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(Equal("ok"))
		Expect(res.Logs).To(HaveExactElements(And(HaveField("Level", "info"), HaveField("Message", "beside")),
			And(HaveField("Level", "error"), HaveField("Message", HavePrefix("work after the response failed: Error: late")))))
		Expect(lines(ctx, id)).To(HaveLen(2))
	})

	It("by twenty calls at once is all there, each in its order", func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state, args) => { for (let i = 0; i < 5; i++) { console.log(args.n, i); await state.getValue('x'); } return 'ok'; }`))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		var group sync.WaitGroup
		for n := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				res, err := e.InvokeTool(ctx, id, "", "t", enginetest.JSON(map[string]any{"n": n}))
				Expect(err).NotTo(HaveOccurred())
				Expect(res.Logs).To(HaveLen(5))
			})
		}
		group.Wait()
		byCall := map[string][]string{}
		for _, l := range lines(ctx, id) {
			n, i, _ := strings.Cut(strings.TrimPrefix(l, "info tool/t: "), " ")
			byCall[n] = append(byCall[n], i)
		}
		Expect(byCall).To(HaveLen(20))
		Expect(byCall).To(HaveEach(Equal([]string{"0", "1", "2", "3", "4"})))
	})

	It("is without secrets, wherever it is cut", Label("ENV-03"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", fmt.Sprintf(`export default async () => {
  console.log('key', 'hush-hush'); console.log('x'.repeat(%d) + 'hush-hush'); console.log('y'.repeat(%d) + 'hush-hush' + 'z'.repeat(100)); return 'ok';
}`, codelog.MaxLine-4, 64<<10-5)), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("done")))
		start(w, func(o *engine.Options) {
			o.Redact = func(_, text string) string { return strings.ReplaceAll(text, "hush-hush", "***") }
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		got := lines(ctx, id)
		Expect(got).To(HaveLen(3))
		Expect(got[0]).To(Equal("info tool/t: key ***"))
		Expect(got).To(HaveEach(Not(ContainSubstring("hus"))))
		for _, l := range got {
			Expect(len(l)).To(BeNumerically("<=", codelog.MaxLine+100))
		}
	})

	It("is bounded for a run, and says how much was dropped", func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async () => { for (let i = 0; i < 3000; i++) console.log('line', i); return 'ok'; }`),
			enginetest.Script(enginetest.Call("t", nil), enginetest.Call("t", nil), enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r.Status).To(Equal(store.RunSucceeded), r.Message)
		dropped := fmt.Sprintf("warn : … %d lines dropped", 6000-codelog.MaxRunLines)
		var got []string
		Eventually(func() string {
			got = lines(ctx, id)
			return got[len(got)-1]
		}).Should(Equal(dropped))
		Expect(got).To(HaveLen(codelog.MaxRunLines + 2))
		Expect(got[codelog.MaxRunLines-1]).To(Equal(fmt.Sprintf("info tool/t: line %d", codelog.MaxRunLines-1)))
		Expect(got[codelog.MaxRunLines]).To(HavePrefix("warn : more than 1000 lines"))
	})

	It("is bounded for a thread: the oldest lines are dropped", func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state, args) => { for (let i = 0; i < 999; i++) console.log('line', args.n, i); return 'ok'; }`))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		for n := range 7 {
			_, err := e.InvokeTool(ctx, id, "", "t", enginetest.JSON(map[string]any{"n": n}))
			Expect(err).NotTo(HaveOccurred())
		}
		events, err := w.Store.Lines(ctx, id, store.LineQuery{Limit: 10_000})
		Expect(err).NotTo(HaveOccurred())
		Expect(events).To(HaveLen(codelog.MaxThreadLines))
		Expect(store.DroppedIn(&events[0])).To(BeEquivalentTo(7*999 - codelog.MaxThreadLines + 1))
		Expect(string(events[len(events)-1].Data)).To(ContainSubstring("line 6 998"))
	})
})
