package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

const handlerHead = `import { createAgent } from '@agentuity/runtime';
import { s } from '@agentuity/schema';
import { generateText, streamText, generateObject, stepCountIs, tool } from 'ai';
import { openai } from '@ai-sdk/openai';
import * as v from 'valibot';
`

// handler makes an agent's side code; its models are scripted, by the names that the code has for them.
func handler(source string, models map[string][]skeinv1.ScriptStep) func(*definition.Agent) {
	GinkgoHelper()
	m, failed := compile.Compile("handler.ts", handlerHead+source, sandbox.TypeScript)
	Expect(failed).To(BeNil())
	return func(a *definition.Agent) {
		h := &definition.Handler{Module: m, Models: map[string]*definition.Model{}}
		for name, steps := range models {
			h.Models[name] = &definition.Model{Name: strings.ReplaceAll(name, "/", "-"), Version: a.A.Model.Version, Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}, Steps: steps}
		}
		*a.A = definition.Side{Name: "a", Handler: h}
	}
}

// metered has models say that each answer used ten tokens and gave two.
type metered struct{ model.Factory }

func (m metered) Client(c model.Config) (model.Client, error) {
	client, err := m.Factory.Client(c)
	return meteredClient{client}, err
}

type meteredClient struct{ model.Client }

func (m meteredClient) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	res, err := m.Client.Stream(ctx, req, emit)
	if err == nil {
		res.Usage = &model.Usage{InputTokens: 10, OutputTokens: 2}
	}
	return res, err
}

