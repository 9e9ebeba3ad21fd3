package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
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

// ear is a server outside that Webhooks tell something.
type ear struct {
	*httptest.Server
	mu     sync.Mutex
	heard  []delivered
	status int
	fails  int // how many deliveries are answered with 500 before the others
}

type delivered struct {
	header http.Header
	body   string
}

func newEar() *ear {
	e := &ear{status: http.StatusNoContent}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard = append(e.heard, delivered{r.Header.Clone(), string(body)})
		if e.fails > 0 {
			e.fails--
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(e.status)
	}))
	DeferCleanup(e.Close)
	return e
}

func (e *ear) answer(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = status
}

func (e *ear) all() []delivered {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]delivered{}, e.heard...)
}

// standardSignature computes a signature of Standard Webhooks, as the specification describes it.
func standardSignature(key, id, at, body string) string {
	m := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(m, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

func gitHubSignature(key, body string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// refusedWith matches an answer by its status and its body.
func refusedWith(status int, body OmegaMatcher) OmegaMatcher {
	return And(WithTransform(func(r reply) int { return r.status }, Equal(status)), WithTransform(func(r reply) string { return r.body }, body))
}

func isReady(ctx context.Context, o client.Object, conditions func() []metav1.Condition) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(conditions()).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
	}).Should(Succeed())
}

