package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// idsFrom makes a gateway have its ids from code.
func idsFrom(source string) func(*skeinv1.ThreadGatewaySpec) {
	return func(g *skeinv1.ThreadGatewaySpec) {
		g.IDProvider = &skeinv1.GatewayIDProvider{Code: &skeinv1.GatewayCodeIDs{
			Source: skeinv1.CodeSource{Inline: source}, Headers: []string{"X-User-Id", "X-Tenant"}, Timeout: &metav1.Duration{Duration: 2 * time.Second},
		}}
	}
}

// provides is code whose provider returns an expression of ctx.
func provides(expression string) string {
	return "import { getThreadProvider } from '@agentuity/runtime';\ngetThreadProvider().setThreadIDProvider({ getThreadId: async (appState, ctx) => " + expression + " });"
}

var _ = Describe("A gateway whose ids come from code", func() {
	// seeds is the id that the code of the seed gives a user.
	seeds := func(user string) string {
		sum := sha256.Sum256([]byte(user))
		return "thrd_" + hex.EncodeToString(sum[:])[:27]
	}

	It("takes a provider of Agentuity's documentation as it is", Label("IDS-02", "IDS-06"), func(ctx SpecContext) {
		ns, g := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, idsFrom(fixture("ids/user.ts")))
		ada := tell(ctx, http.DefaultClient, ns, "hello", "X-User-Id", "Ada")
		Expect(ada.id()).To(Equal(signedBy(firstKey, seeds("Ada"))))
		Expect(tell(ctx, http.DefaultClient, ns, "again", "X-User-Id", "Ada").id()).To(Equal(ada.id()))
		bob := tell(ctx, http.DefaultClient, ns, "hello", "X-User-Id", "Bob", "x-thread-id", ada.id())
		Expect(bob.id()).To(Equal(signedBy(firstKey, seeds("Bob"))), "the code says it, not the client")
		first, second := tell(ctx, http.DefaultClient, ns, "hello"), tell(ctx, http.DefaultClient, ns, "hello", "x-user-id-2", "Ada")
		Expect(first.id()).To(MatchRegexp(`^thrd_[0-9a-f]{32};`))
		Expect(second.id()).NotTo(Equal(first.id()))
		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-User-Id", "Ada")
		Expect(r.body).To(And(ContainSubstring("hello"), ContainSubstring("again")))
		Expect(madeThreads(ctx, ns)).To(HaveLen(4))
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/new", "", "X-User-Id", "Ada").status).To(Equal(409))

		By("twenty at once")
		var all sync.WaitGroup
		for i := range 20 { // five of each of four
			all.Go(func() {
				defer GinkgoRecover()
				user := fmt.Sprint("Twenty", i%4)
				r := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("hi"), "X-User-Id", user)
				Expect(r.status).To(Equal(200), r.body)
				Expect(r.id()).To(Equal(signedBy(firstKey, seeds(user))))
			})
		}
		all.Wait()
		Expect(madeThreads(ctx, ns)).To(HaveLen(8))

		By("with what the request brings, from a ConfigMap that changes")
		create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ids"}, Data: map[string]string{
			"ids.ts": provides("{ if (ctx.req.header('x-tenant') === 'none') throw Object.assign(new Error('log in'), { status: 401 }); return ctx.get('threadId') ?? 'thrd_' + [ctx.req.method, ctx.req.query('q'), ctx.req.header('X-TENANT'), ctx.req.header('cookie') ?? 'none', new URL(ctx.req.url).pathname.replaceAll(/[^a-z0-9]/g, '')].join('').padEnd(40, '0'); }"),
		}})
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) {
			s.IDProvider.Code.Source = skeinv1.CodeSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "ids"}, Key: "ids.ts"}}
		})
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		want := signedBy(firstKey, "thrd_"+("GETxACMEnone" + strings.ReplaceAll(ns, "-", "") + "chatv1messages" + strings.Repeat("0", 40))[:40])
		Eventually(ctx, func() string {
			return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages?q=x", "", "X-Tenant", "ACME", "Cookie", "other=1").id()
		}).Should(Equal(want), "headers that are not listed are not seen")
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", ada.id()).id()).To(Equal(ada.id()), "the code is told what the client has proved")
		refused := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("x"), "X-Tenant", "none")
		Expect([]any{refused.status, refused.id()}).To(Equal([]any{401, ""}))
	}, SpecTimeout(5*time.Minute))

	It("refuses a request when its code is hostile or broken, and other gateways still answer", Label("IDS-02", "IDS-06"), func(ctx SpecContext) {
		ns, g := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, idsFrom(fixture("ids/user.ts")))
		ada := tell(ctx, http.DefaultClient, ns, "hello", "X-User-Id", "Ada").id()
		other := gatewayOf(ns, "other", "agent")
		create(ctx, other)
		gatewayIs(ctx, other, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		for name, source := range map[string]string{
			"a loop":                provides("{ for (;;) {} }"),
			"a loop at the top":     provides("''") + "\nfor (;;) {}",
			"a promise without end": provides("new Promise(() => setInterval(() => {}, 100))"),
			"too much memory":       provides("{ const all = []; for (;;) all.push(new Uint8Array(1 << 20)); }"),
			"a number":              provides("42"),
			"nothing":               provides("undefined"),
			"an object":             provides("({ toString: () => 'thrd_00000000000000000000000000' })"),
			"too short":             provides("'thrd_abc'"),
			"too long":              provides("'thrd_' + 'a'.repeat(60)"),
			"far too long":          provides("'thrd_' + 'a'.repeat(1 << 24)"),
			"another prefix":        provides("'thread_' + 'a'.repeat(30)"),
			"a dash":                provides("'thrd_abc-def-abc123def456789012345'"),
			"a line break":          provides("'thrd_' + 'a'.repeat(30) + '\\n'"),
			"an id of a thread":     provides("'T-5f0e6b1c-0000-4000-8000-000000000000'"),
			"an error":              provides("{ throw new Error('canary-5e2d of ' + ctx.req.header('x-user-id')); }"),
			"an error at the top":   provides("''") + "\nthrow new Error('canary-5e2d');",
			"no provider":           "import '@agentuity/runtime';\nexport default 1;",
			"no function":           "import { getThreadProvider } from '@agentuity/runtime';\ngetThreadProvider().setThreadIDProvider({});",
			"forged answers":        "import { getThreadProvider } from '@agentuity/runtime';\nObject.prototype.id = 'thrd_00000000000000000000000000000000';\nString.prototype.slice = () => ({});\nArray.prototype.includes = () => true;\ngetThreadProvider().setThreadIDProvider({ getThreadId: () => 7 });",
		} {
			changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.IDProvider.Code.Source.Inline = source })
			gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
			Eventually(ctx, func(o Gomega) {
				r := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("x"), "X-User-Id", "Ada", "x-thread-id", ada)
				o.Expect(r.status).To(Equal(503), "%s: %s", name, r.body)
				o.Expect(r.body).To(And(ContainSubstring(`"reason":"NoID"`), Not(ContainSubstring("canary"))), name)
				o.Expect(r.id()).To(BeEmpty(), name)
			}).Should(Succeed(), name)
			Expect(knock(ctx, http.DefaultClient, "GET", ns, "other/v1/messages", "").status).To(Equal(200), name)
		}
		Expect(madeThreads(ctx, ns)).To(HaveLen(1))

		By("an id that another gateway already uses")
		theirs, _, _ := strings.Cut(knock(ctx, http.DefaultClient, "POST", ns, "other/v1/message", said("a secret")).id(), ";")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.IDProvider.Code.Source.Inline = provides("'" + theirs + "'") })
		Eventually(ctx, func() string { return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "").id() }).Should(HavePrefix(theirs))
		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "")
		Expect(r.body).To(MatchJSON(`{"messages":[]}`), "it is another conversation here")

		By("hostile requests to correct code")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.IDProvider.Code.Source.Inline = fixture("ids/user.ts") })
		Eventually(ctx, func() string {
			return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-User-Id", "Ada").id()
		}).Should(Equal(ada))
		long := strings.Repeat("x", 8000)
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-User-Id", long).id()).To(Equal(signedBy(firstKey, seeds(long))))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-User-Id", "a", "X-User-Id", "b").id()).To(Equal(signedBy(firstKey, seeds("a, b"))))
	}, SpecTimeout(8*time.Minute))

	It("is refused, or not ready, when its declaration is wrong", Label("IDS-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		code := func(edit func(*skeinv1.GatewayCodeIDs)) func(*skeinv1.ThreadGatewaySpec) {
			return func(s *skeinv1.ThreadGatewaySpec) {
				idsFrom(provides("''"))(s)
				edit(s.IDProvider.Code)
			}
		}
		for says, wrong := range map[string]func(*skeinv1.ThreadGatewaySpec){
			"write either http or code": func(s *skeinv1.ThreadGatewaySpec) { s.IDProvider = &skeinv1.GatewayIDProvider{} },
			"either http or code": func(s *skeinv1.ThreadGatewaySpec) {
				idsFrom("x")(s)
				s.IDProvider.HTTP = &skeinv1.GatewayHTTPIDs{URL: "https://ids.example.com"}
			},
			"set exactly one of inline and configMapKeyRef": code(func(c *skeinv1.GatewayCodeIDs) { c.Source.Inline = "" }),
			"write names of headers":                        code(func(c *skeinv1.GatewayCodeIDs) { c.Headers = []string{"a b"} }),
			"give a duration from 100ms to 30s":             code(func(c *skeinv1.GatewayCodeIDs) { c.Timeout = &metav1.Duration{Duration: time.Hour} }),
		} {
			Expect(cluster.Client.Create(ctx, gatewayOf(ns, "chat", "agent", wrong))).To(MatchError(ContainSubstring(says)))
		}
		g := gatewayOf(ns, "chat", "agent", idsFrom("export default () => 'thrd_'"))
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g)
		is := func(ctx context.Context, reason, says string) {
			GinkgoHelper()
			gatewayIs(ctx, g, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, reason), HaveField("Message", ContainSubstring(says))))
			Eventually(ctx, func() int { return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "").status }).Should(Equal(404))
		}
		is(ctx, skeinv1.ReasonInvalidCode, "setThreadIDProvider")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.IDProvider.Code.Source.Inline = "export const = 1" })
		is(ctx, skeinv1.ReasonCompileFailed, "chat.ts:1:")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) {
			s.IDProvider.Code.Source.Inline = "import 'node:fs';\n" + provides("''")
		})
		is(ctx, skeinv1.ReasonInvalidCode, "no Node.js")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) {
			s.IDProvider.Code.Source = skeinv1.CodeSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "ids"}, Key: "ids.ts"}}
		})
		is(ctx, skeinv1.ReasonReferenceNotFound, "ids")
		create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ids"}, Data: map[string]string{"ids.ts": provides("'thrd_' + 'a'.repeat(30)")}})
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}, SpecTimeout(5*time.Minute))
})
