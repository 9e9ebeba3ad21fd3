package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/code"
)

var _ = Describe("ThreadState in the isolate", func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})

	// result plays one turn in which the tool t is called once, and gives its result.
	result := func(ctx context.Context, id string) string {
		GinkgoHelper()
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		for _, line := range told(ctx, w, id) {
			if text, ok := strings.CutPrefix(line, "tool t "); ok {
				return text
			}
		}
		Fail("the tool was not called: " + strings.Join(told(ctx, w, id), "\n"))
		return ""
	}
	once := func(source string, change ...func(*definition.Agent)) {
		w.Definitions.Put("a", append([]func(*definition.Agent){codeTool("t", source), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok"))}, change...)...)
		start(w)
	}

	It("has every member that the API names, and no other", Label("TOL-03"), func(ctx SpecContext) {
		once(`export default (state) => ({ all: Reflect.ownKeys(state).filter((k) => typeof k === 'string' && typeof state[k] === 'function').sort(),
			other: [state.noSuchThing, state['state.now'], state.$methods, 'readFile' in state, 'nothing' in state, Object.keys({ ...state }).sort()] })`)
		text := strings.TrimPrefix(result(ctx, makeThread(ctx, w, "a")), "success: ")
		var got struct {
			All   []string
			Other []any
		}
		Expect(json.Unmarshal([]byte(text), &got)).To(Succeed(), text)
		Expect(got.All).To(ConsistOf(append(code.Methods(), "waitUntil")))
		Expect(got.Other).To(Equal([]any{nil, nil, nil, true, false, []any{
			"agentId", "arguments", "children", "context", "createdAt", "execution", "request", "session", "terminated", "thread", "threadId", "userId", "waitUntil",
		}}))
	})

	It("streams files in chunks, which can be left and aborted", Label("TOL-03", "FIL-03"), func(ctx SpecContext) {
		once(`export default async (state) => {
			const seen = []; let bytes = 0;
			for await (const c of await state.readFileStream('/big')) { seen.push([c.index, c.totalChunks, c.isLast, c.data instanceof Uint8Array]); bytes += c.data.byteLength }
			const empty = [];
			for await (const c of await state.readFileStream('/empty')) empty.push([c.index, c.totalChunks, c.isLast, c.data.length]);
			for (let i = 0; i < 40; i++) for await (const c of await state.readFileStream('/big')) break;
			const controller = new AbortController(); let got = 0, why;
			try { for await (const c of await state.readFileStream('/big', { signal: controller.signal })) { got++; controller.abort() } } catch (e) { why = e.name }
			let early; try { await state.readFileStream('/big', { signal: AbortSignal.abort(new Error('no need')) }) } catch (e) { early = e.message }
			const open = []; let many;
			try { for (let i = 0; i < 33; i++) { const it = (await state.readFileStream('/big'))[Symbol.asyncIterator](); await it.next(); open.push(it) } } catch (e) { many = e.message }
			return { seen, bytes, empty, none: await state.readFileStream('/none'), got, why, early, many };
		}`)
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for path, size := range map[string]int{"/big": 2*thread.ChunkSize + 5, "/empty": 0} {
			_, err = st.WriteFile(ctx, path, bytes.NewReader(make([]byte, size)), thread.WriteFileOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(strings.TrimPrefix(result(ctx, id), "success: ")).To(MatchJSON(`{"seen":[[0,3,false,true],[1,3,false,true],[2,3,true,true]],"bytes":524293,
			"empty":[[0,1,true,0]],"none":null,"got":1,"why":"AbortError","early":"no need",
			"many":"32 files are being read as streams, as many as may be at once: finish reading some first"}`))
	})

	Context("of another thread", func() {
		var parent, child, stranger string
		var e *engine.Engine
		family := func(ctx context.Context, source string) {
			w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), codeTool("t", source), enginetest.Script(
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "go"}, ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("t", nil)}}, enginetest.Say("heard")))
			e, _ = start(w)
			parent = makeThread(ctx, w, "a")
			child = makeThread(ctx, w, "a", func(n *thread.NewThread) {
				n.ParentID, n.Reference, n.Child = parent, "helper-1", &store.Child{Name: "helper", Resumable: true}
				n.Arguments = enginetest.JSON(map[string]any{"topic": "tides"})
			})
			stranger = makeThread(ctx, w, "a")
		}

		It("is live: its methods reach the child, and not its parent", Label("TOL-03", "SUB-05"), func(ctx SpecContext) {
			family(ctx, `export default async (state) => {
				const child = await state.getChildThread('helper-1');
				await child.setValue('k', { from: state.threadId });
				await child.writeFile('/a.txt', 'for the child', 'text/plain');
				await child.injectMessage({ role: 'system', content: 'twice' });
				await child.injectMessage({ role: 'system', content: 'twice' });
				child.emit('poked', { n: 1 });
				const { messages } = await child.getMessages();
				const chunks = []; for await (const c of await child.readFileStream('/a.txt')) chunks.push(new TextDecoder().decode(c.data));
				const run = await child.runCode('export default async () => (await here()) + 1', { globals: { here: async () => 41 } });
				const invoked = await child.invokeTool('get_value', { key: 'k' });
				const back = await child.getParentThread();
				return { id: child.threadId, arguments: child.arguments, terminated: child.terminated, execution: child.execution, agents: child.getAgentNames(),
					mine: [await state.getValue('k'), await state.readFile('/a.txt')], value: await child.getValue('k'), messages: messages.map((m) => m.content),
					bytes: (await child.readFile('/a.txt')) instanceof ArrayBuffer, chunks, run: run.result, invoked: invoked.result, same: back.threadId === state.threadId, running: back.execution !== null,
					none: await child.getChildThread('x'), context: child.context };
			}`)
			Expect(strings.TrimPrefix(result(ctx, parent), "success: ")).To(MatchJSON(`{"id":"` + child + `","arguments":{"topic":"tides"},"terminated":null,"execution":null,"agents":["a"],
				"mine":[null,null],"value":{"from":"` + parent + `"},"messages":["twice","twice"],"bytes":true,"chunks":["for the child"],"run":42,
				"invoked":"{\"from\":\"` + parent + `\"}","same":true,"running":true,"none":null,"context":{}}`))
			events, err := w.Store.Events(ctx, child, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(events).To(ContainElement(HaveField("Type", "event:poked")))
		})

		It("that has ended can be read, and refuses work with a reason", Label("TOL-03", "THR-05"), func(ctx SpecContext) {
			family(ctx, `export default async (state) => {
				const child = await state.getChildThread('helper-1');
				await child.setValue('k', 1);
				await child.terminate();
				const again = await state.getChildThread('helper-1');
				const out = [child.terminated, typeof again.terminated, await again.getValue('k')];
				for (const [name, ...args] of [['queueMessage', { role: 'user', content: 'x' }], ['invokeTool', 'get_value', { key: 'k' }], ['scheduleEffect', 'e', {}],
					['injectMessage', { role: 'user', content: 'x' }], ['writeFile', '/a', 'x'], ['setValue', 'k', 2], ['setEnv', 'K', 'v'], ['emit', 'e', 1]])
					try { await again[name](...args); out.push('worked') } catch (e) { out.push(e.message) }
				return out;
			}`)
			reason := func(name string) string {
				return name + `: the thread is terminated: it can still be read; start a new thread to go on`
			}
			Expect(strings.TrimPrefix(result(ctx, parent), "success: ")).To(MatchJSON(enginetest.JSON([]any{nil, "number", 1, reason("queueMessage"), reason("invokeTool"), reason("scheduleEffect"),
				reason("injectMessage"), reason("writeFile"), reason("setValue"), reason("setEnv"), reason("emit")})))
		})

		It("is refused outside the code's own tree", Label("TOL-03", "THR-01"), func(ctx SpecContext) {
			// What a child process may send when its engine has been taken over: the right is checked behind it.
			family(ctx, `export default async (state) => {
				const child = await state.getChildThread('helper-1');
				return [await child.getValue('k')];
			}`)
			st, err := w.Threads.Open(ctx, stranger)
			Expect(err).NotTo(HaveOccurred())
			Expect(st.SetValue(ctx, "k", []byte(`"secret"`))).To(Succeed())
			for _, id := range []string{stranger, "no-such-thread", ""} {
				_, err := e.CallState(ctx, parent, "state.of", id, "getValue", []any{"k"})
				Expect(err).To(HaveOccurred(), id)
				Expect(err.Error()).NotTo(ContainSubstring("secret"))
			}
			_, err = e.CallState(ctx, parent, "state.of", child, "state.of", []any{stranger, "getValue", []any{"k"}})
			Expect(err).To(MatchError(ContainSubstring("has no method")))
			Expect(e.CallState(ctx, parent, "state.of", child, "getValue", []any{"k"})).To(BeNil())
			Expect(e.CallState(ctx, child, "state.of", parent, "getValue", []any{"k"})).To(BeNil())
		})
	})

	It("shows the children that tools of the run have made", Label("TOL-03", "SUB-01"), func(ctx SpecContext) {
		once(`export default async (state) => {
			const before = state.children.length;
			await state.invokeTool('subagent_create', { agent: 'helper', message: 'begin', name: 'One' });
			return [before, state.children.map((c) => [c.name, c.title, typeof c.reference, c.resumable])];
		}`, enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "b"}, Resumable: true}}
		})
		w.Definitions.Put("b", enginetest.Script(enginetest.Say("done")))
		Expect(result(ctx, makeThread(ctx, w, "a"))).To(Equal(`success: [0,[["helper","One","string",true]]]`))
	})

	It("shows no children that have ended, however many there were", Label("TOL-03", "SUB-01"), func(ctx SpecContext) {
		once(`export default async (state) => {
			for (let i = 0; i < 20; i++) await state.invokeTool('subagent_create', { agent: 'helper', message: 'begin', name: 'c' + i });
			for (const c of state.children.slice(1)) await (await state.getChildThread(c.reference)).terminate();
			await state.invokeTool('subagent_list', {});
			return state.children.map((c) => c.title);
		}`, enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "b"}, Resumable: true}}
		})
		w.Definitions.Put("b", enginetest.Script(enginetest.Say("done")))
		Expect(result(ctx, makeThread(ctx, w, "a"))).To(Equal(`success: ["c0"]`))
	})

	It("sends what is not awaited, and fails by what then goes wrong", Label("TOL-03", "TOL-01"), func(ctx SpecContext) {
		once(`export default async (state) => { const d = { n: 1 }; state.emit('one', d); state.emit('two', d); d.n = 2; return 'sent' }`)
		id := makeThread(ctx, w, "a")
		Expect(result(ctx, id)).To(Equal("success: sent"))
		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(events).To(ContainElements(And(HaveField("Type", "event:one"), HaveField("Data", MatchJSON(`{"n":1}`))), And(HaveField("Type", "event:two"), HaveField("Data", MatchJSON(`{"n":1}`)))))
		w.Definitions.Put("b", codeTool("t", `export default async (state) => { state.queueTool('no_such_tool', {}); return 'sent' }`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok")))
		Expect(result(ctx, makeThread(ctx, w, "b"))).To(ContainSubstring(`error: Error: the agent b has no tool "no_such_tool"`))
		w.Definitions.Put("c", codeTool("t", `export default async (state) => { try { await state.queueTool('no_such_tool', {}) } catch (e) { return 'told' } }`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok")))
		Expect(result(ctx, makeThread(ctx, w, "c"))).To(Equal(`success: told`))
	})

	It("lets work go on behind the answers of calls that are made at once", Label("STA-06", "TOL-02"), func(ctx SpecContext) {
		w.Definitions.Put("a", func(a *definition.Agent) { a.A.Prompt.Spec.ParallelToolCalls = true },
			codeTool("t", `export default (state, { n }) => {
				state.waitUntil(async () => { while (!(await state.getValue('go'))); await state.thread.state.push('behind', n); });
				return 'begun';
			}`), enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
				skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("t", map[string]any{"n": 1}), enginetest.ToolCall("t", map[string]any{"n": 1})}},
				enginetest.Call("set_value", map[string]any{"key": "go", "value": true}), enginetest.Say("ok")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElements("tool t success: begun", "assistant: ok"))
		Expect(w.Store.StateValue(ctx, id, "behind")).To(MatchJSON(`[1,1]`), "the step that it began in is long over")
	})

	It("carries its context over a wait, but for what cannot be written down", Label("STA-08"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinSubagents),
			codeTool("put", `export default (state) => { Object.assign(state.context, { n: 1, when: new Date(0), seen: new Set(['x']), greet: () => 'hi', 'hush-hush': 1,
				token: ['Bearer hush-hush'], names: new Set(['hush-hush']), by: new Map([[1, { deep: 'hush-hush' }]]), key: new TextEncoder().encode('hush-hush') }); return Object.keys(state.context).length }`),
			codeTool("get", `export default (state) => { const c = state.context; c.n++; return [Object.keys(c).sort(), c.n, c.when?.getTime?.(), c.seen?.has('x')] }`),
			enginetest.Script(
				enginetest.Call("put", nil), enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "begin"}),
				enginetest.Call("get", nil), enginetest.Say("done")),
			func(a *definition.Agent) {
				a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "b"}, Blocking: true}}
			})
		w.Definitions.Put("b", enginetest.Script(enginetest.Say("helped")))
		start(w, asksOnceParked(3), func(o *engine.Options) {
			o.Redact = func(_, text string) string { return strings.ReplaceAll(text, "hush-hush", "***") }
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		last := rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElements("tool put success: 9", `tool get success: [["n","seen","when"],2,0,true]`))
		Expect(string(last.State)).NotTo(ContainSubstring("context"), "it is gone with the run")
	})

	It("carries over a wait what its context holds then, not what it held at an earlier one", Label("STA-08"), func(ctx SpecContext) {
		begin := enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "begin"})
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinSubagents),
			codeTool("put", `export default (state) => { state.context.n = 1; return 'put' }`),
			codeTool("drop", `export default (state) => { delete state.context.n; return 'dropped' }`),
			codeTool("get", `export default (state) => Object.keys(state.context)`),
			enginetest.Script(enginetest.Call("put", nil), begin, begin, enginetest.Call("get", nil), enginetest.Call("drop", nil), begin, enginetest.Call("get", nil), enginetest.Say("done")),
			func(a *definition.Agent) {
				a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "b"}, Blocking: true}}
			})
		w.Definitions.Put("b", enginetest.Script(enginetest.Say("helped")))
		start(w, asksOnceParked(3, 5, 9))
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		var got []string
		for _, line := range told(ctx, w, id) {
			if strings.HasPrefix(line, "tool get") {
				got = append(got, line)
			}
		}
		Expect(got).To(Equal([]string{`tool get success: ["n"]`, `tool get success: []`}), "kept while no code ran, gone once dropped")
	})

	Context("has the execution", func() {
		show := `export default async (state) => { const x = state.execution;
			return [x.flowId.startsWith('sess_'), x.currentSide, x.stepCount, x.sideAStepCount, x.sideBStepCount, x.stopped, x.stoppedBy ?? null, x.promptPath, x.messageHistory.map((m) => m.role), x.abortSignal.aborted] }`

		It("as the run has it at each step", Label("TOL-03", "RUN-03"), func(ctx SpecContext) {
			w.Definitions.Put("a", codeTool("t", show), enginetest.Script(enginetest.Call("t", nil), enginetest.Call("t", nil), enginetest.Say("ok")))
			start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			rest(ctx, w, id)
			lines := told(ctx, w, id)
			Expect(lines[2]).To(Equal(`tool t success: [true,"a",1,1,0,false,null,["a"],["user","assistant"],false]`))
			Expect(lines[4]).To(Equal(`tool t success: [true,"a",2,2,0,false,null,["a"],["user","assistant","tool","assistant"],false]`))
		})

		It("which it stops, once the step's other calls are done", Label("TOL-03", "RUN-03"), func(ctx SpecContext) {
			w.Definitions.Put("a", codeTool("t", `export default (state) => { const x = state.execution; x.stop(); return [x.stopped, x.stoppedBy, x.abortSignal.aborted, x.abortSignal.reason.name] }`),
				codeTool("u", `export default (state) => state.execution.stopped`),
				enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("t", nil), enginetest.ToolCall("u", nil)}}, enginetest.Say("never")))
			start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			last := rest(ctx, w, id)
			Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->t ->u", `tool t success: [true,"a",true,"AbortError"]`, "tool u success: true"}))
			Expect(last.Status).To(Equal(store.RunSucceeded))
			Expect(last.Steps).To(Equal(1))
		})

		It("whose next turn it gives to a side", Label("TOL-03", "RUN-03"), func(ctx SpecContext) {
			w.Definitions.Put("again", codeTool("t", `export default (state) => { state.execution.forceTurn('a'); return 1 }`),
				enginetest.Script(enginetest.Call("t", nil), skeinv1.ScriptStep{Content: "first"}, skeinv1.ScriptStep{Content: "second"}))
			w.Definitions.Put("over", codeTool("t", `export default (state) => { state.execution.forceTurn('b'); return 1 }`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("never")))
			w.Definitions.Put("wrong", codeTool("t", `export default (state) => { state.execution.forceTurn('c') }`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("ok")))
			start(w)
			for agent, want := range map[string][]string{
				"again": {"user: go", "assistant ->t", "tool t success: 1", "assistant: first", "assistant: second"},
				"over":  {"user: go", "assistant ->t", "tool t success: 1"},
			} {
				id := makeThread(ctx, w, agent)
				send(ctx, w, id, "go")
				rest(ctx, w, id)
				Expect(told(ctx, w, id)).To(Equal(want))
			}
			Expect(result(ctx, makeThread(ctx, w, "wrong"))).To(HavePrefix(`error: RangeError: forceTurn takes the side "a" or "b", not c`))
		})
	})
})

// asksOnceParked holds some of an engine's model calls, counted from 1, until one more run is parked: those of children
// whose parent has to be at rest before they answer.
func asksOnceParked(held ...int) func(*engine.Options) {
	return func(o *engine.Options) {
		parked := make(chan struct{}, len(held))
		var asked atomic.Int32
		o.Faults = func(point string) {
			switch point {
			case "park.after":
				select {
				case parked <- struct{}{}:
				default: // no run is held any more
				}
			case "model.before":
				if slices.Contains(held, int(asked.Add(1))) {
					<-parked
				}
			}
		}
	}
}