var _ = Describe("Webhooks", Label("EVT-05"), func() {
	It("tell a server outside of ended runs, wanted approvals and failed effects, signed with each key", func(ctx SpecContext) {
		ns, out := namespace(ctx), newEar()
		w := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
			URL: out.URL + "/hook", Events: []skeinv1.WebhookEvent{"run.ended", "approval.wanted", "effect.failed"},
			SigningKeys: []corev1.SecretKeySelector{gatewayKey("second"), gatewayKey("first")}, MaxAttempts: 1,
		}}
		create(ctx, gatewayKeys(ns), w)
		isReady(ctx, w, func() []metav1.Condition { return w.Status.Conditions })
		tool := harness.CodeTool(ns, "pay", `import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => { await state.scheduleEffect('fail', {}, 0); return { status: 'success', result: 'paid' }; } });`, nil)
		create(ctx, harness.Effect(ns, "fail", `import { defineEffect } from '@standardagents/builder';
export default defineEffect({ execute: async () => { throw new Error('the bank is closed'); } });`), tool)
		refund := harness.CodeTool(ns, "refund", `export default { execute: async () => 'paid back' }`, nil)
		refund.Spec.RequiresApproval = true
		create(ctx, refund)
		t := converse(ctx, ns, []string{"pay", "refund"}, []skeinv1.ScriptStep{
			harness.On("go", harness.Calls("pay", nil)), harness.After("pay", harness.Answer("done")), harness.On("back", harness.Calls("refund", nil)),
		})
		say(ctx, t, 1, "go")

		told := func(event string) (h delivered, body map[string]any) {
			GinkgoHelper()
			Eventually(ctx, func() bool {
				for _, h = range out.all() {
					body = nil
					Expect(json.Unmarshal([]byte(h.body), &body)).To(Succeed())
					if body["type"] == event {
						return true
					}
				}
				return false
			}).Should(BeTrue(), "nothing was told about "+event)
			return h, body
		}
		h, body := told("run.ended")
		Expect(body["namespace"]).To(Equal(ns))
		Expect(body["thread"]).To(And(HaveKeyWithValue("name", t.Name), HaveKeyWithValue("agent", "agent")))
		Expect(body["data"]).To(And(HaveKeyWithValue("status", "succeeded"), HaveKeyWithValue("runId", HavePrefix("sess_"))))
		id, at := h.header.Get("webhook-id"), h.header.Get("webhook-timestamp")
		Expect(strings.Fields(h.header.Get("webhook-signature"))).To(Equal([]string{
			standardSignature(secondKey, id, at, h.body), standardSignature(firstKey, id, at, h.body),
		}))
		_, body = told("effect.failed")
		Expect(body["data"]).To(And(HaveKeyWithValue("effect", "fail"), HaveKeyWithValue("error", ContainSubstring("the bank is closed"))))

		Expect(t.Say(ctx, "back")).To(Succeed())
		h, body = told("approval.wanted")
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		call := awaiting(ctx, c.Thread(ns, t.Name), 1)[0].ToolCallID
		Expect(body["thread"]).To(HaveKeyWithValue("name", t.Name))
		Expect(body["data"]).To(And(HaveKeyWithValue("name", "refund"), HaveKeyWithValue("toolCallId", call), HaveKeyWithValue("runId", HavePrefix("sess_"))))
		id, at = h.header.Get("webhook-id"), h.header.Get("webhook-timestamp")
		Expect(h.header.Get("webhook-signature")).To(ContainSubstring(standardSignature(firstKey, id, at, h.body)))
	}, SpecTimeout(5*time.Minute))

	It("are sent again to a server that failed, until it takes them", func(ctx SpecContext) {
		ns, out := namespace(ctx), newEar()
		out.fails = 1
		w := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
			URL: out.URL, Events: []skeinv1.WebhookEvent{"run.ended"}, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, MaxAttempts: 3,
		}}
		create(ctx, gatewayKeys(ns), w)
		isReady(ctx, w, func() []metav1.Condition { return w.Status.Conditions })
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("go", harness.Answer("gone"))})
		say(ctx, t, 1, "go")
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		var only runtimev1.WebhookDelivery
		Eventually(ctx, func(g Gomega) {
			list, err := c.WebhookDeliveries(ctx, ns, runtimeclient.DeliveryPage{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Deliveries).To(ConsistOf(And(HaveField("Status", runtimev1.DeliveryDelivered), HaveField("Attempts", 2))))
			only = list.Deliveries[0]
		}).Should(Succeed())
		heard := out.all()
		Expect(heard).To(HaveLen(2), "the first was answered with 500, the second with 204, and nothing came after it")
		for _, h := range heard {
			Expect(h.header.Get("webhook-id")).To(Equal(only.ID))
			Expect(h.body).To(Equal(heard[0].body))
			Expect(h.header.Get("webhook-signature")).To(Equal(standardSignature(firstKey, only.ID, h.header.Get("webhook-timestamp"), h.body)))
		}
	}, SpecTimeout(5*time.Minute))

	It("keep what a server does not take, show it, and send it again with the same id", func(ctx SpecContext) {
		ns, out := namespace(ctx), newEar()
		out.answer(http.StatusInternalServerError)
		w := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
			URL: out.URL, Events: []skeinv1.WebhookEvent{"run.ended"}, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, MaxAttempts: 1,
		}}
		create(ctx, gatewayKeys(ns), w)
		isReady(ctx, w, func() []metav1.Condition { return w.Status.Conditions })
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("go", harness.Answer("gone"))})
		say(ctx, t, 1, "go")
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		var dead []runtimev1.WebhookDelivery
		Eventually(ctx, func(g Gomega) {
			list, err := c.WebhookDeliveries(ctx, ns, runtimeclient.DeliveryPage{Status: runtimev1.DeliveryDead})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Deliveries).To(HaveLen(1))
			dead = list.Deliveries
		}).Should(Succeed())
		Expect(dead[0].Error).To(ContainSubstring("500"))
		text, err := cluster.Plugin(ctx, "-n", ns, "webhook", "deliveries", "--status", "dead")
		Expect(err).NotTo(HaveOccurred())
		Expect(text).To(And(ContainSubstring(dead[0].ID), ContainSubstring("run.ended")))

		out.answer(http.StatusOK)
		text, err = cluster.Plugin(ctx, "-n", ns, "webhook", "redeliver", "--dead")
		Expect(err).NotTo(HaveOccurred(), text)
		Eventually(ctx, func(g Gomega) {
			list, err := c.WebhookDeliveries(ctx, ns, runtimeclient.DeliveryPage{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Deliveries).To(ConsistOf(And(HaveField("ID", dead[0].ID), HaveField("Status", runtimev1.DeliveryDelivered))))
		}).Should(Succeed())
		for _, h := range out.all() {
			Expect(h.header.Get("webhook-id")).To(Equal(dead[0].ID))
			Expect(h.body).To(Equal(out.all()[0].body))
		}
		text, err = cluster.Plugin(ctx, "-n", ns, "webhook", "redeliver", "nothing")
		Expect(err).To(HaveOccurred())
		Expect(text).To(ContainSubstring(`the namespace has no delivery "nothing"`))
	}, SpecTimeout(5*time.Minute))

	It("from outside become one message for each delivery, however often it comes; forged, old and large ones become none", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, gatewayKeys(ns))
		receiver := func(name string, edit func(*skeinv1.WebhookReceiverSpec)) {
			r := &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.WebhookReceiverSpec{
				Form: skeinv1.WebhookGitHub, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, PerMinute: 10_000, MaxBytes: 1000,
			}}
			edit(&r.Spec)
			create(ctx, r)
			isReady(ctx, r, func() []metav1.Condition { return r.Status.Conditions })
		}
		receiver("github", func(s *skeinv1.WebhookReceiverSpec) { s.ThreadRef = &skeinv1.LocalRef{Name: t.Name} })
		receiver("each", func(s *skeinv1.WebhookReceiverSpec) {
			s.Form, s.AgentRef = skeinv1.WebhookStandard, &skeinv1.LocalRef{Name: "agent"}
		})
		post := func(name, body string, header ...string) reply {
			return knock(ctx, http.DefaultClient, http.MethodPost, ns, name+"/v1/webhook", body, header...)
		}
		gitHub := func(id, body, signature string) reply {
			return post("github", body, "X-GitHub-Event", "push", "X-GitHub-Delivery", id, "X-Hub-Signature-256", signature)
		}
		push := `{"ref": "refs/heads/main"}`
		answers := make(chan reply, 20)
		for range 20 {
			go func() {
				defer GinkgoRecover()
				answers <- gitHub("72d3162e", push, gitHubSignature(firstKey, push))
			}()
		}
		ids := map[string]bool{}
		for range 20 {
			a := <-answers
			Expect(a.status).To(Equal(http.StatusAccepted), a.body)
			var b struct{ MessageID string }
			Expect(json.Unmarshal([]byte(a.body), &b)).To(Succeed())
			ids[b.MessageID] = true
		}
		Expect(ids).To(HaveLen(1))
		other := `{"ref": "refs/heads/other"}`
		Expect(gitHub("72d3162e", other, gitHubSignature(firstKey, other))).To(refusedWith(http.StatusConflict, ContainSubstring("another body")))
		Expect(gitHub("72d3162f", push, gitHubSignature(secondKey, push))).To(refusedWith(http.StatusUnauthorized, ContainSubstring("does not fit")))
		Expect(gitHub("72d3162f", push, "sha256=00")).To(refusedWith(http.StatusUnauthorized, Not(BeNil())))
		Expect(gitHub("", push, gitHubSignature(firstKey, push))).To(refusedWith(http.StatusUnauthorized, ContainSubstring("id of the delivery is missing")))
		large := strings.Repeat("x", 1001)
		Expect(gitHub("72d31630", large, gitHubSignature(firstKey, large))).To(refusedWith(http.StatusRequestEntityTooLarge, ContainSubstring("spec.maxBytes")))
		Expect(post("nobody", push)).To(refusedWith(http.StatusNotFound, Not(BeNil())))
		create(ctx, &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}, Spec: skeinv1.WebhookReceiverSpec{
			Form: skeinv1.WebhookGitHub, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, ThreadRef: &skeinv1.LocalRef{Name: "later"},
		}})
		Eventually(ctx, func() reply {
			return post("later", push, "X-GitHub-Event", "push", "X-GitHub-Delivery", "72d31631", "X-Hub-Signature-256", gitHubSignature(firstKey, push))
		}).Should(refusedWith(http.StatusServiceUnavailable, And(ContainSubstring("the receiver or its thread is not ready: send it again later"), Not(ContainSubstring("agent")))))
		Expect(knock(ctx, http.DefaultClient, http.MethodGet, ns, "github/v1/webhook", "")).To(refusedWith(http.StatusMethodNotAllowed, Not(BeNil())))
		ms := settled(ctx, t, 1)
		Expect(ms).To(HaveLen(2))
		Expect(*ms[0].Content).To(MatchJSON(`{"delivery": "72d3162e", "event": "push", "payload": {"ref": "refs/heads/main"}}`))

		standard := func(id string, at time.Time, key string) reply {
			seconds, body := strconv.FormatInt(at.Unix(), 10), `{"type": "order.paid"}`
			return post("each", body, "webhook-id", id, "webhook-timestamp", seconds, "webhook-signature", standardSignature(key, id, seconds, body))
		}
		old := standard("msg_1", time.Now().Add(-6*time.Minute), firstKey)
		Expect(old).To(refusedWith(http.StatusUnauthorized, ContainSubstring("more than 5 minutes from now")))
		Expect(standard("msg_1", time.Now(), secondKey)).To(refusedWith(http.StatusUnauthorized, Not(BeNil())))
		for range 2 {
			Expect(standard("msg_1", time.Now(), firstKey)).To(refusedWith(http.StatusAccepted, Not(BeNil())))
		}
		var made skeinv1.ThreadList
		Expect(cluster.Client.List(ctx, &made, client.InNamespace(ns), client.MatchingLabels{skeinv1.LabelReceiver: "each"})).To(Succeed())
		Expect(made.Items).To(HaveLen(1))
		one := cluster.Thread(ns, made.Items[0].Name)
		ms = settled(ctx, one, 1)
		Expect(*ms[0].Content).To(MatchJSON(`{"delivery": "msg_1", "event": "order.paid", "payload": {"type": "order.paid"}}`))
	}, SpecTimeout(5*time.Minute))
})
