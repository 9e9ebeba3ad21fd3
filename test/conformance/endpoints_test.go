package conformance

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// asked is what an endpoint answered.
type asked struct {
	status int
	header http.Header
	body   string
}

// ask makes a request to an endpoint; path may have a query.
func ask(ctx context.Context, t *runtimeclient.Thread, method, path, body string) (asked, error) {
	u, err := url.Parse(path)
	if err != nil {
		return asked{}, err
	}
	resp, err := t.Endpoint(ctx, runtimeclient.EndpointRequest{Method: method, Path: u.Path, Query: u.Query(), Body: strings.NewReader(body), Header: http.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		return asked{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return asked{resp.StatusCode, resp.Header, string(data)}, err
}

// methods of an endpoint.
func methods(list ...skeinv1.EndpointMethod) func(*skeinv1.ThreadEndpointSpec) {
	return func(s *skeinv1.ThreadEndpointSpec) { s.Methods = list }
}

const endpointHead = "import { defineThreadEndpoint } from '@standardagents/builder';\n"

// who is an endpoint that tells its name and its parameters.
func who(ns, name, path string, edit ...func(*skeinv1.ThreadEndpointSpec)) *skeinv1.ThreadEndpoint {
	return harness.Endpoint(ns, name, path, endpointHead+`export default defineThreadEndpoint(async (request, state, params) => Response.json({ name: '`+name+`', params }));`, edit...)
}

// serveReady creates endpoints and waits until they are Ready.
func serveReady(ctx context.Context, list ...*skeinv1.ThreadEndpoint) {
	GinkgoHelper()
	for _, e := range list {
		create(ctx, e)
	}
	for _, e := range list {
		endpointIs(ctx, e, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}
}

func endpointIs(ctx context.Context, e *skeinv1.ThreadEndpoint, want OmegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
		g.Expect(e.Status.Conditions).To(ContainElement(want))
	}).Should(Succeed())
}

var _ = Describe("Thread endpoints", Label("END-01"), func() {
	It("answer under the thread's URL with request, state and params, at rest and through kubectl", Label("THR-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, wire, 1, "hello")
		serveReady(ctx, harness.Endpoint(ns, "report", "/report/[id]", endpointHead+`
export default defineThreadEndpoint(async (request, state, params) => {
  const { messages } = await state.getMessages();
  const sent = request.method === 'POST' ? await request.json() : null;
  if (sent) await state.setValue('sent', sent);
  return new Response(JSON.stringify({
    id: params.id, method: request.method, lang: new URL(request.url).searchParams.get('lang'), version: new URL(request.url).searchParams.get('v'),
    said: messages.map((m) => m.content), execution: state.execution, agent: state.agentId, sent, user: request.user.name,
    private: [...request.headers.keys()].filter((k) => ['authorization', 'cookie'].includes(k) || k.startsWith('x-remote-')),
  }), { status: sent ? 201 : 200, headers: { 'content-type': 'application/json', 'x-report': params.id } });
});`, methods("GET", "POST")))
		t := golang(wire)
		got, err := ask(ctx, t, "GET", "/report/a%20b?lang=de&v=x", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.status).To(Equal(200))
		Expect(got.header.Get("Content-Type")).To(Equal("application/json"))
		Expect(got.header.Get("X-Report")).To(Equal("a b"))
		Expect(got.header.Get(runtimev1.HeaderEndpoint)).To(Equal("report"))
		Expect(got.body).To(ContainSubstring(`"user":`))
		Expect(got.body).To(And(ContainSubstring(`"id":"a b","method":"GET","lang":"de","version":"x","said":["hello","echo: hello"],"execution":null,"agent":"agent","sent":null`), ContainSubstring(`"private":[]`)))
		got, err = ask(ctx, t, "POST", "/report/7?v=x", `{"n":1}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.status).To(Equal(201))
		Expect(wire.Value(ctx, "sent")).To(MatchJSON(`{"n":1}`))
		ms, err := wire.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(ms).To(HaveLen(2), "a request is no part of the conversation")

		out, err := cluster.Kubectl(ctx, "get", "--raw", "/apis/runtime.skein.dev/v1alpha1/namespaces/"+ns+"/threads/thread/endpoints/report/8?lang=fr")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(`"id":"8","method":"GET","lang":"fr"`))
		out, err = cluster.Plugin(ctx, "-n", ns, "endpoint", "thread", "/report/9", "-d", `{"n":2}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(`"sent":{"n":2}`))

		token, err := cluster.Token(ctx, ns, "app")
		Expect(err).NotTo(HaveOccurred())
		c, err := cluster.Direct(ctx, manager, token)
		Expect(err).NotTo(HaveOccurred())
		got, err = ask(ctx, c.Thread(ns, "thread"), "GET", "/report/10", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(And(ContainSubstring(`"user":"system:serviceaccount:`+ns+`:app"`), ContainSubstring(`"private":[]`)), "with a token, past the API server")
	}, SpecTimeout(5*time.Minute))

	It("are chosen by method and path: texts before [name] before [*]", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := golang(converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}))
		serveReady(ctx, who(ns, "all", "/[*]"), who(ns, "any-file", "/files/[*]"), who(ns, "one-file", "/files/[id]"), who(ns, "latest", "/files/latest"),
			who(ns, "raw", "/files/[id]/raw"), who(ns, "root", "/"), who(ns, "drop", "/files/[name]", methods("DELETE", "PUT")), who(ns, "hook", "/hook", methods("POST")))
		for _, row := range []struct{ method, path, want string }{
			{"GET", "/", `{"name":"root","params":{}}`},
			{"GET", "/files/latest", `{"name":"latest","params":{}}`},
			{"GET", "/files/7", `{"name":"one-file","params":{"id":"7"}}`},
			{"GET", "/files/7/raw", `{"name":"raw","params":{"id":"7"}}`},
			{"GET", "/files/7/pages/2", `{"name":"any-file","params":{"*":"7/pages/2"}}`},
			{"GET", "/files", `{"name":"all","params":{"*":"files"}}`},
			{"GET", "/x/y", `{"name":"all","params":{"*":"x/y"}}`},
			{"DELETE", "/files/latest", `{"name":"drop","params":{"name":"latest"}}`},
			{"PUT", "/files/7", `{"name":"drop","params":{"name":"7"}}`},
			{"POST", "/hook", `{"name":"hook","params":{}}`},
			{"GET", "/hook", `{"name":"all","params":{"*":"hook"}}`},
		} {
			got, err := ask(ctx, t, row.method, row.path, "")
			Expect(err).NotTo(HaveOccurred(), "%v", row)
			Expect(got.body).To(MatchJSON(row.want), "%v", row)
		}
		got, err := ask(ctx, t, "HEAD", "/files/latest", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.status).To(Equal(200))
		Expect(got.body).To(BeEmpty())
		got, err = ask(ctx, t, "OPTIONS", "/hook", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.status).To(Equal(204))
		Expect(got.header.Get("Allow")).To(Equal("GET, HEAD, OPTIONS, POST"))
		_, err = ask(ctx, t, "PATCH", "/files/7", "")
		Expect(err).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("it answers DELETE, GET, HEAD, OPTIONS, PUT"))))
		_, err = ask(ctx, t, "DELETE", "/nothing/here/at/all", "")
		Expect(err).To(kind(runtimeclient.ErrInvalid), "/[*] has it for GET only")
		Expect(cluster.Client.Delete(ctx, who(ns, "all", "/[*]"))).To(Succeed())
		Eventually(ctx, func() error { _, err := ask(ctx, t, "GET", "/nothing", ""); return err }).Should(And(kind(runtimeclient.ErrNotFound), MatchError(ContainSubstring("existing paths: /, /files/[*], /files/[id]"))))
	}, SpecTimeout(5*time.Minute))

	It("give redirections to those who ask the manager, and have the API server refuse them", func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		serveReady(ctx, harness.Endpoint(ns, "old", "/old", endpointHead+`export default defineThreadEndpoint(() => Response.redirect('https://elsewhere.example/'));`))
		_, err := ask(ctx, golang(wire), "GET", "/old", "")
		Expect(err).To(MatchError(ContainSubstring("redirect")))
		got, err := ask(ctx, direct(ctx, manager, ns).Thread(ns, "thread"), "GET", "/old", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.status).To(Equal(302))
		Expect(got.header.Get("Location")).To(Equal("https://elsewhere.example/"))
	}, SpecTimeout(5*time.Minute))

	It("have request, session and thread state as agents have", Label("STA-01", "STA-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		t := golang(wire)
		serveReady(ctx, harness.Endpoint(ns, "visits", "/visits", endpointHead+`
export default defineThreadEndpoint(async (request, state) => {
  const visits = ((await state.thread.state.get('visits')) ?? 0) + 1;
  await state.thread.state.set('visits', visits);
  state.request.state.set('n', (state.request.state.get('n') ?? 0) + 1);
  state.session.state.set('n', (state.session.state.get('n') ?? 0) + 1);
  if (request.method === 'POST') state.waitUntil(async () => { await state.thread.state.push('later', visits, 5); });
  return Response.json([visits, state.request.state.get('n'), state.session.state.get('n'), state.session.id, await state.thread.state.get('later') ?? []]);
});`, methods("GET", "POST")))
		sessions := map[string]bool{}
		for i, want := range []string{"[1,1,1,", "[2,1,1,", "[3,1,1,"} {
			got, err := ask(ctx, t, "POST", "/visits", "")
			Expect(err).NotTo(HaveOccurred())
			Expect(got.body).To(HavePrefix(want))
			session := strings.Split(got.body, `"`)[1]
			Expect(session).To(MatchRegexp("^sess_[0-9a-f]{32}$"))
			sessions[session] = true
			Expect(sessions).To(HaveLen(i+1), "each request is a session of its own")
		}
		Expect(wire.Request("GET", "state/visits").DoRaw(ctx)).To(MatchJSON("3"), "saved before the answer, where agents see it")
		Eventually(ctx, func(g Gomega) { // what goes on after the answers ends in any order
			got, err := ask(ctx, t, "GET", "/visits", "")
			g.Expect(err).NotTo(HaveOccurred())
			var seen []any
			g.Expect(json.Unmarshal([]byte(got.body), &seen)).To(Succeed(), got.body)
			g.Expect(seen[4]).To(ConsistOf(1.0, 2.0, 3.0))
		}).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("stream what they make, and bound what they take", func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		t := golang(wire)
		serveReady(ctx, harness.Endpoint(ns, "lines", "/lines", endpointHead+`
export default defineThreadEndpoint({
  GET: (request, state) => new Response((async function* () {
    for (let i = 1; i <= 3; i++) {
      yield 'line ' + i + '\n';
      while (i === 1 && !(await state.getValue('go')));
    }
  })(), { headers: { 'content-type': 'text/plain' } }),
  async POST(request) {
    let size = 0, pieces = 0;
    for await (const piece of request.body) { size += piece.length; pieces++; }
    return { size, streamed: pieces > 1 };
  },
});`, methods("GET", "POST")))
		resp, err := t.Endpoint(ctx, runtimeclient.EndpointRequest{Path: "/lines"})
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = resp.Body.Close() }()
		first := make([]byte, len("line 1\n"))
		_, err = io.ReadFull(resp.Body, first)
		Expect(err).NotTo(HaveOccurred(), "it comes while the code goes on")
		Expect(string(first)).To(Equal("line 1\n"))
		Expect(wire.SetValue(ctx, "go", "true")).To(Succeed())
		Expect(io.ReadAll(resp.Body)).To(BeEquivalentTo("line 2\nline 3\n"))

		got, err := ask(ctx, t, "POST", "/lines", strings.Repeat("x", 3<<20))
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(MatchJSON(`{"size":3145728,"streamed":true}`))
		_, err = ask(ctx, t, "POST", "/lines", strings.Repeat("x", 8<<20+1))
		Expect(err).To(kind(runtimeclient.ErrTooLarge))
	}, SpecTimeout(5*time.Minute))

	It("answer beside a run, and ask for one", func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("slow", harness.Slow(10*time.Minute, harness.Answer("late"))), harness.Echo()})
		t := golang(wire)
		serveReady(ctx, harness.Endpoint(ns, "say", "/say", endpointHead+`
export default defineThreadEndpoint(async (request, state) => {
  await state.queueMessage({ role: 'user', content: await request.text() });
  return new Response(null, { status: 202 });
});`, methods("POST")), harness.Endpoint(ns, "count", "/count", endpointHead+`
export default defineThreadEndpoint(async (request, state) => [(await state.getMessages()).messages.length, state.execution]);`))
		got, err := ask(ctx, t, "POST", "/say", "and now")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.status).To(Equal(202))
		Expect(last(settled(ctx, wire, 1))).To(Equal("echo: and now"))
		Expect(wire.Say(ctx, "slow")).To(Succeed())
		Eventually(ctx, func() (*runtimeclient.Execution, error) { return t.Execution(ctx) }).ShouldNot(BeNil())
		got, err = ask(ctx, t, "GET", "/count", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(MatchJSON(`[3,null]`))
		Expect(t.Execution(ctx)).NotTo(BeNil(), "the run goes on")
		_, err = t.Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		settled(ctx, wire, 2)
	}, SpecTimeout(5*time.Minute))

	It("of a terminated thread answer what reads, and refuse what does not", Label("THR-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		t := golang(wire)
		say(ctx, wire, 1, "hello")
		serveReady(ctx, harness.Endpoint(ns, "log", "/log", endpointHead+`
export default defineThreadEndpoint(async (request, state) => Response.json([state.terminated > 0, (await state.getMessages()).messages.length]));`, methods("GET", "POST")))
		Expect(wire.Terminate(ctx)).To(Succeed())
		got, err := ask(ctx, t, "GET", "/log", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(MatchJSON(`[true,2]`))
		_, err = ask(ctx, t, "POST", "/log", "")
		Expect(err).To(kind(runtimeclient.ErrTerminated))
	}, SpecTimeout(5*time.Minute))

	It("fail with what went wrong, and without secrets", Label("ENV-03", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "keys"}, StringData: map[string]string{"key": "endpoint-canary-4711"}}
		create(ctx, secret)
		wire := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadSpec) {
			s.Env = []skeinv1.EnvVar{{Name: "KEY", Type: skeinv1.EnvSecret, ValueFrom: &skeinv1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "key"}}}}
		})
		t := golang(wire)
		slow := func(s *skeinv1.ThreadEndpointSpec) { s.Timeout = &metav1.Duration{Duration: time.Second} }
		serveReady(ctx,
			harness.Endpoint(ns, "throws", "/throws", endpointHead+`export default defineThreadEndpoint(async (r, state) => { throw new TypeError('bad key ' + await state.env('KEY')); });`),
			harness.Endpoint(ns, "tells", "/tells", endpointHead+`export default defineThreadEndpoint(async (r, state) => new Response('the key: ' + await state.env('KEY'), { headers: { 'x-key': await state.env('KEY') } }));`),
			harness.Endpoint(ns, "loops", "/loops", endpointHead+`export default defineThreadEndpoint(() => { for (;;); });`, slow),
			harness.Endpoint(ns, "odd", "/odd", endpointHead+`export default defineThreadEndpoint(() => new Response('x', { status: 1000 }));`))
		failed := func(path string, code int32, say string) {
			GinkgoHelper()
			_, err := ask(ctx, t, "GET", path, "")
			var e *runtimeclient.Error
			Expect(err).To(BeAssignableToTypeOf(e), "%v", err)
			e = err.(*runtimeclient.Error) //nolint:errorlint // asserted above
			Expect(e.ErrStatus.Code).To(Equal(code), e.ErrStatus.Message)
			Expect(e.ErrStatus.Message).To(ContainSubstring(say))
			Expect(e.ErrStatus.Details.Causes).To(ContainElement(HaveField("Type", runtimev1.CauseEndpointFailed)))
			Expect(e.ErrStatus.Message).NotTo(ContainSubstring("canary"))
		}
		failed("/throws", 500, "TypeError: bad key [redacted]")
		failed("/loops", 504, "1s")
		failed("/odd", 500, "200 to 599")
		got, err := ask(ctx, t, "GET", "/tells", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.body).To(Equal("the key: [redacted]"))
		Expect(got.header.Get("X-Key")).To(Equal("[redacted]"))

		broken := harness.Endpoint(ns, "broken", "/broken", "export default {\n  GET: = 1\n};")
		create(ctx, broken)
		endpointIs(ctx, broken, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonCompileFailed), HaveField("Message", ContainSubstring("2:8"))))
		_, err = ask(ctx, t, "GET", "/broken", "")
		Expect(err).To(And(kind(runtimeclient.ErrUnavailable), MatchError(ContainSubstring("2:8"))))
		Expect(cluster.Client.Create(ctx, harness.Endpoint(ns, "nowhere", "no/slash", "export default () => 1;"))).To(MatchError(ContainSubstring("spec.path")))
		Expect(cluster.Client.Create(ctx, harness.Endpoint(ns, "nowhere", "/x", "export default () => 1;", methods("FETCH")))).To(MatchError(ContainSubstring("spec.methods")))
	}, SpecTimeout(5*time.Minute))

	It("are the agent's own before the namespace's, and of two with one path the older answers", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := golang(converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}))
		create(ctx, harness.Agent(ns, "other", "prompt"), harness.NewThread(ns, "elsewhere", "other"))
		elsewhere := golang(ready(ctx, cluster.Thread(ns, "elsewhere")))
		first := who(ns, "first", "/report/[id]")
		serveReady(ctx, first)
		taken := condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonPathTaken)
		Eventually(ctx, func(g Gomega) { // the clock of objects counts seconds
			second := who(ns, "asecond", "/report/[name]", methods("GET", "POST"))
			_ = cluster.Client.Delete(ctx, second)
			second.ResourceVersion = ""
			g.Expect(cluster.Client.Create(ctx, second)).To(Succeed())
			g.Expect(second.CreationTimestamp.After(first.CreationTimestamp.Time)).To(BeTrue())
		}).Should(Succeed())
		second := who(ns, "asecond", "/report/[name]")
		endpointIs(ctx, second, And(taken, HaveField("Message", And(ContainSubstring(`"first" is older`), ContainSubstring("GET")))))
		own := who(ns, "own", "/report/[key]", func(s *skeinv1.ThreadEndpointSpec) { s.AgentRef = &skeinv1.LocalRef{Name: "other"} })
		serveReady(ctx, own)

		name := func(t *runtimeclient.Thread, method string) func() (string, error) {
			return func() (string, error) { got, err := ask(ctx, t, method, "/report/7", ""); return got.body, err }
		}
		Expect(name(t, "GET")()).To(MatchJSON(`{"name":"first","params":{"id":"7"}}`))
		Expect(name(t, "POST")()).To(MatchJSON(`{"name":"asecond","params":{"name":"7"}}`), "what the older one does not answer")
		Expect(name(elsewhere, "GET")()).To(MatchJSON(`{"name":"own","params":{"key":"7"}}`))
		endpointIs(ctx, first, condition(skeinv1.ConditionReady, metav1.ConditionTrue))

		Expect(cluster.Client.Delete(ctx, first)).To(Succeed())
		endpointIs(ctx, second, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		Eventually(ctx, name(t, "GET")).Should(MatchJSON(`{"name":"asecond","params":{"name":"7"}}`))

		lost := who(ns, "lost", "/lost", func(s *skeinv1.ThreadEndpointSpec) { s.AgentRef = &skeinv1.LocalRef{Name: "late"} })
		create(ctx, lost)
		endpointIs(ctx, lost, condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound))
		create(ctx, harness.Agent(ns, "late", "prompt"))
		endpointIs(ctx, lost, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}, SpecTimeout(5*time.Minute))
})
