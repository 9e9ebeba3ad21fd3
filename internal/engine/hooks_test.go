package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// hook gives an agent a hook with this code.
func hook(name skeinv1.HookName, source string, change ...func(*definition.Hook)) func(*definition.Agent) {
	return func(a *definition.Agent) {
		m, failed := compile.Compile(string(name)+".ts", "import { defineHook } from '@standardagents/builder';\n"+source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		h := &definition.Hook{Name: name, Owner: "Agent a", Module: m, Timeout: patience}
		for _, c := range change {
			c(h)
		}
		if a.A.Hooks == nil {
			a.A.Hooks = map[skeinv1.HookName]*definition.Hook{}
		}
		a.A.Hooks[name] = h
	}
}

// note is a hook that emits what it is called with, and gives nothing.
func note(name skeinv1.HookName) func(*definition.Agent) {
	return hook(name, `export default defineHook('`+string(name)+`', async (state, ...args) => { await state.emit('`+string(name)+`', args); });`)
}

// noted gives the data of the events that code emitted under a name.
func noted(ctx context.Context, w *enginetest.World, id, name string) []string {
	GinkgoHelper()
	return eventsOf(ctx, w, id, "event:"+name)
}

// failures gives what the log says of hooks that failed.
func failures(ctx context.Context, w *enginetest.World, id string) []store.HookFailure {
	GinkgoHelper()
	var out []store.HookFailure
	for _, data := range eventsOf(ctx, w, id, store.EventHookFailed) {
		var f store.HookFailure
		Expect(json.Unmarshal([]byte(data), &f)).To(Succeed())
		out = append(out, f)
	}
	return out
}

func eventsOf(ctx context.Context, w *enginetest.World, id, kind string) []string {
	GinkgoHelper()
	events, err := w.Store.Events(ctx, id, 0, 10000)
	Expect(err).NotTo(HaveOccurred())
	out := []string{}
	for _, e := range events {
		if e.Type == kind {
			out = append(out, string(e.Data))
		}
	}
	return out
}

// quiet waits until a thread's inbox is empty and its lease is free.
func quiet(ctx context.Context, w *enginetest.World, id string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		items, err := w.Store.Inbox(ctx, id)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(items).To(BeEmpty())
		f, err := w.Store.Acquire(ctx, id, "test", time.Second)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Store.Release(ctx, f)).To(Succeed())
	}).Should(Succeed())
}

// reader is a factory whose models' requests are kept.
type reader struct {
	factory model.Factory

	mu       sync.Mutex
	requests [][]model.Message
}

func (r *reader) Client(c model.Config) (model.Client, error) {
	client, err := r.factory.Client(c)
	return &readerClient{reader: r, client: client}, err
}

// read gives "role: content" of what the model got to read at a call, without the system prompt.
func (r *reader) read(call int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []string{}
	for _, m := range r.requests[call][1:] {
		text := string(m.Role)
		for _, c := range m.ToolCalls {
			text += " ->" + c.Name
		}
		out = append(out, text+": "+m.Content)
	}
	return out
}

type readerClient struct {
	reader *reader
	client model.Client
}

func (c *readerClient) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	c.reader.mu.Lock()
	c.reader.requests = append(c.reader.requests, req.Messages)
	c.reader.mu.Unlock()
	return c.client.Stream(ctx, req, emit)
}

// counted is a store that counts its transactions, and how often a single message was read.
type counted struct {
	store.Store
	applied, read atomic.Int64
}

func (c *counted) Apply(ctx context.Context, id string, f *store.Fence, ops ...store.Op) error {
	c.applied.Add(1)
	return c.Store.Apply(ctx, id, f, ops...)
}

func (c *counted) Message(ctx context.Context, id, message string) (*store.Message, error) {
	c.read.Add(1)
	return c.Store.Message(ctx, id, message)
}

