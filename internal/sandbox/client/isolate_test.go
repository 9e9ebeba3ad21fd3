//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// hostCall is a call that a Host got.
type hostCall struct {
	Invocation, Method string
	Args               []any
}

// host records calls and answers by method.
type host struct {
	mu      sync.Mutex
	calls   []hostCall
	answers map[string]func(ctx context.Context, args []any) (any, error)
}

func (h *host) serve(ctx context.Context, invocation, method string, args []any) (any, error) {
	h.mu.Lock()
	h.calls = append(h.calls, hostCall{invocation, method, args})
	f := h.answers[method]
	h.mu.Unlock()
	if f == nil {
		return nil, nil
	}
	return f(ctx, args)
}

func (h *host) seen() []hostCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]hostCall(nil), h.calls...)
}

// prepareIsolates connects to a sandbox before each spec, with a host for isolates that has no answers. open opens an isolate with modules,
// until the spec ends.
func prepareIsolates(ctx *context.Context, c **client.Client, h **host) (open func(map[string]string, ...func(*sandbox.IsolateRequest)) sandbox.Isolate) {
	BeforeEach(func() {
		*ctx, *c = within(2*patience), sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
		*h = &host{answers: map[string]func(context.Context, []any) (any, error){}}
	})
	return func(sources map[string]string, change ...func(*sandbox.IsolateRequest)) sandbox.Isolate {
		GinkgoHelper()
		req := sandbox.IsolateRequest{Modules: map[string]sandbox.Module{}, Host: (*h).serve}
		for name, source := range sources {
			m, failed := compile.Compile(name+".ts", source, sandbox.TypeScript)
			Expect(failed).To(BeNil())
			req.Modules[name] = m
		}
		for _, f := range change {
			f(&req)
		}
		i, err := (*c).OpenIsolate(*ctx, req)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(i.Close)
		return i
	}
}

