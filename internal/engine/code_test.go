package engine_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// codeTool adds a Tool object with this code to an agent.
func codeTool(name, source string, change ...func(*definition.Tool)) func(*definition.Agent) {
	return func(a *definition.Agent) {
		m, failed := compile.Compile("tool.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		t := definition.Tool{ObjectName: name, Name: name, Module: m, Digest: name + source, Spec: skeinv1.ToolSpec{Description: name}}
		for _, c := range change {
			c(&t)
		}
		a.A.Tools = append(a.A.Tools, t)
		a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Name: name})
	}
}

const head = `import { defineTool } from '@standardagents/builder';
import { z } from 'zod';
`

var _ = Describe("Code", func() {
	var w *enginetest.World
	var sandboxes *enginetest.Processes
	BeforeEach(func() {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})
	AfterEach(func() {
		// After the run has ended, which a spec may have seen before its sandbox was let go of.
		Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero(), "every sandbox is given back")
	})

	// play runs one turn of an agent with these tools and gives its messages.
	play := func(ctx context.Context, change ...func(*definition.Agent)) []string {
		GinkgoHelper()
		w.Definitions.Put("a", change...)
		_, stop := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		stop()
		return told(ctx, w, id)
	}

	It("of a tool runs in the sandbox with the thread as its state", Label("TOL-02", "TOL-03"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("totals", head+`
export default defineTool({
  description: 'Adds up orders.',
  args: z.object({ path: z.string() }),
  execute: async (state, args) => {
    const data = await state.readFile(args.path);
    if (!data) return { status: 'error', error: 'no such file' };
    const lines = new TextDecoder().decode(data).trim().split('\n').slice(1);
    const total = lines.reduce((sum, l) => sum + Number(l.split(',')[1]), 0);
    await state.setValue('total', total);
    await state.writeFile('/total.txt', String(total), 'text/plain');
    return { status: 'success', result: { total, rows: lines.length }, attachments: [{ path: '/total.txt' }] };
  },
});`), enginetest.Script(
			enginetest.Call("totals", map[string]any{"path": "/orders.csv"}),
			enginetest.Say(`The total is {{(toolResult "totals").total}}.`)))
		start(w)
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/orders.csv", strings.NewReader("id,amount\n1,1200000.5\n2,34.25\n"), thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->totals", `tool totals success: {"rows":2,"total":1200034.75}`, "assistant: The total is 1200034.75."}))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs[2].Attachments).To(HaveExactElements(And(HaveField("Path", "/total.txt"), HaveField("Size", BeNumerically("==", 10)))))
		v, err := st.Value(ctx, "total")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(v)).To(Equal("1200034.75"))
	})

	It("of the tools of one run shares state.context, and loses it with the run", Label("STA-08"), func(ctx SpecContext) {
		w.Definitions.Put("a",
			codeTool("put", head+`export default defineTool({ description: 'p', execute: async (state) => { state.context.n = (state.context.n ?? 0) + 1; return 'put'; } });`),
			codeTool("get", head+`export default defineTool({ description: 'g', execute: async (state) => String(state.context.n) });`),
			enginetest.Script(
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "first"}, ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("put", nil), enginetest.ToolCall("get", nil)}},
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "second"}, ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("get", nil)}},
				enginetest.Say("ok")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "first")
		rest(ctx, w, id)
		send(ctx, w, id, "second")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElements("tool get success: 1", "tool get success: undefined"))
		acquired, _ := sandboxes.Counts()
		Expect(acquired).To(Equal(2), "one a run")
	})

	It("is not asked for when no code is called", func(ctx SpecContext) {
		play(ctx, codeTool("t", `export default () => 1`, func(t *definition.Tool) {
			t.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}
		}), enginetest.Script(enginetest.Say("no need")))
		acquired, _ := sandboxes.Counts()
		Expect(acquired).To(BeZero())
	})

	It("runs in the pool that the agent names", func(ctx SpecContext) {
		play(ctx, func(a *definition.Agent) { a.Spec.SandboxPoolRef = &skeinv1.LocalRef{Name: "big"} },
			codeTool("t", `export default () => 1`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("x")))
		Expect(sandboxes.Pools()).To(HaveEach("big"))
	})

	It("is checked by the schema that it declares itself, before the call", Label("TOL-02"), func(ctx SpecContext) {
		lines := play(ctx, codeTool("t", head+`export default defineTool({ description: 'd', args: z.object({ n: z.number() }), execute: async (_, a) => a.n });`),
			enginetest.Script(enginetest.Call("t", map[string]any{"n": "seven"}), enginetest.Call("t", map[string]any{"n": 7}), enginetest.Say("x")))
		Expect(lines[2]).To(Equal("tool t error: the arguments do not fit the tool's schema: /n: got string, want number. Call the tool again with these corrected"))
		Expect(lines[4]).To(Equal("tool t success: 7"))
	})

	DescribeTable("that fails gives the model an error, and the conversation goes on", Label("TOL-02"), func(ctx SpecContext, source, want string, timeout int) {
		lines := play(ctx, codeTool("bad", source, func(t *definition.Tool) {
			if timeout > 0 {
				t.Spec.Timeout = ms(timeout)
			}
		}), codeTool("good", `export default () => 'fine'`), enginetest.Script(
			enginetest.Call("bad", nil), enginetest.Call("good", nil), enginetest.Say("went on")))
		Expect(lines[2]).To(MatchRegexp(`(?s)^tool bad error: ` + want))
		Expect(lines[3:]).To(Equal([]string{"assistant ->good", "tool good success: fine", "assistant: went on"}))
	},
		Entry("by throwing", "export default () => {\n  throw new RangeError('too far');\n}", `RangeError: too far\n.*tool\.ts:2:`, 0),
		Entry("by its own word", "export default () => ({ status: 'error', error: 'not today' })", `not today$`, 0),
		Entry("by looping for ever", "export default () => { for (;;); }", `(the code did not finish within 500ms|the code was ended before it was done)`, 500),
		Entry("by waiting for ever", "export default () => new Promise(() => {})", `.+`, 500),
		Entry("by using up memory", "export default () => { const a = []; for (;;) a.push(new Array(1000).fill(1)); }", `.*memory`, 0),
		Entry("by returning what cannot cross", "export default () => ({ f() {} })", `.*cannot cross`, 0),
		Entry("by calling a function that does not exist", "export default (state) => state.noSuchThing()", `TypeError: .*not a function\n.*tool\.ts:1:`, 0),
		Entry("by reading a variable that is not set", "export default (state) => state.env('KEY')", `.*there is no such variable: KEY`, 0),
	)

	It("reaches the rest of the thread through state", Label("TOL-03", "EFF-01", "AGT-07"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), codeTool("all", head+`
export default defineTool({ description: 'd', execute: async (state) => {
  const injected = await state.injectMessage({ role: 'system', content: 'a note', silent: true, metadata: { n: 1 } });
  await state.updateMessage(injected.id, { metadata: { m: 2 } });
  const { messages, total, hasMore } = await state.getMessages({ includeSilent: true });
  const none = await state.getMessage('no-such');
  const effect = await state.scheduleEffect('remind', { text: 'hi' }, 3000);
  const effects = await state.getScheduledEffects('remind');
  const removed = await state.removeScheduledEffect(effect);
  const twice = await state.removeScheduledEffect(effect);
  const invoked = await state.invokeTool('set_value', { key: 'k', value: [1] });
  const failed = await state.invokeTool('set_value', { key: '' });
  const value = await state.getValue('k');
  await state.setValue('k', null);
  const gone = await state.getValue('k');
  await state.mkdirFile('/d');
  await state.writeFile('/d/a.txt', 'alpha\nbeta', 'text/plain');
  const found = await state.findFiles('*.txt');
  const grep = await state.grepFiles('^be');
  const stat = await state.statFile('/d/a.txt');
  const dir = await state.readdirFile('/d');
  const stats = await state.getFileStats();
  await state.unlinkFile('/d/a.txt');
  await state.rmdirFile('/d');
  const agent = await state.loadAgent('a');
  let unknown; try { await state.loadAgent('nobody') } catch (e) { unknown = e.message }
  const parent = await state.getParentThread();
  const child = await state.getChildThread('none');
  state.emit('progress', { step: 1 });
  const run = await state.runCode('export default async () => (await twice(21)) + report.length', { globals: { twice: async (n) => n * 2 } });
  await state.queueMessage({ role: 'user', content: 'later' });
  return { thread: state.threadId, agentId: state.agentId, userId: state.userId, args: state.arguments, agents: state.getAgentNames(),
    execution: typeof state.execution, terminated: state.terminated,
    roles: messages.map((m) => m.role), note: messages.at(-1).metadata, total, hasMore, none, effects: effects.map((e) => [e.name, e.args.text, typeof e.scheduledAt]),
    removed, twice, invoked: invoked.status, failed: failed.error.slice(0, 30), value, gone,
    found: found.paths, grep: grep[0].matches[0].line, size: stat.size, dir: dir.entries.map((e) => e.name), files: stats.fileCount,
    agent: agent.name, unknown, parent, child, run: run.result };
} });`), enginetest.Script(
			enginetest.Call("all", nil),
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user", Matches: "later"}, Content: "queue seen"},
			enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a", func(n *thread.NewThread) {
			n.Arguments = enginetest.JSON(map[string]any{"lang": "la"})
			n.UserID = "u1"
		})
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		lines := told(ctx, w, id)
		Expect(lines).To(HaveLen(6))
		Expect(lines[4:]).To(Equal([]string{"user: later", "assistant: queue seen"}))
		Expect(lines[2]).To(Equal("system: a note"))
		text := strings.TrimPrefix(lines[3], "tool all success: ")
		Expect(text).To(MatchJSON(`{"thread":"` + id + `","agentId":"a","userId":"u1","args":{"lang":"la"},"agents":["a"],"execution":"object","terminated":null,
			"roles":["user","assistant","system"],"note":{"n":1,"m":2},"total":3,"hasMore":false,"none":null,"effects":[["remind","hi","number"]],
			"removed":true,"twice":false,"invoked":"success","failed":"the arguments do not fit the t","value":[1],"gone":null,
			"found":["/d/a.txt"],"grep":2,"size":10,"dir":["a.txt"],"files":1,
			"agent":"a","unknown":"Agent \"nobody\" does not exist: create it","parent":null,"child":null,"run":43}`))
		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(events).To(ContainElement(And(HaveField("Type", "event:progress"), HaveField("Data", MatchJSON(`{"step":1}`)))))
	})

	It("may terminate its own thread, and all below it", Label("THR-05", "SUB-08"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("end", `export default (state) => state.terminate()`), enginetest.Script(enginetest.Call("end", nil), enginetest.Say("never")))
		start(w)
		id := makeThread(ctx, w, "a")
		child := makeThread(ctx, w, "a", func(n *thread.NewThread) { n.ParentID, n.Child = id, &store.Child{Name: "c"} })
		send(ctx, w, id, "go")
		Eventually(func() store.Run { return lastRunOr(ctx, w, id) }).Should(HaveField("Status", store.RunTerminated))
		Eventually(func() (*store.Thread, error) { return w.Store.Thread(ctx, child) }).Should(HaveField("TerminatedReason", skeinv1.ReasonParentTerminated))
		Expect(told(ctx, w, id)).To(HaveLen(2))
	})

	It("of a model runs by run_code, with the files of the thread", Label("TOL-02", "COD-01", "COD-03", "COD-05"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinCode), enginetest.Script(
			enginetest.Call("run_code", map[string]any{"source": `
export default async function (factor: number): Promise<{ total: number }> {
  console.log('adding');
  const text = await readFile('/n.txt');
  report(text.length);
  await writeFile('/out.txt', 'written');
  const names = (await listFiles('/')).map((f: { path: string }) => f.path);
  return { total: text.split(' ').reduce((a: number, b: string) => a + Number(b), 0) * factor, names };
}`, "args": []int{2}}),
			enginetest.Call("run_code", map[string]any{"source": "const n: number = ;"}),
			enginetest.Call("run_code", map[string]any{"source": "export default typeof readFile", "files": false}),
			enginetest.Call("run_code", map[string]any{"source": "export default function f(n: number) {\n\n  throw new Error('at three');\n}"}),
			enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/n.txt", strings.NewReader("1 2 3"), thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		lines := told(ctx, w, id)
		Expect(lines[2]).To(And(HavePrefix("tool run_code success: "), ContainSubstring(`"result":{"names":["/n.txt","/out.txt"],"total":12},"reports":[5],"logs":["`), ContainSubstring(`: adding"]`)))
		Expect(lines[4]).To(And(HavePrefix("tool run_code error: "), ContainSubstring(`"status":"link_error"`), ContainSubstring("1")))
		Expect(lines[6]).To(ContainSubstring(`"result":"undefined"`))
		Expect(lines[8]).To(And(HavePrefix("tool run_code error: "), ContainSubstring(`"message":"at three"`), ContainSubstring("main.ts:3:")))
	})

	for _, moment := range []string{"sandbox.acquire.after", "isolate.opened"} {
		It("is retried in a fresh sandbox when its sandbox was lost before it began, after "+moment, Label("COD-09"), func(ctx SpecContext) {
			w.Definitions.Put("a", codeTool("t", `export default () => 'here'`, func(t *definition.Tool) {
				t.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}
			}), enginetest.Builtin(skeinv1.BuiltinCode), enginetest.Script(
				enginetest.Call("t", nil), enginetest.Call("run_code", map[string]any{"source": "export default 1"}), enginetest.Say("done")))
			had := 0
			start(w, func(o *engine.Options) {
				o.Faults = func(p string) {
					if p == moment {
						if had++; had == 1 {
							Expect(sandboxes.Kill()).To(Succeed())
						}
					}
				}
			})
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			rest(ctx, w, id)
			Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->t", "tool t success: here",
				"assistant ->run_code", ContainSubstring(`"result":1`), "assistant: done"))
			Expect(had).To(Equal(2))
		})
	}

	It("whose sandbox is lost under it is an error that says so", Label("COD-09"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", `export default async (state) => { await state.setValue('begun', 1); return new Promise((r) => setTimeout(r, 600000)); }`), enginetest.Script(
			enginetest.Call("t", nil), enginetest.Say("went on")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() error { _, err := w.Store.Value(ctx, id, "begun"); return err }).Should(Succeed())
		Expect(sandboxes.Kill()).To(Succeed())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->t",
			HavePrefix("tool t error: the code was ended before it was done, so its work may be half done: "), "assistant: went on"))
	})

	It("runs from outside of a run, and ends with the thread", Label("COD-04", "TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", codeTool("t", head+`export default defineTool({ description: 'd', execute: async (state, args) => ({ args, execution: state.execution }) });`))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		res, err := e.RunCode(ctx, id, sandbox.CodeRequest{Source: "export default (n: number) => n + 1", Args: []any{41.0}})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Value).To(Equal(42.0))
		out, err := e.InvokeTool(ctx, id, "", "t", enginetest.JSON(map[string]any{"x": 1}))
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Content).To(MatchJSON(`{"args":{"x":1},"execution":null}`))
		_, err = e.RunCode(ctx, "00000000-0000-0000-0000-000000000000", sandbox.CodeRequest{})
		Expect(err).To(MatchError(store.ErrNotFound))

		done := make(chan sandbox.Result, 1)
		begun := make(chan struct{})
		go func() {
			r, _ := e.RunCode(ctx, id, sandbox.CodeRequest{Source: "report(1); for (;;);", Report: func(any) { close(begun) }})
			done <- r
		}()
		Eventually(begun).Should(BeClosed())
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		var r sandbox.Result
		Eventually(done).Should(Receive(&r))
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
	})
})

func lastRunOr(ctx context.Context, w *enginetest.World, id string) store.Run {
	r, err := w.Store.Run(ctx, id, "")
	if err != nil {
		return store.Run{}
	}
	return *r
}