var _ = Describe("Hooks", Label("HOK-01"), func() {
	var w *enginetest.World
	var sandboxes *enginetest.Processes
	var models *reader
	BeforeEach(func() {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		models = &reader{factory: w.Models}
		w.Models = models
	})
	AfterEach(func() {
		Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero(), "every sandbox is given back")
	})

	play := func(ctx context.Context, change ...func(*definition.Agent)) string {
		GinkgoHelper()
		w.Definitions.Put("a", change...)
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		quiet(ctx, w, id)
		return id
	}
	useKV := enginetest.Script(enginetest.Call("set_value", map[string]any{"key": "k", "value": 1}), enginetest.Call("get_value", map[string]any{}), enginetest.Say("done"))

	It("may change messages before they are stored", func(ctx SpecContext) {
		id := play(ctx, hook(skeinv1.HookBeforeCreateMessage, `export default defineHook('before_create_message', async (state, m) =>
			m.role === 'user' ? { ...m, id: 'mine', role: 'system', content: m.content + '!', metadata: { seen: true, status_kind: 'x' } } : { content: m.content.toUpperCase() });`),
			enginetest.Script(enginetest.Say("you said {{.Last.Content}}")))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go!", "assistant: YOU SAID GO!"}))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs[0].ID).NotTo(Equal("mine"))
		Expect(msgs[0].Metadata).To(Equal(map[string]any{"seen": true}), "keys of Skein's own cannot be set")
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})

	It("are told of messages once they are stored, in order, within the run", func(ctx SpecContext) {
		id := play(ctx, hook(skeinv1.HookAfterCreateMessage, `export default defineHook('after_create_message', async (state, m) => {
			const stored = await state.getMessage(m.id);
			state.context.n = (state.context.n ?? 0) + 1;
			await state.emit('told', [state.context.n, stored.role, m.content, state.execution !== null]);
		});`), enginetest.Builtin(skeinv1.BuiltinKV), useKV)
		Expect(noted(ctx, w, id, "told")).To(Equal([]string{`[1,"user","go",true]`, `[2,"assistant",null,true]`, `[3,"assistant",null,true]`, `[4,"assistant","done",true]`}),
			"one state.context for the run; results have hooks of their own")
	})

	It("may change the results of tools, and are told how calls ended", func(ctx SpecContext) {
		id := play(ctx, hook(skeinv1.HookBeforeStoreToolResult, `export default defineHook('before_store_tool_result', async (state, call, result) =>
			call.name === 'set_value' ? { ...result, result: 'set ' + call.arguments.key } : 'sorry: ' + result.status);`),
			note(skeinv1.HookAfterToolCallSuccess), note(skeinv1.HookAfterToolCallFailure), enginetest.Builtin(skeinv1.BuiltinKV), useKV)
		Expect(told(ctx, w, id)).To(ContainElements("tool set_value success: set k", "tool get_value error: sorry: error"))
		Expect(noted(ctx, w, id, "after_tool_call_success")).To(ConsistOf(And(ContainSubstring(`"name":"set_value"`), ContainSubstring(`"result":"set k"`), ContainSubstring(`"arguments":{"key":"k","value":1}`))))
		Expect(noted(ctx, w, id, "after_tool_call_failure")).To(ConsistOf(And(ContainSubstring(`"name":"get_value"`), ContainSubstring(`"error":"sorry: error"`))))
	})

	It("do not bring secrets into the log where what they give is cut off", Label("ENV-03"), func(ctx SpecContext) {
		w.Definitions.Put("a", hook(skeinv1.HookBeforeStoreToolResult, `export default defineHook('before_store_tool_result', async () => ({ status: 'success', result: '0123456789hush-hush' }));`),
			hook(skeinv1.HookAfterToolCallSuccess, `export default defineHook('after_tool_call_success', async () => { throw new Error('hush-hush') });`),
			enginetest.Builtin(skeinv1.BuiltinKV), useKV)
		start(w, func(o *engine.Options) {
			o.Limits.ToolResultBytes = 16
			o.Redact = func(_, text string) string { return strings.ReplaceAll(text, "hush-hush", "***") }
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElement("tool set_value success: 0123456789***"))
		Eventually(func() []store.HookFailure { return failures(ctx, w, id) }).ShouldNot(BeEmpty())
		Expect(failures(ctx, w, id)).To(HaveEach(HaveField("Error", And(ContainSubstring("***"), Not(ContainSubstring("hush"))))))
	})

	It("share state.context with the tools of the run", Label("STA-08"), func(ctx SpecContext) {
		id := play(ctx, hook(skeinv1.HookAfterSystemMessage, `export default defineHook('after_system_message', async (state, m) => { state.context.prompt = m.content; });`),
			codeTool("t", `export default (state) => state.context.prompt`), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("done")))
		Expect(told(ctx, w, id)).To(ContainElement("tool t success: You are a test."))
	})

	It("filter what the model reads, and never tear a call from its result", func(ctx SpecContext) {
		w.Definitions.Put("a", hook(skeinv1.HookFilterMessages, `export default defineHook('filter_messages', async (state, messages) => messages
				.filter((m) => m.role !== 'tool' && m.content !== 'secret')
				.map((m) => ({ ...m, content: m.content && m.content.replace('go', 'come') })).reverse());`),
			enginetest.Builtin(skeinv1.BuiltinKV), useKV)
		start(w)
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		secret := "secret"
		_, err = st.Inject(ctx, thread.NewMessage{Content: &secret})
		Expect(err).NotTo(HaveOccurred())
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(models.read(0)).To(Equal([]string{"user: come"}))
		Expect(models.read(2)).To(Equal([]string{"user: come"}), "without their results the calls are not there either")
		Expect(told(ctx, w, id)).To(ContainElements("user: secret", "user: go", ContainSubstring("tool set_value")), "the log stays")
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})

	It("rewrite the history in the model's form, and never tear a call from its result", func(ctx SpecContext) {
		id := play(ctx, hook(skeinv1.HookPrefilterLLMHistory, `export default defineHook('prefilter_llm_history', async (state, history) => [
				{ role: 'system', content: 'Be brief.' },
				...history.filter((m) => m.role === 'tool'),
				...history.filter((m) => m.role !== 'tool').map((m) => ({ ...m, tool_calls: m.tool_calls?.filter((c) => c.name === 'set_value') })),
				{ role: 'tool', tool_call_id: 'nobody', content: 'lost' },
				{ role: 'assistant', content: null, tool_calls: [{ id: 'x', name: 'y', arguments: '{}' }] },
			]);`), enginetest.Builtin(skeinv1.BuiltinKV), useKV)
		Expect(models.read(2)).To(Equal([]string{"system: Be brief.", "user: go", "assistant ->set_value: ", `tool: {"key":"k"}`}))
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})

	DescribeTable("that are of no use are logged, and the thread goes on with what there was", func(ctx SpecContext, name skeinv1.HookName, body, says string) {
		id := play(ctx, hook(name, `export default defineHook('`+string(name)+`', async (state, x) => { `+body+` });`, func(h *definition.Hook) {
			if strings.Contains(says, "500ms") {
				h.Timeout = 500 * time.Millisecond
			}
		}),
			enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Call("get_value", map[string]any{"key": "k"}), enginetest.Say("done")))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->get_value", HavePrefix("tool get_value success"), "assistant: done"))
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(failures(ctx, w, id)).To(ContainElement(And(HaveField("Hook", string(name)), HaveField("Owner", "Agent a"), HaveField("Error", ContainSubstring(says)))))
	},
		Entry("one that throws", skeinv1.HookBeforeCreateMessage, `throw new RangeError('no');`, "RangeError: no"),
		Entry("one that hangs", skeinv1.HookAfterCreateMessage, `for (;;);`, "within 500ms"),
		Entry("one that never settles", skeinv1.HookFilterMessages, `await new Promise(() => {});`, "settles"),
		Entry("one that exhausts memory", skeinv1.HookAfterToolCallSuccess, `const a: unknown[] = []; for (;;) a.push(new Array(1000).fill(1));`, "memory"),
		Entry("a message that is none", skeinv1.HookBeforeCreateMessage, `return 7;`, "must be an object"),
		Entry("a message without content", skeinv1.HookBeforeCreateMessage, `return { ...x, content: [1], tool_calls: [] };`, "content must be a string"),
		Entry("a message that is too long", skeinv1.HookBeforeCreateMessage, `return { content: 'x'.repeat(2 << 20) };`, "more than the limit"),
		Entry("a result without a status", skeinv1.HookBeforeStoreToolResult, `return { result: 1 };`, "status"),
		Entry("messages that are not the thread's", skeinv1.HookFilterMessages, `return [...x, { id: 'made-up', role: 'user', content: 'hi' }];`, "made-up"),
		Entry("no list", skeinv1.HookFilterMessages, `return {};`, "list of messages"),
		Entry("a history with a role that is none", skeinv1.HookPrefilterLLMHistory, `return [{ role: 'god', content: 'hi' }];`, "god"),
		Entry("a result of no call", skeinv1.HookPrefilterLLMHistory, `return [{ role: 'tool', content: 'hi' }];`, "tool_call_id"),
		Entry("a history that is deep", skeinv1.HookPrefilterLLMHistory, `let a: any = []; for (let i = 0; i < 600; i++) a = [a]; return a;`, "nests deeper"),
	)

	It("must match the type of the hook that their object declares", func(ctx SpecContext) {
		id := play(ctx, hook(skeinv1.HookAfterCreateMessage, `export default defineHook('filter_messages', async () => {});`), enginetest.Script(enginetest.Say("done")))
		Expect(failures(ctx, w, id)).To(ContainElement(HaveField("Error", ContainSubstring("filter_messages but the object uses it for after_create_message"))))
	})

	It("may be plain functions, and objects with execute or handler", func(ctx SpecContext) {
		id := play(ctx,
			hook(skeinv1.HookAfterCreateMessage, `export default async (state, m) => { await state.emit('plain', m.role); };`),
			hook(skeinv1.HookBeforeCreateMessage, `export default defineHook({ hook: 'before_create_message', handler: async (state, m) => ({ content: 'h:' + m.content }) });`),
			enginetest.Script(enginetest.Say("done")))
		Expect(noted(ctx, w, id, "plain")).To(Equal([]string{`"user"`, `"assistant"`}))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: h:go", "assistant: h:done"}))
	})

	It("that write messages do not call each other without end", func(ctx SpecContext) {
		id := play(ctx,
			hook(skeinv1.HookAfterCreateMessage, `export default async (state, m) => { if (m.role !== 'assistant') await state.injectMessage({ role: 'system', content: 'told of ' + m.content }); };`),
			enginetest.Script(enginetest.Say("done")))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "system: told of go", "system: told of told of go", "system: told of told of told of go",
			"system: told of told of told of told of go", "assistant: done"))
		Expect(failures(ctx, w, id)).To(ConsistOf(HaveField("Error", ContainSubstring("a chain of 4 hooks, each caused by the one before"))))
	})

	It("that write messages before messages do not call each other without end", func(ctx SpecContext) {
		id := play(ctx,
			hook(skeinv1.HookBeforeCreateMessage, `export default async (state, m) => { if (m.role === 'user') await state.injectMessage({ content: 'before ' + m.content }); };`),
			enginetest.Script(enginetest.Say("done")))
		Expect(told(ctx, w, id)).To(HaveLen(6))
		Expect(failures(ctx, w, id)).To(ConsistOf(HaveField("Error", ContainSubstring("4 hooks"))))
	})

	It("that queue messages come to an end too, from run to run, until a user says more", func(ctx SpecContext) {
		w.Definitions.Put("a",
			hook(skeinv1.HookAfterCreateMessage, `export default async (state, m) => { if (m.role === 'assistant') await state.queueMessage({ content: 'again' }); };`),
			enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		failed := func(answers int) {
			GinkgoHelper()
			Eventually(func() int { return len(failures(ctx, w, id)) }).Should(BeNumerically(">=", answers))
			quiet(ctx, w, id)
		}
		failed(1)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: re: go", "user: again", "assistant: re: again", "user: again", "assistant: re: again",
			"user: again", "assistant: re: again", "user: again", "assistant: re: again"}))
		before := len(failures(ctx, w, id))
		send(ctx, w, id, "more")
		failed(before + 1)
		Expect(told(ctx, w, id)).To(HaveLen(20), "what a user says has its hooks again")
	})

	It("may end the turn before a model is asked", Label("RUN-03"), func(ctx SpecContext) {
		for _, name := range []skeinv1.HookName{skeinv1.HookAfterCreateMessage, skeinv1.HookAfterSystemMessage} {
			w.Definitions.Put("a", hook(name, `export default async (state, m) => { await state.emit('count', state.execution.stepCount); state.execution.stop(); };`),
				enginetest.Script(enginetest.Say("never said")))
			_, stop := start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			stop()
			Expect(told(ctx, w, id)).To(Equal([]string{"user: go"}), string(name))
			Expect(noted(ctx, w, id, "count")).To(Equal([]string{"0"}))
		}
	})

	It("add no sandbox, read or write to a thread without any", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), useKV)
		calls := &counted{Store: w.Store}
		start(w, func(o *engine.Options) {
			o.Threads, o.Clock = w.Over(calls), clocktesting.NewFakeClock(time.Now()) // no piece of an answer is written because it came late
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		acquired, _ := sandboxes.Counts()
		Expect(acquired).To(BeZero())
		Expect(calls.applied.Load()).To(BeEquivalentTo(6+1), "what came in, two calls, their results, and the answer with the end; and the value that a tool set")
		Expect(calls.read.Load()).To(BeZero(), "no message is read one by one")
	})
})