var _ = Describe("A side in code", Label("AGT-09"), func() {
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
		Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero(), "every sandbox is given back")
	})

	answers := func(ctx context.Context, id string) (out []string) {
		GinkgoHelper()
		ms, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for _, m := range ms {
			if m.Role == store.RoleAssistant {
				out = append(out, *m.Content)
			}
		}
		return out
	}
	say := func(ctx context.Context, id, text string) store.Run {
		GinkgoHelper()
		send(ctx, w, id, text)
		return rest(ctx, w, id)
	}
	events := func(ctx context.Context, id, kind string) (out []string) {
		GinkgoHelper()
		list, err := w.Store.Events(ctx, id, 0, 1000)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range list {
			if e.Type == kind {
				out = append(out, string(e.Data))
			}
		}
		return out
	}

	It("answers what was said, with state of the request, the session and the thread", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Counter', {
  schema: { input: s.object({ message: s.string() }), output: s.object({ n: s.number(), said: s.string(), ids: s.array(s.string()), request: s.boolean() }) },
  handler: async (ctx, input) => {
    const request = ctx.state.has('seen');
    ctx.state.set('seen', true);
    const n = ((await ctx.thread.state.get('n')) ?? 0) + 1;
    await ctx.thread.state.set('n', n);
    ctx.session.state.set('kind', 'chat');
    ctx.session.addEventListener('completed', (event, session) => ctx.logger.info('%s of %s', event, session.state.get('kind'), { id: session.id }));
    ctx.logger.child({ part: 1 }).warn('hello', { n });
    return { n, said: input.message, ids: [ctx.thread.id, ctx.sessionId], request };
  },
});`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		run := say(ctx, id, `{"message":"one"}`)
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		Expect(run.SessionState).To(MatchJSON(`{"kind":"chat"}`))
		run = say(ctx, id, "two")
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		list := answers(ctx, id)
		Expect(list).To(HaveLen(2))
		Expect(list[1]).To(MatchJSON(`{"n":2,"said":"two","request":false,"ids":["thrd_` + strings.ReplaceAll(id, "-", "") + `","` + run.ID + `"]}`))
		Eventually(func() []string { return events(ctx, id, store.EventHandlerLog) }).Should(ContainElements(
			MatchJSON(`{"level":"warn","message":"hello","data":{"agent":"Counter","part":1,"n":2}}`),
			MatchJSON(`{"level":"info","message":"completed of chat","data":{"agent":"Counter","id":"`+run.ID+`"}}`)))
	})

	It("says what is wrong with its input, its output, and with the code", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Strict', {
  schema: { input: v.variant('kind', [v.object({ kind: v.literal('bad') }), v.object({ kind: v.literal('throw') })]), output: v.object({ ok: v.boolean() }) },
  handler: async (ctx, input) => { if (input.kind === 'throw') throw new RangeError('too far'); return { ok: 'yes' }; },
});`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		run := say(ctx, id, `{"kind":"other"}`)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonInvalidInput, And(ContainSubstring("no input that Strict takes"), ContainSubstring("kind: "))))
		run = say(ctx, id, `{"kind":"bad"}`)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonInvalidOutput, ContainSubstring("ok: ")))
		run = say(ctx, id, `{"kind":"throw"}`)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonHandlerFailed, Equal("the handler failed: RangeError: too far")))
		Expect(events(ctx, id, store.EventHandlerLog)).To(ContainElement(And(ContainSubstring("RangeError: too far"), ContainSubstring("handler.ts:"))))
	})

	DescribeTable("says why a schema of any library refuses the message", func(ctx SpecContext, schema, text, want string) {
		w.Definitions.Put("a", handler(`import { z } from 'zod';
export default createAgent('Strict', { schema: { input: `+schema+` }, handler: async () => 'taken' });`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		run := say(ctx, id, text)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonInvalidInput, Equal("the message is no input that Strict takes: "+want)))
	},
		Entry("valibot, the text of { message }", `v.object({ message: v.pipe(v.string(), v.minLength(5, 'say more than that')) })`, "hi", "message: say more than that"),
		Entry("valibot, a number", `v.pipe(v.number(), v.minValue(10, 'ten or more'))`, "5", "ten or more"),
		Entry("valibot, in an object", `v.object({ to: v.pipe(v.string(), v.email('no address')), n: v.number() })`, `{"to":"x","n":1}`, "to: no address"),
		Entry("valibot, in a union", `v.union([v.object({ to: v.pipe(v.string(), v.email('no address')) }), v.number()])`, `{"to":"x"}`, "to: no address"),
		Entry("valibot, deep in a union", `v.object({ who: v.union([v.number(), v.object({ to: v.pipe(v.string(), v.email('no address')) })]) })`, `{"who":{"to":"x"}}`, "who.to: no address"),
		Entry("zod, the text of { message }", `z.object({ message: z.string().min(5, 'say more than that') })`, "hi", "message: say more than that"),
		Entry("zod, in a union", `z.object({ who: z.union([z.number(), z.object({ to: z.email('no address') })]) })`, `{"who":{"to":"x"}}`, "who.to: no address"),
		Entry("agentuity, the text of { message }", `s.object({ message: s.string().min(5) })`, "hi", "message: String must be at least 5 characters, got 2"),
		Entry("another type", `v.object({ n: v.number() })`, "hi", `Invalid type: Expected Object but received "hi"`),
	)

	It("asks the models that it lists, streams what they say, and counts what they use", func(ctx SpecContext) {
		long := strings.Repeat("many words ", 500)
		w.Definitions.Put("a", handler(`export default createAgent('Chat', {
  schema: { stream: true },
  handler: async (ctx, input) => {
    const { text, usage } = await generateText({ model: openai('small'), system: 'Be brief.', prompt: String(input), temperature: 1 });
    const result = streamText({ model: openai('large'), messages: [{ role: 'user', content: text }] });
    ctx.waitUntil(async () => {
      await ctx.thread.state.set('text', (await result.text).length);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await generateText({ model: openai('small'), prompt: 'after the answer' });
    });
    return result.textStream;
  },
});`, map[string][]skeinv1.ScriptStep{
			"small":        {enginetest.Say("short: {{.Last.Content}}")},
			"openai/large": {{Content: "long of {{.Last.Content}}: " + long, ChunkDelay: ms(1), Times: ptr.To[int32](0)}},
		}))
		w.Models = metered{w.Models}
		start(w)
		id := makeThread(ctx, w, "a")
		run := say(ctx, id, "hello")
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		Expect(answers(ctx, id)).To(HaveExactElements("long of short: hello: " + long))
		Expect(strings.Join(events(ctx, id, store.EventDelta), "")).To(ContainSubstring("many words"))
		var used model.Usage
		Expect(json.Unmarshal(run.Usage, &used)).To(Succeed())
		Expect([]int64{used.InputTokens, used.OutputTokens}).To(Equal([]int64{30, 6}), "of all calls, that after the answer too")
		page, err := w.Store.State(ctx, id, store.StateQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Entries).To(ConsistOf(HaveField("Key", "text")), "what was done after the answer is saved with the run")
	})

	It("refuses models that the agent does not list, and says of one that failed why", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Chat', { handler: async (ctx, input) => (await generateText({ model: openai(input), prompt: 'x' })).text });`,
			map[string][]skeinv1.ScriptStep{"broken": {{Error: "no such thing"}}}))
		start(w)
		id := makeThread(ctx, w, "a")
		run := say(ctx, id, "gpt-9")
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonHandlerFailed, And(ContainSubstring(`"openai/gpt-9"`), ContainSubstring("handler.models"))))
		run = say(ctx, id, "broken")
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements(skeinv1.ReasonModelFailed, ContainSubstring("no such thing")))
	})

	It("has models call its tools, and give objects", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Tools', {
  handler: async () => {
    const weather = tool({ description: 'Weather', inputSchema: v.object({ city: v.string() }), execute: async ({ city }) => ({ city, degrees: 21 }) });
    const { text, steps } = await generateText({ model: openai('m'), prompt: 'weather?', tools: { weather }, stopWhen: stepCountIs(3) });
    const { object } = await generateObject({ model: openai('o'), schema: s.object({ n: s.number() }), prompt: 'give n' });
    return { text, steps: steps.length, object };
  },
});`, map[string][]skeinv1.ScriptStep{
			"m": {enginetest.Call("weather", map[string]any{"city": "Oslo"}), enginetest.Say(`it is {{toolResult "weather"}}`)},
			"o": {enginetest.Say(`{"n":5}`)},
		}))
		start(w)
		id := makeThread(ctx, w, "a")
		run := say(ctx, id, "go")
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		Expect(answers(ctx, id)).To(HaveExactElements(MatchJSON(`{"text":"it is map[city:Oslo degrees:21]","steps":2,"object":{"n":5}}`)))
	})

	It("clears the conversation with its answer when it destroys the thread", Label("THR-06"), func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Reset', {
  handler: async (ctx, input) => {
    if (input.command === 'reset') {
      ctx.thread.addEventListener('destroyed', (event, thread) => ctx.logger.info(event, { thread: thread.id }));
      await ctx.thread.destroy();
      await ctx.thread.state.set('fresh', await ctx.thread.empty());
      return 'Conversation reset.';
    }
    await ctx.thread.state.push('said', input, 2);
    return String(await ctx.thread.state.keys());
  },
});`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		say(ctx, id, "one")
		run := say(ctx, id, `{"command":"reset"}`)
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		Expect(answers(ctx, id)).To(HaveExactElements("Conversation reset."))
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(t.DestroyedReason).To(Equal("explicit"))
		Expect(events(ctx, id, store.EventHandlerLog)).To(ContainElement(ContainSubstring(`"message":"destroyed"`)))
		say(ctx, id, "two")
		Expect(answers(ctx, id)).To(HaveExactElements("Conversation reset.", "fresh,said"))
	})

	It("clears the conversation before its answer, also when a hook is called for the answer", Label("THR-06", "HOK-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Reset', {
  handler: async (ctx, input) => {
    if (input === 'reset') await ctx.thread.destroy();
    return 'said ' + input;
  },
});`, nil), hook(skeinv1.HookAfterCreateMessage, `export default async (state, m) => { if (m.content === 'said reset') await state.setValue('heard', m.content); };`))
		start(w)
		id := makeThread(ctx, w, "a")
		say(ctx, id, "one")
		run := say(ctx, id, "reset")
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		Expect(answers(ctx, id)).To(HaveExactElements("said reset"))
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Value(ctx, "heard")).To(MatchJSON(`"said reset"`))
	})

	DescribeTable("is called again, under the same id, until its answer is recorded, and no more", Label("RUN-02"), func(ctx SpecContext, point string, calls int) {
		w.Definitions.Put("a", handler(`export default createAgent('Once', {
  handler: async (ctx, input) => {
    await ctx.kv.set('calls', ctx.callId, ((await ctx.kv.get('calls', ctx.callId)).data ?? 0) + 1);
    await ctx.thread.state.push('calls', 1);
    await ctx.skein.injectMessage({ role: 'user', content: 'by the handler', silent: true });
    ctx.waitUntil(async () => { while (!(await ctx.kv.get('gate', 'open')).data); await ctx.thread.state.push('after', 1); });
    return 'answer';
  },
});`, nil))
		// While the handler's work in the background goes on, its answer is recorded apart from the end of the run.
		kv := w.Threads.KV(store.Namespace{Name: enginetest.Namespace})
		endWork := func() { _ = kv.Set(ctx, "gate", "open", json.RawMessage("true"), 0) }
		gate := &enginetest.Gate{Store: w.Store}
		cut := make(chan struct{})
		var fired atomic.Bool
		_, stop := start(w, func(o *engine.Options) {
			o.Threads = w.Over(gate)
			o.Faults = func(at string) {
				if at == "answer.after" {
					endWork()
				}
				if at == point && fired.CompareAndSwap(false, true) {
					gate.Cut()
					close(cut)
				}
				if gate.IsCut() {
					panic("dead")
				}
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(cut).Should(BeClosed())
		stop()
		Expect(gate.Expire(ctx)).To(Succeed())
		endWork()
		start(w)
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(answers(ctx, id)).To(HaveExactElements("answer"))
		ms, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(ms).To(HaveLen(3), "what it said through state is there once")
		keys, err := kv.Keys(ctx, "calls", store.KeyQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(keys.Keys).To(HaveLen(1))
		v, err := kv.Get(ctx, "calls", keys.Keys[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(v.Data).To(MatchJSON(fmt.Sprint(calls)))
		page, err := w.Store.State(ctx, id, store.StateQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Entries).To(ContainElement(And(HaveField("Key", "calls"), HaveField("Value", MatchJSON("[1]")))), "its state is saved with the answer")
	},
		Entry("before it is called", "handler.before", 1),
		Entry("after it was called", "handler.after", 2),
		Entry("before its answer is recorded", "answer.before", 2),
		Entry("after its answer was recorded", "answer.after", 1),
		Entry("before the run's end", "finish.before", 1),
	)

	It("is stopped in the middle, and limited in time", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Slow', { handler: async (ctx, input) => { ctx.logger.info('begun'); await new Promise((r) => setTimeout(r, 3600e3)); } });`, nil))
		w.Definitions.Put("b", handler(`export default createAgent('Slow', { handler: async () => { for (;;); } });`, nil), func(a *definition.Agent) { a.A.Handler.Timeout = 300 * time.Millisecond })
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() []string { return events(ctx, id, store.EventHandlerLog) }).ShouldNot(BeEmpty())
		Expect(e.Stop(ctx, id, skeinv1.ReasonStoppedByUser)).To(Succeed())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunStopped))
		id = makeThread(ctx, w, "b")
		run := say(ctx, id, "go")
		Expect(run.Reason).To(Equal(skeinv1.ReasonHandlerTimeout), run.Message)
	})

	It("is asked once more when its sandbox is lost", Label("COD-09"), func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Lost', {
  handler: async (ctx) => {
    await ctx.thread.state.push('calls', 1);
    const again = (await ctx.kv.get('lost', 'again')).exists;
    await ctx.kv.set('lost', 'again', true);
    ctx.logger.info('begun');
    if (!again) await new Promise((r) => setTimeout(r, 3600e3));
    return String((await ctx.thread.state.get('calls')).length);
  },
});`, nil))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() []string { return events(ctx, id, store.EventHandlerLog) }).ShouldNot(BeEmpty())
		Expect(sandboxes.Kill()).To(Succeed())
		run := rest(ctx, w, id)
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		Expect(answers(ctx, id)).To(HaveExactElements("1"), "what the lost call did to the state is not there")
	})

	It("takes back the pieces of a call whose sandbox was lost", Label("EVT-03"), func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Lost', {
  schema: { stream: true },
  handler: async (ctx) => {
    const again = (await ctx.kv.get('lost', 'pieces')).exists;
    await ctx.kv.set('lost', 'pieces', true);
    return (async function* () {
      yield (again ? 'second ' : 'first ').repeat(1000);
      if (!again) await new Promise((r) => setTimeout(r, 3600e3));
    })();
  },
});`, nil))
		start(w, func(o *engine.Options) { o.Clock = clocktesting.NewFakeClock(time.Now()) }) // so that pieces are written for their size alone
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() []string { return events(ctx, id, store.EventDelta) }).ShouldNot(BeEmpty())
		Expect(sandboxes.Kill()).To(Succeed())
		run := rest(ctx, w, id)
		Expect(run.Status).To(Equal(store.RunSucceeded), run.Message)
		texts, resets := pieces(ctx, w, id)
		Expect(texts).To(HaveExactElements(HavePrefix("first"), HavePrefix("second")))
		Expect(resets).To(Equal(1))
	})
})
