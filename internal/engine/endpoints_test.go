package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/endpoint/headers"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// answered takes an endpoint's answer.
type answered struct {
	mu      sync.Mutex
	status  int
	headers map[string]string
	pieces  []string
	refuse  error // what Write gives
	wrote   chan string
}

func (a *answered) Head(_ string, status int, headers [][2]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.headers = status, map[string]string{}
	for _, h := range headers {
		a.headers[h[0]] = h[1]
	}
	return nil
}

func (a *answered) Write(p []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pieces = append(a.pieces, string(p))
	if a.wrote != nil {
		a.wrote <- string(p)
	}
	return a.refuse
}

// holding is an answer that is not taken until release is closed.
type holding struct {
	answered
	entered, release chan struct{}
}

func (h *holding) Write([]byte) error {
	close(h.entered)
	<-h.release
	return nil
}

func (a *answered) body() string { return strings.Join(a.pieces, "") }

const endpointHead = "import { defineThreadEndpoint } from '@standardagents/builder';\n"

var _ = Describe("Endpoints", Label("END-01"), func() {
	var w *enginetest.World
	var e *engine.Engine
	var id string
	var sandboxes *enginetest.Processes
	BeforeEach(func(ctx SpecContext) {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("heard: {{.Last.Content}}")))
		e, _ = start(w)
		id = makeThread(ctx, w, "a")
	})
	AfterEach(func() {
		Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero(), "every sandbox is given back")
	})

	put := func(source string, change ...func(*definition.Endpoint)) {
		GinkgoHelper()
		m, failed := compile.Compile("endpoint.ts", endpointHead+source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		ep := definition.Endpoint{Module: m, Spec: skeinv1.ThreadEndpointSpec{Timeout: &metav1.Duration{Duration: patience}}}
		for _, c := range change {
			c(&ep)
		}
		for _, method := range []string{"GET", "POST", "HEAD"} {
			w.Definitions.PutEndpoint(method+" /x", ep)
		}
	}
	ask := func(ctx context.Context, method, body string, change ...func(*endpoints.Request)) (*answered, error) {
		req := endpoints.Request{
			Method: method, Path: []string{"x"}, URL: "https://skein.example/threads/t/endpoints/x?q=1", Body: []byte(body), User: "ada",
			Headers: [][2]string{{"content-type", "application/json"}, {"x-a", "1"}},
		}
		for _, c := range change {
			c(&req)
		}
		a := &answered{}
		return a, e.ServeEndpoint(ctx, id, req, a)
	}
	get := func(ctx context.Context) *answered {
		GinkgoHelper()
		a, err := ask(ctx, "GET", "")
		Expect(err).NotTo(HaveOccurred())
		return a
	}

	It("get the request, the state of the thread and the path's parameters", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state, params) => {
  const body = request.method === 'POST' ? await request.json() : null;
  await state.setValue('last', body);
  return Response.json({ method: request.method, q: new URL(request.url).searchParams.get('q'), a: request.headers.get('X-A'), user: request.user,
    id: state.threadId, execution: state.execution, body, params }, { status: 201, headers: { 'X-B': '2' } });
});`, func(ep *definition.Endpoint) { ep.Params = map[string]string{"id": "7"} })
		a, err := ask(ctx, "POST", `{"n":1}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(a.status).To(Equal(201))
		Expect(a.headers).To(Equal(map[string]string{"content-type": "application/json", "x-b": "2"}))
		Expect(a.body()).To(MatchJSON(`{"method":"POST","q":"1","a":"1","user":{"name":"ada"},"id":"` + id + `","execution":null,"body":{"n":1},"params":{"id":"7"}}`))
		Expect(w.Store.Value(ctx, id, "last")).To(MatchJSON(`{"n":1}`))
	})

	It("keep thread state before they answer, and what goes on after it when it is done", Label("STA-01", "STA-06"), func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => {
  if (request.method === 'POST') {
    state.request.state.set('n', 1);
    await state.thread.state.set('before', state.request.state.get('n'));
    state.waitUntil(async () => { while (!(await state.getValue('go'))); await state.thread.state.set('after', state.session.id.slice(0, 5)); });
    return 'begun';
  }
  return [await state.thread.state.get('before') ?? null, await state.thread.state.get('after') ?? null, state.request.state.has('n')];
});`)
		a, err := ask(ctx, "POST", "{}")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.body()).To(Equal("begun"))
		Expect(get(ctx).body()).To(MatchJSON(`[1,null,false]`), "answered before the work is done")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetValue(ctx, "go", []byte("true"))).To(Succeed())
		Eventually(func() string { return get(ctx).body() }).Should(MatchJSON(`[1,"sess_",false]`))
	})

	It("stream what an iterator gives, each piece when the one before was taken", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => new Response((async function* () {
  for (let i = 1; i <= 3; i++) { yield 'piece ' + i + '\n'; await state.setValue('taken', i); }
})(), { headers: { 'content-type': 'text/plain' } }));`)
		a := &answered{wrote: make(chan string)}
		done := make(chan error, 1)
		go func() {
			done <- e.ServeEndpoint(ctx, id, endpoints.Request{Method: "GET", Path: []string{"x"}, URL: "https://x.example/x"}, a)
		}()
		for i, want := range []string{"piece 1\n", "piece 2\n", "piece 3\n"} {
			Eventually(a.wrote).Should(Receive(Equal(want)))
			if i == 1 {
				Expect(w.Store.Value(ctx, id, "taken")).To(Or(MatchJSON("1"), MatchJSON("2")), "the code is no further than what was taken")
			}
		}
		Eventually(done).Should(Receive(BeNil()))
		Expect(a.status).To(Equal(200))
	})

	It("end their code when the client takes no more", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => new Response(new ReadableStream({
  pull(c) { c.enqueue('x'); },
  async cancel() { await state.setValue('cancelled', true); },
})));`)
		a := &answered{refuse: errors.New("the client has gone")}
		Expect(e.ServeEndpoint(ctx, id, endpoints.Request{Method: "GET", Path: []string{"x"}, URL: "https://x.example/x"}, a)).To(MatchError(ContainSubstring("the client has gone")))
		Expect(a.pieces).To(HaveLen(1))
		Expect(w.Store.Value(ctx, id, "cancelled")).To(MatchJSON("true"))
	})

	It("do not return while a piece is written, even when their time is up", func(ctx SpecContext) {
		const source = `export default defineThreadEndpoint(() => new Response((function* () { yield 'one'; yield 'two'; })()));`
		put(source)
		Expect(get(ctx).body()).To(Equal("onetwo"), "its sandbox is there: starting one is no part of the time")
		slow := WithTransform(func(err error) bool {
			failed := (*endpoints.Error)(nil)
			return errors.As(err, &failed) && failed.Timeout
		}, BeTrue())
		// The time has to be enough for the first piece, which depends on what else the machine does.
		for enough := 500 * time.Millisecond; ; enough *= 2 {
			Expect(enough).To(BeNumerically("<", patience), "no time is enough for the first piece")
			put(source, func(ep *definition.Endpoint) { ep.Spec.Timeout = &metav1.Duration{Duration: enough} })
			a := &holding{entered: make(chan struct{}), release: make(chan struct{})}
			done := make(chan error, 1)
			go func() {
				done <- e.ServeEndpoint(ctx, id, endpoints.Request{Method: "GET", Path: []string{"x"}, URL: "https://x.example/x"}, a)
			}()
			select {
			case <-a.entered:
			case err := <-done:
				Expect(err).To(slow)
				continue
			}
			Consistently(done, enough+500*time.Millisecond).ShouldNot(Receive(), "a piece is still being written")
			close(a.release)
			Eventually(done).Should(Receive(slow))
			break
		}
	})

	It("have a function for each method, HEAD by that of GET", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint({ GET: () => 'got', async POST(request) { return { sent: await request.text() }; } });`)
		Expect(get(ctx).body()).To(Equal("got"))
		a, err := ask(ctx, "POST", "text")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.body()).To(MatchJSON(`{"sent":"text"}`))
		a, err = ask(ctx, "HEAD", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.status).To(Equal(200))
		Expect(a.headers).To(HaveKeyWithValue("content-type", HavePrefix("text/plain")))
	})

	DescribeTable("say what is wrong with their code", func(ctx SpecContext, timeout time.Duration, source string, want OmegaMatcher) {
		put(source, func(ep *definition.Endpoint) { ep.Spec.Timeout = &metav1.Duration{Duration: timeout} })
		_, err := ask(ctx, "GET", "")
		var failed *endpoints.Error
		Expect(errors.As(err, &failed)).To(BeTrue(), "%v", err)
		Expect(*failed).To(want)
	},
		Entry("that throws", patience, `export default defineThreadEndpoint(() => { throw new TypeError('no figures') });`,
			And(HaveField("Message", "its code failed: TypeError: no figures"), HaveField("Timeout", false), HaveField("Lost", false))),
		Entry("that loops", time.Second, `export default defineThreadEndpoint(() => { for (;;); });`, HaveField("Timeout", true)),
		Entry("that waits for nothing", patience, `export default defineThreadEndpoint(() => new Promise(() => {}));`, HaveField("Message", ContainSubstring("settles"))),
		Entry("that takes all memory", patience, `export default defineThreadEndpoint(() => { const a = []; for (;;) a.push(new Array(1000).fill(1)); });`, HaveField("Message", ContainSubstring("memory"))),
		Entry("that answers with no status", patience, `export default defineThreadEndpoint(() => new Response('x', { status: 99 }));`, HaveField("Message", ContainSubstring("200 to 599"))),
		Entry("that has no function", patience, `export default { description: 'x' };`, HaveField("Message", ContainSubstring("no function for GET"))),
		Entry("whose header breaks the line", patience, `export default defineThreadEndpoint(() => new Response('x', { headers: { 'x-a': 'b\r\nset-cookie: c' } }));`, HaveField("Message", ContainSubstring("header"))),
		Entry("whose answer is too large", patience, `export default defineThreadEndpoint(() => new Response((function* () { const piece = new Uint8Array(1 << 20); for (;;) yield piece; })()));`,
			HaveField("Message", ContainSubstring("larger than 64 MiB"))),
	)

	It("do not turn the arguments of other tools into requests", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => { const r = await state.invokeTool('plain', { method: 'GET', url: 'https://x.example/' }); return r; });`)
		w.Definitions.Put("a", codeTool("plain", `export default (state, args) => ({ status: 'success', result: JSON.stringify([typeof state.getMessages, args.method]) });`))
		Expect(get(ctx).body()).To(ContainSubstring(`[\"function\",\"GET\"]`))
	})

	It("read a thread that is terminated, and do nothing else there", Label("THR-04", "THR-05"), func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => {
  const out = [state.terminated > 0];
  for (const call of [() => state.queueMessage({ role: 'user', content: 'x' }), () => state.setValue('k', 1), () => state.writeFile('/a', 'x'), () => state.thread?.state?.set?.('k', 1) ?? state.emit('e', 1)])
    try { await call(); out.push('taken'); } catch (e) { out.push(e.message); }
  return [...out, await state.getValue('k')];
});`)
		Expect(e.Terminate(ctx, id, "x")).To(Succeed())
		reads := func(r *endpoints.Request) { r.Reads = true }
		a, err := ask(ctx, "GET", "", reads)
		Expect(err).NotTo(HaveOccurred())
		Expect(a.body()).To(And(HavePrefix("[true,"), HaveSuffix(",null]"), Not(ContainSubstring("taken"))))
		Expect(strings.Count(a.body(), "the thread is terminated")).To(Equal(4), a.body())
		_, err = ask(ctx, "POST", "{}")
		Expect(err).To(MatchError(store.ErrTerminated))
	})

	It("are ended with their thread", Label("THR-05"), func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => { await state.setValue('begun', true); for (;;) await state.getValue('x'); });`)
		done := make(chan error, 1)
		go func() {
			_, err := ask(ctx, "GET", "")
			done <- err
		}()
		Eventually(func() ([]byte, error) { return w.Store.Value(ctx, id, "begun") }).Should(MatchJSON("true"))
		Expect(e.Terminate(ctx, id, "x")).To(Succeed())
		Eventually(done).Should(Receive(MatchError(store.ErrTerminated)))
	})

	It("are ended when their client goes away", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => { await state.setValue('begun', true); for (;;) await state.getValue('x'); });`)
		asking, leave := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			_, err := ask(asking, "GET", "")
			done <- err
		}()
		Eventually(func() ([]byte, error) { return w.Store.Value(ctx, id, "begun") }).Should(MatchJSON("true"))
		leave()
		Eventually(done).Should(Receive(MatchError(context.Canceled)))
	})

	It("answer while a run is under way, and without a ready agent", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(async (request, state) => [state.execution, (await state.getMessages()).messages.length]);`)
		w.Definitions.Put("a", enginetest.Script(skeinv1.ScriptStep{Latency: ms(3600_000), Content: "late"}))
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		Expect(get(ctx).body()).To(MatchJSON(`[null,1]`))
		Expect(lastRunOr(ctx, w, id).Status).To(Equal(store.RunRunning))
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		rest(ctx, w, id)
		id = makeThread(ctx, w, "nobody")
		Expect(get(ctx).body()).To(MatchJSON(`[null,0]`))
	})

	It("see one character for each byte of a header, and can answer with them", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint((request) => {
  const text = request.headers.get('x-name');
  const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
  return Response.json([text, new TextDecoder().decode(bytes)], { headers: { 'x-name': text } });
});`)
		for sent, seen := range map[string]string{"M\xfcller": `["Müller","M\ufffdller"]`, "Łukasz": `["Å\u0081ukasz","Łukasz"]`} {
			a, err := ask(ctx, "GET", "", func(r *endpoints.Request) { r.Headers = [][2]string{{"x-name", sent}} })
			Expect(err).NotTo(HaveOccurred())
			Expect(a.status).To(Equal(200))
			Expect(a.body()).To(MatchJSON(seen))
			Expect(headers.Bytes(a.headers["x-name"])).To(Equal(sent))
		}
	})

	It("that are not there are told from methods that are not", func(ctx SpecContext) {
		put(`export default defineThreadEndpoint(() => 'x');`)
		_, err := ask(ctx, "DELETE", "")
		var method *definition.MethodError
		Expect(errors.As(err, &method)).To(BeTrue())
		Expect(method.Allow).To(Equal([]string{"GET", "HEAD", "POST"}))
		_, err = ask(ctx, "GET", "", func(r *endpoints.Request) { r.Path = []string{"y"} })
		var unknown *definition.UnknownError
		Expect(errors.As(err, &unknown)).To(BeTrue())
	})

	It("are told when they call what the platform configured, which is plain data", Label("TOL-04"), func(ctx SpecContext) {
		w.Definitions.Configure(map[string]any{"env": map[string]any{"DATABASE": map[string]any{"name": "orders"}, "URL": "https://db.example", "list": []any{1.0, 2.0}}})
		put(`export default defineThreadEndpoint((request, state) => 'x');`)
		for body, named := range map[string]string{
			`p.env.DATABASE.prepare('select 1')`: "env.DATABASE.prepare", `p.env.URL.prepare('x')`: "env.URL", `p.env.DATABASE('x')`: "env.DATABASE",
		} {
			w.Definitions.Put("a", codeTool("calls", `export default async (state) => { const p = state._notPackableRuntimeContext; return `+body+`; }`))
			res, err := e.InvokeTool(ctx, id, "", "calls", []byte("{}"))
			Expect(err).NotTo(HaveOccurred())
			Expect(res.Content).To(And(ContainSubstring("not a function"), ContainSubstring("state._notPackableRuntimeContext."+named+" that was to be called"), ContainSubstring("plain data"), ContainSubstring("state.invokeTool")))
		}
		w.Definitions.Put("a", codeTool("reads", `export default (state) => { const p = state._notPackableRuntimeContext; return [p.env.NONE === undefined, p.env.DATABASE?.prepare === undefined, Array.isArray(p.env.list), [...p.env.list], Object.keys(p.env), { ...p.env.DATABASE }, Object.isFrozen(p.env), structuredClone(p.env.DATABASE)]; }`))
		res, err := e.InvokeTool(ctx, id, "", "reads", []byte("{}"))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(MatchJSON(`[true,true,true,[1,2],["DATABASE","URL","list"],{"name":"orders"},true,{"name":"orders"}]`))
	})

	It("and other code find what the platform configured, where they name it", Label("TOL-04"), func(ctx SpecContext) {
		w.Definitions.Configure(map[string]any{"env": map[string]any{"region": "north"}})
		put(`export default defineThreadEndpoint(async (request, state) => {
  const p = state._notPackableRuntimeContext as any;
  try { p.env.region = 'south'; } catch (e) { /* it is frozen */ }
  const computed = await state.invokeTool('computed', {});
  return [p.env.region, Object.keys(state).includes('_notPackableRuntimeContext'), computed.result];
});`)
		w.Definitions.Put("a", codeTool("computed", `export default (state) => String(state['_notPackable' + 'RuntimeContext'])`))
		Expect(get(ctx).body()).To(MatchJSON(`["north",false,"undefined"]`))
		w.Definitions.Configure(nil)
		put(`export default defineThreadEndpoint((request, state) => typeof state._notPackableRuntimeContext);`)
		Expect(get(ctx).body()).To(Equal("undefined"))
	})
})
