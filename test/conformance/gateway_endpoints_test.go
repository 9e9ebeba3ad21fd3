package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// servesThese makes a gateway serve ThreadEndpoints.
func servesThese(names ...string) func(*skeinv1.ThreadGatewaySpec) {
	return func(s *skeinv1.ThreadGatewaySpec) {
		for _, n := range names {
			s.EndpointRefs = append(s.EndpointRefs, skeinv1.LocalRef{Name: n})
		}
	}
}

var _ = Describe("Thread endpoints behind a gateway", Label("END-01", "IDS-03"), func() {
	const basket = endpointHead + `export default defineThreadEndpoint({
  GET: async (request, state, params) => Response.json({ thread: state.threadId, value: await state.getValue('basket:' + params.id), user: request.user.name, method: request.method }),
  PUT: async (request, state, params) => { await state.setValue('basket:' + params.id, await request.json()); return new Response(null, { status: 204 }); },
  POST: async (request, state, params) => {
    await state.queueMessage({ role: 'user', content: await request.text(), silent: true });
    return new Response('noted', { status: 201, headers: { 'Location': '/basket/' + params.id, 'Set-Cookie': 'atid=evil', 'X-Thread-Id': 'evil', 'Cache-Control': 'public', 'Access-Control-Allow-Origin': '*', 'Content-Type': 'text/html' } });
  },
  DELETE: async (request, state, params) => { await state.setValue('basket:' + params.id, null); return Response.json(request.headers.get('x-thread-id') ?? request.headers.get('cookie') ?? 'nobody'); },
});`
	const all = "chat/v1/endpoints/"

	It("answer under the same ids, in the client's own conversation, and others of the namespace do not exist there", func(ctx SpecContext) {
		ns, g := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) {
			s.AllowedOrigins = []string{"https://shop.example.com"}
			s.Limits.MessageBytes = 256
		})
		serveReady(ctx, harness.Endpoint(ns, "basket", "/basket/[id]", basket, methods("GET", "PUT", "POST", "DELETE")),
			who(ns, "hidden", "/hidden"), who(ns, "closer", "/basket/secret"),
			harness.Endpoint(ns, "broken", "/broken", endpointHead+`export default defineThreadEndpoint(async () => { throw new Error('password of the database'); });`))
		changeGateway(ctx, g, servesThese("basket", "broken"))
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		Eventually(ctx, func() string {
			return knock(ctx, http.DefaultClient, "OPTIONS", ns, all+"basket/1", "", "x-thread-id", "").body
		}).Should(ContainSubstring("NotBegun"))

		By("reading before a conversation has begun")
		for _, method := range []string{"GET", "HEAD"} {
			r := knock(ctx, http.DefaultClient, method, ns, all+"basket/1", "")
			Expect(r.status).To(Equal(404))
			Expect(r.id()).To(HavePrefix("thrd_"))
		}
		Expect(madeThreads(ctx, ns)).To(BeEmpty(), "looking costs nothing")

		By("writing begins one, and the cookie alone finds it")
		ada := browser()
		put := knock(ctx, ada, "PUT", ns, all+"basket/1", `{"apples":3}`)
		Expect(put.status).To(Equal(204), put.body)
		got := knock(ctx, ada, "GET", ns, all+"basket/1", "")
		Expect(got.status).To(Equal(200), got.body)
		Expect(got.id()).To(Equal(put.id()))
		Expect(got.body).To(And(ContainSubstring(`"value":{"apples":3}`), ContainSubstring(`"method":"GET"`)))
		Expect(got.header.Get("Skein-Endpoint")).To(Equal("basket"))
		Expect(madeThreads(ctx, ns)).To(HaveLen(1))
		head := knock(ctx, http.DefaultClient, "HEAD", ns, all+"basket/1", "", "x-thread-id", put.id())
		Expect([]any{head.status, head.body}).To(Equal([]any{200, ""}))

		By("an endpoint and messages share a conversation")
		post := knock(ctx, ada, "POST", ns, all+"basket/1", "leave it at the door", "Content-Type", "text/plain", "Idempotency-Key", "k")
		Expect([]any{post.status, post.body}).To(Equal([]any{201, "noted"}))
		Expect(tell(ctx, ada, ns, "hello").id()).To(Equal(put.id()))
		ms, err := cluster.Thread(ns, madeThreads(ctx, ns)[0].Name).Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(ContainElements("user: leave it at the door", "user: hello"))
		again := knock(ctx, ada, "POST", ns, all+"basket/1", "leave it at the door", "Content-Type", "text/plain", "Idempotency-Key", "k")
		Expect([]any{again.status, again.body}).To(Equal([]any{201, "noted"}))
		after, err := cluster.Thread(ns, madeThreads(ctx, ns)[0].Name).Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(after)).To(Equal(texts(ms)), "a repeat queues nothing twice")

		By("code cannot take the conversation away, be a page, or see the id")
		Expect(post.header.Values("Set-Cookie")).To(HaveLen(1))
		Expect(post.header.Get("Set-Cookie")).To(HavePrefix("atid=thrd_"))
		Expect(post.id()).To(Equal(put.id()))
		Expect(post.header.Get("Cache-Control")).To(Equal("no-store"))
		Expect(post.header.Get("Content-Security-Policy")).To(ContainSubstring("sandbox"))
		Expect(post.header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
		Expect(post.header).NotTo(HaveKey("Access-Control-Allow-Origin"))
		Expect(post.header.Get("Location")).To(Equal("/basket/1"))
		Expect(knock(ctx, ada, "DELETE", ns, all+"basket/1", "", "x-thread-id", put.id()).body).To(Equal(`"nobody"`))

		By("another client has another basket")
		knock(ctx, ada, "PUT", ns, all+"basket/2", `"of ada"`)
		bob := tell(ctx, browser(), ns, "I am bob")
		Expect(knock(ctx, http.DefaultClient, "GET", ns, all+"basket/2", "", "x-thread-id", bob.id()).body).To(ContainSubstring(`"value":null`))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, all+"basket/2", "", "x-thread-id", put.id()).body).To(ContainSubstring(`"of ada"`))

		By("what is wrong has a clear error")
		for _, row := range []struct {
			method, path, body string
			status             int
			says               string
			header             []string
		}{
			{"GET", all + "hidden", "", 404, "no endpoint has this path", nil},
			{"GET", all + "nothing", "", 404, "no endpoint has this path", nil},
			{"GET", "chat/v1/endpoints", "", 404, "no endpoint has this path", nil},
			{"GET", "chat/v1/endpoints2", "", 404, "v1/message", nil},
			{"GET", all + "basket/../hidden", "", 400, "empty parts", nil},
			{"GET", all + "basket//1", "", 400, "empty parts", nil},
			{"GET", all + "basket/%2e%2e/hidden", "", 400, "empty parts", nil},
			{"PATCH", all + "basket/1", "x", 405, "use DELETE, GET, HEAD, OPTIONS, POST, PUT", nil},
			{"TRACE", all + "basket/1", "", 405, "OPTIONS lists them", nil},
			{"PUT", all + "basket/1", strings.Repeat("x", 300), 413, "send a smaller one", nil},
			{"GET", all + "broken", "", 500, `"reason":"EndpointFailed"`, nil},
			{"PUT", all + "basket/1", `{`, 500, `"reason":"EndpointFailed"`, nil},
			{"POST", all + "basket/1", "x", 400, "200 characters", []string{"Idempotency-Key", strings.Repeat("k", 201)}},
			{"PUT", all + "basket/1", `1`, 403, "other sites", []string{"Origin", "https://evil.example"}},
			{"OPTIONS", all + "basket/1", "", 403, "other sites", []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "PUT"}},
		} {
			r := knock(ctx, http.DefaultClient, row.method, ns, row.path, row.body, append(row.header, "x-thread-id", put.id())...)
			if row.method == "TRACE" || r.body != "" {
				Expect(r.body).To(ContainSubstring(row.says), "%+v", row)
			}
			Expect(r.status).To(Equal(row.status), "%+v: %s", row, r.body)
			Expect(r.body).NotTo(ContainSubstring("password"))
		}
		r := knock(ctx, http.DefaultClient, "OPTIONS", ns, all+"basket/1", "", "x-thread-id", put.id())
		Expect([]any{r.status, r.header.Get("Allow")}).To(Equal([]any{204, "DELETE, GET, HEAD, OPTIONS, POST, PUT"}))
		r = knock(ctx, http.DefaultClient, "OPTIONS", ns, all+"basket/1", "", "Origin", "https://shop.example.com", "Access-Control-Request-Method", "PUT")
		Expect(r.status).To(Equal(204))
		Expect(r.header.Get("Access-Control-Allow-Methods")).To(ContainSubstring("PUT"))
		Expect(knock(ctx, http.DefaultClient, "OPTIONS", ns, "chat/v1/message", "", "Origin", "https://shop.example.com", "Access-Control-Request-Method", "PUT").header.Get("Access-Control-Allow-Methods")).To(Equal("GET, POST"))

		// closer has a path of its own that is more exact, and is not declared: the request is for what is.
		Expect(knock(ctx, http.DefaultClient, "GET", ns, all+"basket/secret", "", "x-thread-id", put.id()).header.Get("Skein-Endpoint")).To(Equal("basket"))

		By("taking it away again")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.EndpointRefs = nil })
		Eventually(ctx, func() string {
			return knock(ctx, http.DefaultClient, "GET", ns, all+"basket/1", "", "x-thread-id", put.id()).body
		}).Should(ContainSubstring("this address does not exist"))
	}, SpecTimeout(5*time.Minute))

	It("answer twenty clients at once, each in a conversation of its own, and count towards the limits", func(ctx SpecContext) {
		ns := namespace(ctx)
		serveReady(ctx, harness.Endpoint(ns, "basket", "/basket/[id]", basket, methods("GET", "PUT", "POST", "DELETE")))
		g := gatewayOf(ns, "chat", "agent", servesThese("basket"), func(s *skeinv1.ThreadGatewaySpec) {
			s.User = &skeinv1.GatewayUser{Header: "X-User-Id", HashKey: gatewayKey("users")}
			s.Limits.PerThread = 12
		})
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g)
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		var everybody sync.WaitGroup
		for i := range 20 {
			everybody.Go(func() {
				defer GinkgoRecover()
				user := fmt.Sprintf("user-%d", i)
				put := knock(ctx, http.DefaultClient, "PUT", ns, all+"basket/1", fmt.Sprint(i), "X-User-Id", user)
				Expect(put.status).To(Equal(204), put.body)
				got := knock(ctx, http.DefaultClient, "GET", ns, all+"basket/1", "", "X-User-Id", user)
				var b struct {
					Value int
					User  string
				}
				Expect(json.Unmarshal([]byte(got.body), &b)).To(Succeed(), got.body)
				Expect([]any{b.Value, b.User}).To(Equal([]any{i, user}), "the user whom the proxy names")
			})
		}
		everybody.Wait()
		Expect(madeThreads(ctx, ns)).To(HaveLen(20))
		r := reply{status: 200}
		for n := 0; r.status == 200 && n < 1000; n++ {
			r = knock(ctx, http.DefaultClient, "GET", ns, all+"basket/1", "", "X-User-Id", "user-0")
		}
		Expect(r).To(refusedWith(http.StatusTooManyRequests, ContainSubstring("too many requests of this conversation")))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, all+"basket/1", "", "X-User-Id", "user-1").status).To(Equal(200))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, all+"basket/1", "").status).To(Equal(401), "without a user")
	}, SpecTimeout(5*time.Minute))

	It("are sent piece by piece, and end with the client", func(ctx SpecContext) {
		ns := namespace(ctx)
		serveReady(ctx, harness.Endpoint(ns, "stream", "/stream", endpointHead+`export default defineThreadEndpoint({ POST: async (request, state) => new Response((async function* () {
  for (let i = 0; ; i++) { yield i + '\n'; await new Promise((r) => setTimeout(r, 20)); }
})()) });`, methods("POST")))
		g := gatewayOf(ns, "chat", "agent", servesThese("stream"))
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g)
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+door+"/"+ns+"/"+all+"stream", strings.NewReader("x"))
		Expect(err).NotTo(HaveOccurred())
		resp, err := http.DefaultClient.Do(req)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.StatusCode).To(Equal(200))
		piece := make([]byte, 2)
		_, err = io.ReadFull(resp.Body, piece)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(piece)).To(Equal("0\n"), "before the answer has an end")
		Expect(resp.Body.Close()).To(Succeed())
		tell(ctx, http.DefaultClient, ns, "still there", "x-thread-id", resp.Header.Get("x-thread-id"))
	}, SpecTimeout(5*time.Minute))

	It("are named in the gateway's condition when they cannot answer", func(ctx SpecContext) {
		ns, g := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, servesThese())
		changeGateway(ctx, g, servesThese("later"))
		gatewayIs(ctx, g, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring("spec.endpointRefs[0].name"))))
		tell(ctx, http.DefaultClient, ns, "messages are answered meanwhile")
		serveReady(ctx, who(ns, "later", "/later"))
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		create(ctx, harness.Agent(ns, "other", "prompt"))
		serveReady(ctx, who(ns, "others", "/others", func(s *skeinv1.ThreadEndpointSpec) { s.AgentRef = &skeinv1.LocalRef{Name: "other"} }))
		changeGateway(ctx, g, servesThese("others"))
		gatewayIs(ctx, g, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring(`serves only threads of Agent "other"`))))
	}, SpecTimeout(5*time.Minute))
})
