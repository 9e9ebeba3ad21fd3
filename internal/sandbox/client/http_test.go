package client_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("requests and responses in definition code", Label("END-01"), func() {
	var ctx context.Context
	var i sandbox.Isolate
	BeforeEach(func() { ctx = within(2 * patience) })

	// run returns the result of a function body.
	run := func(body string) any {
		GinkgoHelper()
		c := sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
		m, failed := compile.Compile("t.ts", "const caught = async (f: any) => { try { return await f() } catch (e) { return e.name + ': ' + e.message } };\nexport default async () => {"+body+"}", sandbox.TypeScript)
		Expect(failed).To(BeNil())
		var err error
		i, err = c.OpenIsolate(ctx, sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": m}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(i.Close)
		v, err := i.Invoke(ctx, "1", "t", nil)
		Expect(err).NotTo(HaveOccurred())
		return v
	}

	It("have headers of any case, joined and sorted", func() {
		Expect(run(`
			const h = new Headers({ 'X-B': ' 1 ', 'content-TYPE': 'text/html' });
			h.append('x-b', 2); h.set('X-A', 'a'); h.append('set-cookie', 'p=1'); h.append('Set-Cookie', 'q=2'); h.delete('content-type');
			const copy = new Response('x', { headers: h }).clone();
			return [[...h], copy.headers.getSetCookie(), h.get('X-b'), h.get('none'), h.has('x-a'), h.getSetCookie(), [...new Headers([['a', '1']]).keys()],
				await caught(() => new Headers({ 'a b': '1' })), await caught(() => h.set('a', 'x\ny')), await caught(() => new Headers([['a']]))];
		`)).To(Equal([]any{
			[]any{[]any{"set-cookie", "p=1"}, []any{"set-cookie", "q=2"}, []any{"x-a", "a"}, []any{"x-b", "1, 2"}}, []any{"p=1", "q=2"}, "1, 2", nil, true, []any{"p=1", "q=2"}, []any{"a"},
			`TypeError: "a b" is not the name of a header`, "TypeError: a header has a value with characters that do not belong there",
			"TypeError: Headers: give pairs of a name and a value",
		}))
	})

	It("have bodies of texts, bytes, forms, objects and streams, read once", func() {
		Expect(run(`
			const type = (b: any) => new Response(b).headers.get('content-type');
			const r = new Response('héllo');
			const copy = r.clone();
			const first = await r.text();
			async function* pieces() { yield 'a'; yield new Uint8Array([98]); yield new Uint8Array([99]).buffer; }
			return [type('x'), type({ a: 1 }), type(new URLSearchParams({ a: '1' })), type(new Uint8Array(1)), type(null),
				first, r.bodyUsed, await caught(() => r.json()), await copy.text(), await new Response(pieces()).text(),
				(await new Response(new Uint8Array([1, 2])).arrayBuffer()).byteLength, await new Response({ a: [1] }).json(), await caught(() => new Response('{').json()),
				new Response(null).body, await caught(() => new Response(pieces()).clone())];
		`)).To(HaveExactElements(
			"text/plain;charset=UTF-8", "application/json", "application/x-www-form-urlencoded;charset=UTF-8", BeNil(), BeNil(),
			"héllo", true, "TypeError: the body has been read already", "héllo", "abc", 2.0, map[string]any{"a": []any{1.0}},
			ContainSubstring("the body is not JSON"), BeNil(), ContainSubstring("cannot be cloned"),
		))
	})

	It("have methods, statuses and the answers that are made often", func() {
		Expect(run(`
			const q = new Request('https://x.example/a?b=1', { method: 'post', body: 'x', headers: { a: '1' } });
			const j = Response.json({ a: 1 }, { status: 201 });
			const to = Response.redirect('/elsewhere', 303);
			return [q.method, q.url, await new Request(q).text(), j.status, j.ok, j.headers.get('content-type'), to.status, to.headers.get('location'),
				await caught(() => new Request('https://x.example', { body: 'x' })), await caught(() => new Response('x', { status: 204 })),
				await caught(() => new Response('x', { status: 199 })), await caught(() => Response.json(undefined)), new Response(null, { status: 404 }).ok];
		`)).To(HaveExactElements("POST", "https://x.example/a?b=1", "x", 201.0, true, "application/json", 303.0, "/elsewhere",
			"TypeError: a request with GET has no body", "TypeError: an answer with status 204 has no body", ContainSubstring("200 to 599"),
			"TypeError: the value cannot be written as JSON", false))
	})

	It("stream by start and pull, end, fail and are cancelled", func() {
		Expect(run(`
			const read = async (s: any) => { let all = ''; for await (const c of s) all += c; return all; };
			let n = 0, cancelled = '';
			const pulled = new ReadableStream({ pull(c) { if (++n > 3) c.close(); else c.enqueue(String(n)); } });
			let m = 0, l = 0;
			const slow = new ReadableStream({ async pull(c) { if (++m > 3) return c.close(); c.enqueue(String(m)); await new Promise((r) => setTimeout(r, 5)); } });
			const later = new ReadableStream({ pull(c) { setTimeout(() => c.enqueue(++l), 1); } }).getReader();
			const both = await Promise.all([later.read(), later.read(), later.read()]);
			const started = new ReadableStream({ start(c) { c.enqueue('a'); setTimeout(() => { c.enqueue('b'); c.close(); }, 1); } });
			const failing = new ReadableStream({ start(c) { c.enqueue('x'); }, pull() { throw new Error('no more'); } });
			const endless = new ReadableStream({ pull(c) { c.enqueue('x'); }, cancel(why) { cancelled = String(why); } });
			const reader = endless.getReader();
			const one = await reader.read();
			const locked = await caught(() => endless.getReader());
			await reader.cancel('enough');
			const big = new Response(new Uint8Array(200_000));
			const sizes = [];
			for await (const c of big.body) sizes.push(c.length);
			return [await read(pulled), await read(slow), both.map((b) => b.value), await read(started), await caught(() => read(failing)), one, locked, cancelled, (await reader.read()).done,
				await read(ReadableStream.from(['p', 'q'])), sizes, big.bodyUsed];
		`)).To(HaveExactElements("123", "123", []any{1.0, 2.0, 3.0}, "ab", "Error: no more", map[string]any{"value": "x", "done": false}, ContainSubstring("being read already"), "enough", true,
			"pq", []any{65536.0, 65536.0, 65536.0, 3392.0}, true))
	})

	It("let go of a stream while a read waits, and tell when it has ended", func() {
		Expect(run(`
			let c: any;
			const s = new ReadableStream({ start(controller) { c = controller; } });
			const first = s.getReader();
			const read = caught(() => first.read());
			first.releaseLock();
			const second = s.getReader();
			const next = second.read();
			c.enqueue('x');
			c.close();
			const ended = await second.closed;
			const failing = new ReadableStream({ start(controller) { controller.error(new RangeError('broken')); } }).getReader();
			return [await read, await caught(() => first.closed), await next, ended === undefined, await caught(() => failing.closed),
				await caught(() => new ReadableStream({ start() { throw new RangeError('at once'); } }))];
		`)).To(Equal([]any{"TypeError: the reader has let go of its stream", "TypeError: the reader has let go of its stream", map[string]any{"value": "x", "done": false},
			true, "RangeError: broken", "RangeError: at once"}))
	})
})