var _ = Describe("an isolate of definition code", func() {
	var c *client.Client
	var ctx context.Context
	var h *host
	open := prepareIsolates(&ctx, &c, &h)

	const tool = `import { defineTool } from '@standardagents/builder';
import { z } from 'zod';

export default defineTool({
  description: 'Inspect subagent status',
  args: z.object({ referenceId: z.string(), limit: z.number().int().default(3) }),
  execute: async (state, args) => {
    const child = await state.getChildThread(args.referenceId);
    if (!child) {
      return { status: 'error', error: 'Child thread not found.' };
    }
    return { status: 'success', result: ` + "`Child terminated: ${child.terminated ? 'yes' : 'no'}, ${args.limit}`" + ` };
  },
});
`

	It("describes what a module declares, zod as JSON Schema", Label("TOL-02", "TOL-03"), func() {
		i := open(map[string]string{"tool": tool, "effect": "import { defineEffect } from '@standardagents/builder'; export default defineEffect({ execute() {} })", "plain": "export default { description: 'p', args: { type: 'object' }, execute() {} }"})
		d, err := i.Describe(ctx, "tool")
		Expect(err).NotTo(HaveOccurred())
		Expect(*d).To(Equal(sandbox.Description{
			Kind: "tool", Description: "Inspect subagent status",
			Args: map[string]any{
				"type":       "object",
				"properties": map[string]any{"referenceId": map[string]any{"type": "string"}, "limit": map[string]any{"type": "integer", "default": 3.0, "minimum": -9007199254740991.0, "maximum": 9007199254740991.0}},
				"required":   []any{"referenceId"},
			},
		}))
		d, err = i.Describe(ctx, "effect")
		Expect(err).NotTo(HaveOccurred())
		Expect(*d).To(Equal(sandbox.Description{Kind: "effect"}))
		d, err = i.Describe(ctx, "plain")
		Expect(err).NotTo(HaveOccurred())
		Expect(*d).To(Equal(sandbox.Description{Kind: "tool", Description: "p", Args: map[string]any{"type": "object"}}))
	})

	It("has large arguments when the module is there, however long that takes", Label("COD-07"), func() {
		i := open(map[string]string{"tool": `
await new Promise(done => setTimeout(done, 20));
export default { execute: async (state, args) => args.text.length };
`, "missing": `import 'nowhere'; export default {}`})
		large := map[string]any{"text": strings.Repeat("x", 3<<20)}
		for range 3 {
			Expect(i.Invoke(ctx, "call", "tool", large)).To(BeEquivalentTo(3 << 20))
			_, err := i.Invoke(ctx, "call", "missing", large)
			Expect(err).To(MatchError(ContainSubstring("nowhere")))
		}
	})

	It("runs a tool written for ThreadState unchanged", Label("TOL-02", "TOL-03"), func() {
		h.answers["getChildThread"] = func(_ context.Context, args []any) (any, error) {
			if args[0] == "gone" {
				return nil, nil
			}
			return map[string]any{"terminated": 5}, nil
		}
		i := open(map[string]string{"tool": tool})
		Expect(i.Invoke(ctx, "call-1", "tool", map[string]any{"referenceId": "r"})).To(Equal(map[string]any{"status": "success", "result": "Child terminated: yes, 3"}))
		Expect(i.Invoke(ctx, "call-2", "tool", map[string]any{"referenceId": "gone"})).To(HaveKeyWithValue("status", "error"))
		Expect(h.seen()).To(Equal([]hostCall{{"call-1", "getChildThread", []any{"r"}}, {"call-2", "getChildThread", []any{"gone"}}}))
		_, err := i.Invoke(ctx, "call-3", "tool", map[string]any{"referenceId": 7})
		Expect(err).To(MatchError(ContainSubstring("invalid arguments: referenceId: ")))
	})

	It("shares state.context and the modules' variables between invocations", Label("STA-08"), func() {
		i := open(map[string]string{
			"a": "let n = 0; export default (state) => { state.context.n = (state.context.n ?? 0) + 1; return [state.context.n, ++n] }",
			"b": "export default (state) => { state.context.n += 10; return state.context.n }",
		})
		Expect(i.Invoke(ctx, "1", "a", nil)).To(Equal([]any{1.0, 1.0}))
		Expect(i.Invoke(ctx, "2", "b", nil)).To(Equal(11.0))
		Expect(i.Invoke(ctx, "3", "a", nil)).To(Equal([]any{12.0, 2.0}))
		other := open(map[string]string{"a": "export default (state) => state.context.n"})
		Expect(other.Invoke(ctx, "1", "a", nil)).To(Equal(value.Undefined{}))
	})

	It("gives state its properties, read-only, and makes every other name a method", func() {
		h.answers["env"] = func(_ context.Context, args []any) (any, error) {
			return nil, &sandbox.Error{Name: "NotFoundError", Message: "no variable " + args[0].(string)}
		}
		h.answers["readFile"] = func(context.Context, []any) (any, error) { return []byte("héllo"), nil }
		i := open(map[string]string{"t": `export default async (state, args) => {
			const out = [state.threadId, state.arguments.x, state.userId, state.getAgentNames(), state.missing === undefined, typeof state.getMessages, state._notPackableRuntimeContext, Object.keys(state)];
			try { state.threadId = 'other' } catch (e) { out.push(e.message) }
			try { await state.env('KEY') } catch (e) { out.push(e.name + ': ' + e.message) }
			const data = await state.readFile('/x');
			out.push(data instanceof ArrayBuffer, new TextDecoder().decode(data), await Promise.resolve(state) === state);
			return out;
		}`}, func(r *sandbox.IsolateRequest) {
			r.Static = map[string]any{"threadId": "t-1", "arguments": map[string]any{"x": 1}, "userId": nil, "getAgentNames()": []any{"a", "b"}}
		})
		Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal([]any{
			"t-1", 1.0, nil, []any{"a", "b"}, false, "function", value.Undefined{}, []any{"context", "arguments", "threadId", "userId"},
			"state.threadId cannot be set: keep what is yours in state.context", "NotFoundError: no variable KEY", true, "héllo", true,
		}))
	})

	It("runs invocations side by side, each call with its own id", func() {
		release := make(chan struct{})
		h.answers["slow"] = func(context.Context, []any) (any, error) { <-release; return "slow", nil }
		h.answers["fast"] = func(context.Context, []any) (any, error) { return "fast", nil }
		i := open(map[string]string{"t": "export default async (state, args) => { const r = await state[args](); await state.note(r); return r }"})
		slow := make(chan any, 1)
		go func() {
			defer GinkgoRecover()
			v, err := i.Invoke(ctx, "slow-call", "t", "slow")
			Expect(err).NotTo(HaveOccurred())
			slow <- v
		}()
		Eventually(h.seen, patience).Should(HaveLen(1))
		Expect(i.Invoke(ctx, "fast-call", "t", "fast")).To(Equal("fast"))
		close(release)
		Eventually(slow, patience).Should(Receive(Equal("slow")))
		Expect(h.seen()).To(Equal([]hostCall{
			{"slow-call", "slow", []any{}}, {"fast-call", "fast", []any{}}, {"fast-call", "note", []any{"fast"}}, {"slow-call", "note", []any{"slow"}},
		}))
	})

	It("gives errors of the code with positions in its TypeScript", func() {
		i := open(map[string]string{"tool": "interface A { x: number }\n\nexport default (state: unknown, a: A) => {\n  return boom(a)\n}\nfunction boom(a: A): never {\n  throw new RangeError('too ' + a.x)\n}\n"})
		_, err := i.Invoke(ctx, "1", "tool", map[string]any{"x": 9})
		var e *sandbox.Error
		Expect(errors.As(err, &e)).To(BeTrue())
		Expect(e.Name + ": " + e.Message).To(Equal("RangeError: too 9"))
		Expect(e.Stack).To(MatchRegexp(`^RangeError: too 9\n\s+at boom \(tool\.ts:7:\d+\)\n\s+at .*tool\.ts:4:\d+`))
		Expect(e.Stack).NotTo(ContainSubstring("skein:"))
		_, err = i.Invoke(ctx, "2", "tool", nil)
		Expect(err).To(HaveOccurred())
		Expect(i.Invoke(ctx, "3", "tool", map[string]any{"x": 1})).Error().To(MatchError("RangeError: too 1"))
	})

	It("refuses functions and symbols to methods of state", Label("COD-07"), func() {
		i := open(map[string]string{"t": "export default async (state) => { try { await state.setValue('k', { f() {} }) } catch (e) { return e.message } }"})
		Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal(`state.setValue: the value for "k" is not JSON: a function, at .f`))
		Expect(h.seen()).To(BeEmpty())
	})

	It("gives code what the platform configured as plain data, and explains a call of it", Label("TOL-04"), func() {
		i := open(map[string]string{"t": `export default async (state, { what }) => {
  const p: any = state._notPackableRuntimeContext;
  switch (what) {
    case 'read': return [p.env.NONE === undefined, Array.isArray(p.env.list), [...p.env.list], Object.keys(p.env), { ...p.env.DATABASE }, structuredClone(p.env)];
    case 'write': p.env.DATABASE.name = 'other'; return 'written';
    case 'method': return p.env.DATABASE.prepare('x').bind(1);
    case 'text': return p.env.URL.fetch('/x');
  }
}`}, func(r *sandbox.IsolateRequest) {
			r.Static = map[string]any{"$runtimeContext": map[string]any{"env": map[string]any{"DATABASE": map[string]any{"name": "orders"}, "URL": "https://db.example", "list": []any{1.0}}}}
		})
		env := map[string]any{"DATABASE": map[string]any{"name": "orders"}, "URL": "https://db.example", "list": []any{1.0}}
		Expect(i.Invoke(ctx, "1", "t", map[string]any{"what": "read"})).To(Equal([]any{true, true, []any{1.0}, []any{"DATABASE", "URL", "list"}, map[string]any{"name": "orders"}, env}))
		for what, named := range map[string]string{"method": "env.DATABASE.prepare", "text": "env.URL"} {
			_, err := i.Invoke(ctx, "2", "t", map[string]any{"what": what})
			Expect(err).To(MatchError(And(ContainSubstring("not a function: if it is state._notPackableRuntimeContext."+named+" that was to be called"), ContainSubstring("plain data"))))
		}
		_, err := i.Invoke(ctx, "3", "t", map[string]any{"what": "write"})
		Expect(err).To(HaveOccurred())
		Expect(err).NotTo(MatchError(ContainSubstring("plain data")))
	})

	It("leaves out what cannot be kept in the scopes of state, and says why", Label("STA-05", "KVS-01"), func() {
		i := open(map[string]string{"t": `
const loop: any = { deep: {} };
loop.deep.loop = loop;
let nested: any = 0;
for (let i = 0; i < 600; i++) nested = [nested];
const values: [string, any][] = [
  ['function', () => 1], ['nested', { a: [1, { f() {} }] }], ['symbol', Symbol('s')], ['circular', loop], ['deep', nested], ['promise', Promise.resolve(1)],
  ['toJSON', new (class { toJSON() { throw new RangeError('no JSON') } })()], ['getter', { get x() { throw new RangeError('no x') } }],
  ['proxy', new Proxy({}, { ownKeys() { throw new RangeError('no keys') } })], ['thrown', { get x() { throw { toString() { throw 1 } } } }],
  ['date', { at: new Date(NaN) }],
];
export default async (state) => {
  const refused: Record<string, string> = {};
  for (const [key, value] of values) {
    state.request.state.set(key, value);
    state.session.state.set(key, value);
    state.session.state.push(key + ' list', value);
    await state.thread.state.set(key, value);
    await state.thread.state.push(key, value, 3);
    await state.setValue(key, value).catch((e) => { refused[key] = e.message });
  }
  await state.thread.state.set('kept', new Proxy({ a: [1, undefined] }, {}));
  return [refused, state.request.state.size, state.session.state.size];
}`}, func(r *sandbox.IsolateRequest) {
			r.Static = map[string]any{"$scopes": map[string]any{"session": "sess_1", "thread": "t1", "entries": []any{}}}
		})
		reasons := map[string]string{
			"function": "a function", "nested": "a function, at .a[1].f", "symbol": "a symbol", "circular": "it contains itself, at .deep.loop",
			"deep": "it nests deeper than 500 levels, at ", "promise": "a promise: await it first", "toJSON": "reading it throws RangeError: no JSON",
			"getter": "reading it throws RangeError: no x", "proxy": "reading it throws RangeError: no keys", "thrown": "reading it throws an error", "date": "an invalid Date, at .at",
		}
		v, err := i.Invoke(ctx, "1", "t", nil)
		Expect(err).NotTo(HaveOccurred())
		answer := v.([]any)
		Expect(answer[1:]).To(Equal([]any{11.0, 22.0}), "they are there while the code runs")
		Expect(answer[0]).To(HaveLen(len(reasons)))
		for key, message := range answer[0].(map[string]any) {
			Expect(message).To(HavePrefix("state.setValue: the value for %q is not JSON: %s", key, reasons[key]))
		}
		skipped := map[string]int{}
		for _, c := range h.seen() {
			if c.Method == "thread.set" {
				Expect(c.Args).To(Equal([]any{"kept", map[string]any{"a": []any{1.0, value.Undefined{}}}}))
				continue
			}
			Expect(c.Method).To(Equal("state.skip"))
			key := strings.TrimSuffix(c.Args[1].(string), " list")
			Expect(c.Args[2]).To(HavePrefix(strings.Split(reasons[key], ", at")[0]), key)
			skipped[fmt.Sprint(c.Args[0], " ", key)]++
		}
		Expect(skipped).To(HaveLen(22))
		Expect(skipped).To(HaveEach(2), "set and push, of the session and of the thread")
	})

	It("fires timers in the order in which they are due, however late it comes to it", func() {
		i := open(map[string]string{"t": `export default () => new Promise((done) => {
			const order: string[] = [];
			for (;;) { // timers fire in this order when they start together; a busy machine may separate them
				const begun = Date.now();
				const all = [setTimeout(() => { order.push('40'); done(order) }, 40)];
				for (const ms of [30, 10, 20]) all.push(setTimeout(() => order.push(String(ms)), ms));
				const ticks = setInterval(() => { order.push('tick'); clearInterval(ticks) }, 15);
				all.push(ticks, setTimeout(() => { const until = Date.now() + 60; while (Date.now() < until); }, 1));
				if (Date.now() - begun < 4) return;
				all.forEach(clearTimeout);
			}
		})`})
		Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal([]any{"10", "tick", "20", "30", "40"}))
	})

	It("has timers, text codecs and base64", func() {
		i := open(map[string]string{"t": `export default async () => {
			const order: string[] = [];
			await new Promise<void>((done) => {
				setTimeout(() => order.push('early'), 1);
				setTimeout((x: string) => { order.push(x); done() }, 20, 'late');
				clearTimeout(setTimeout(() => order.push('never'), 5));
				queueMicrotask(() => order.push('micro'));
			});
			let ticks = 0;
			await new Promise<void>((done) => { const id = setInterval(() => { if (++ticks === 3) { clearInterval(id); done() } }, 1) });
			const d = new TextDecoder(); const bytes = new TextEncoder().encode('hé𝄞');
			const streamed = d.decode(bytes.subarray(0, 2), { stream: true }) + d.decode(bytes.subarray(2));
			return [order, ticks, bytes.length, streamed, new TextDecoder().decode(new Uint8Array([0xff, 65])), btoa('é'), atob('6Q=='), structuredClone({ a: new Map([[1, 2n]]) }).a.get(1), /^[0-9a-f-]{36}$/.test(crypto.randomUUID()), crypto.getRandomValues(new Uint8Array(8)).length];
		}`})
		Expect(i.Invoke(ctx, "1", "t", nil)).To(HaveExactElements(
			Equal([]any{"micro", "early", "late"}), Equal(3.0), Equal(7.0), Equal("hé𝄞"), Equal("\uFFFDA"), Equal("6Q=="), Equal("é"), Not(BeNil()), BeTrue(), Equal(8.0),
		))
	})

	It("has URL and URLSearchParams", func() {
		i := open(map[string]string{"t": `export default () => {
			const u = new URL('../b c?x=1&y=a%20b#frag', 'https://me:pw@Example.com:443/a/d/e');
			const out: unknown[] = [u.href, u.origin, u.hostname, u.port, u.pathname, u.search, u.hash, u.username, u.searchParams.get('y')];
			u.searchParams.append('z', 'é&'); u.searchParams.delete('x'); u.port = '8080'; u.pathname = 'p q';
			out.push(u.href, String(new URLSearchParams({ a: '1 2', b: '+' })), [...new URLSearchParams('?k=v&k=w').getAll('k')], URL.canParse('nonsense'), JSON.stringify({ u }), new URL('data:text/plain,hi').pathname, new URL('http://[::1]:3000/').host);
			try { new URL('nonsense') } catch (e) { out.push(e instanceof TypeError) }
			return out;
		}`})
		Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal([]any{
			"https://me:pw@example.com/a/b%20c?x=1&y=a%20b#frag", "https://example.com", "example.com", "", "/a/b%20c", "?x=1&y=a%20b", "#frag", "me", "a b",
			"https://me:pw@example.com:8080/p%20q?y=a+b&z=%C3%A9%26#frag", "a=1+2&b=%2B", []any{"v", "w"}, false,
			`{"u":"https://me:pw@example.com:8080/p%20q?y=a+b&z=%C3%A9%26#frag"}`, "text/plain,hi", "[::1]:3000", true,
		}))
	})

	It("attributes what a single invocation logs", func() {
		type line struct{ invocation, level, message string }
		lines := make(chan line, 10)
		i := open(map[string]string{"t": "export default async () => { console.warn('careful', { a: 1 }) }"}, func(r *sandbox.IsolateRequest) {
			r.Log = func(invocation string, l sandbox.Log) { lines <- line{invocation, l.Level, l.Message} }
		})
		Expect(i.Invoke(ctx, "call-9", "t", nil)).To(Equal(value.Undefined{}))
		Expect(lines).To(Receive(Equal(line{"call-9", "warn", "careful { a: 1 }"})))
	})

	It("cannot speak for an invocation that is not under way", func() {
		i := open(map[string]string{
			"keep": "export default (state) => { state.context.kept = state }",
			"use":  "export default async (state) => { try { await state.context.kept.setValue('a', 1) } catch (e) { return e.message } }",
		})
		_, err := i.Invoke(ctx, "first", "keep", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(i.Invoke(ctx, "second", "use", nil)).To(ContainSubstring("has ended"))
		Expect(h.seen()).To(BeEmpty())
	})
})
