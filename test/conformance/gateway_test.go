package conformance

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

const (
	firstKey  = "the first signing key, of 38 characters"
	secondKey = "the second signing key, a little longer"
)

// gatewayKeys is a Secret with the keys of gateways.
func gatewayKeys(ns string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gateway-keys"}, StringData: map[string]string{
		"first": firstKey, "second": secondKey + "\n", "users": "the key by which users have their ids", "short": "agentuity",
	}}
}

func gatewayKey(key string) corev1.SecretKeySelector {
	return corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "gateway-keys"}, Key: key}
}

// gatewayOf is a ThreadGateway to an agent.
func gatewayOf(ns, name, agent string, edit ...func(*skeinv1.ThreadGatewaySpec)) *skeinv1.ThreadGateway {
	g := &skeinv1.ThreadGateway{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.ThreadGatewaySpec{
		AgentRef: skeinv1.LocalRef{Name: agent}, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")},
		Limits: &skeinv1.GatewayLimits{PerAddress: 100_000, PerThread: 100_000, Total: 100_000, NewThreads: 100_000},
	}}
	for _, f := range edit {
		f(&g.Spec)
	}
	return g
}

// openDoor declares an agent over a script with a gateway of the name chat, and waits until it is ready.
func openDoor(ctx context.Context, steps []skeinv1.ScriptStep, edit ...func(*skeinv1.ThreadGatewaySpec)) (ns string, g *skeinv1.ThreadGateway) {
	GinkgoHelper()
	ns = namespace(ctx)
	g = gatewayOf(ns, "chat", "agent", edit...)
	create(ctx, harness.Scripted(ns, "model", steps...), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g)
	gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	return ns, g
}

// changeGateway changes the spec of a gateway, also when its status changes meanwhile.
func changeGateway(ctx context.Context, g *skeinv1.ThreadGateway, edit func(*skeinv1.ThreadGatewaySpec)) {
	GinkgoHelper()
	before := g.DeepCopy()
	edit(&g.Spec)
	Expect(cluster.Client.Patch(ctx, g, client.MergeFrom(before))).To(Succeed())
}

func gatewayIs(ctx context.Context, g *skeinv1.ThreadGateway, want OmegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func(o Gomega) {
		o.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
		o.Expect(g.Status.ObservedGeneration).To(Equal(g.Generation))
		o.Expect(g.Status.Conditions).To(ContainElement(want))
	}).Should(Succeed())
}

// reply is what the gateway answered.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) content() string {
	var b struct{ Content string }
	_ = json.Unmarshal([]byte(r.body), &b)
	return b.Content
}

func (r reply) id() string      { return r.header.Get("x-thread-id") }
func (r reply) session() string { return r.header.Get("x-session-id") }

// knock makes a request to a gateway; header are pairs of names and values.
func knock(ctx context.Context, c *http.Client, method, ns, path, body string, header ...string) reply {
	GinkgoHelper()
	return request(ctx, c, method, "http://"+door+"/"+ns+"/"+path, body, header...)
}

// request makes a request to any address; header are pairs of names and values.
func request(ctx context.Context, c *http.Client, method, address, body string, header ...string) reply {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Content-Type" {
			req.Header.Del(header[i])
		}
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return reply{resp.StatusCode, resp.Header, string(data)}
}

func said(text string) string {
	b, _ := json.Marshal(map[string]string{"content": text})
	return string(b)
}

// tell sends a message and expects the answer.
func tell(ctx context.Context, c *http.Client, ns, text string, header ...string) reply {
	GinkgoHelper()
	r := knock(ctx, c, "POST", ns, "chat/v1/message", said(text), header...)
	Expect(r.status).To(Equal(200), r.body)
	Expect(r.content()).To(Equal("echo: " + text))
	return r
}

// signedBy returns an id with its signature under a key.
func signedBy(key, id string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(id))
	return id + ";" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// madeThreads are the Threads that gateways of a namespace made.
func madeThreads(ctx context.Context, ns string) []skeinv1.Thread {
	GinkgoHelper()
	var list skeinv1.ThreadList
	Expect(cluster.Client.List(ctx, &list, client.InNamespace(ns), client.HasLabels{skeinv1.LabelGateway})).To(Succeed())
	return list.Items
}

func browser() *http.Client {
	jar, _ := cookiejar.New(nil)
	return &http.Client{Jar: jar, Timeout: patience}
}

var _ = Describe("The gateway for end users", func() {
	echo := []skeinv1.ScriptStep{harness.Echo()}

	It("finds the thread by the signed header, else by the signed cookie, else makes one, and sets both", Label("IDS-03"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo)
		ada := browser()
		first := tell(ctx, ada, ns, "hello")
		id, _, _ := strings.Cut(first.id(), ";")
		Expect(id).To(MatchRegexp(`^thrd_[0-9a-f]{32}$`))
		Expect(first.id()).To(Equal(signedBy(firstKey, id)), "the form is id;base64(HMAC-SHA256)")
		cookies := (&http.Response{Header: first.header}).Cookies()
		Expect(cookies).To(HaveLen(1))
		Expect(cookies[0].Name).To(Equal("atid"))
		Expect(url.QueryUnescape(cookies[0].Value)).To(Equal(strings.Replace(first.id(), ";", ".", 1)))
		Expect(first.header.Get("Set-Cookie")).To(And(ContainSubstring("; Path=/;"), ContainSubstring("Max-Age=604800"), ContainSubstring("HttpOnly"), ContainSubstring("SameSite=Lax"), Not(ContainSubstring("Secure"))))
		Expect(madeThreads(ctx, ns)).To(HaveLen(1))
		Expect(madeThreads(ctx, ns)[0].Spec.AgentRef.Name).To(Equal("agent"))

		Expect(tell(ctx, ada, ns, "again").id()).To(Equal(first.id()), "the cookie alone")
		Expect(tell(ctx, http.DefaultClient, ns, "with the header", "x-thread-id", first.id()).id()).To(Equal(first.id()))
		bob := browser()
		other := tell(ctx, bob, ns, "who is there")
		Expect(other.id()).NotTo(Equal(first.id()))
		Expect(tell(ctx, bob, ns, "for ada", "x-thread-id", first.id()).id()).To(Equal(first.id()), "the header counts before the cookie")
		Expect(madeThreads(ctx, ns)).To(HaveLen(2))

		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", first.id())
		Expect(r.status).To(Equal(200))
		var page struct {
			Messages []struct{ Role, Content string }
		}
		Expect(json.Unmarshal([]byte(r.body), &page)).To(Succeed())
		Expect(page.Messages).To(HaveLen(8))
		Expect(page.Messages[0]).To(Equal(struct{ Role, Content string }{"user", "hello"}))
		Expect(page.Messages[7].Content).To(Equal("echo: for ada"))
		Expect(r.body).NotTo(ContainSubstring("who is there"))

		r = knock(ctx, ada, "POST", ns, "chat/v1/new", "", "x-forwarded-proto", "https")
		Expect(r.status).To(Equal(204))
		Expect(r.id()).NotTo(Equal(first.id()))
		Expect(r.header.Get("Set-Cookie")).To(ContainSubstring("; Secure"))
		for _, answer := range []reply{first, r, knock(ctx, ada, "GET", ns, "chat/v1/nothing", ""), knock(ctx, ada, "GET", "no-such", "chat/v1/messages", "")} {
			Expect(answer.header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
			Expect(answer.header.Get("Content-Security-Policy")).To(ContainSubstring("sandbox"))
		}
	}, SpecTimeout(5*time.Minute))

	It("never lets an unsigned or forged id reach a thread: it tries the next source, or answers 401 in strict mode", Label("IDS-04"), func(ctx SpecContext) {
		ns, g := openDoor(ctx, echo)
		first := tell(ctx, http.DefaultClient, ns, "a secret of ada")
		id, signature, _ := strings.Cut(first.id(), ";")
		forged := map[string]string{
			"unsigned": id, "of another key": signedBy(secondKey, id), "cut": first.id()[:len(first.id())-2], "doubled": first.id() + ";" + signature,
			"another id": id[:len(id)-1] + "x;" + signature, "an empty signature": id + ";", "the seed's default": signedBy("agentuity", id),
		}
		for name, value := range forged {
			r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", value)
			Expect([]any{r.status, r.body}).To(Equal([]any{200, `{"messages":[]}` + "\n"}), name)
			Expect(r.id()).NotTo(HavePrefix(id+";"), name)
			r = knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "Cookie", "atid="+url.QueryEscape(value))
			Expect(r.body).To(Equal(`{"messages":[]}`+"\n"), name)
			r = knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", value, "Cookie", "atid="+url.QueryEscape(first.id()))
			Expect(r.body).To(ContainSubstring("a secret of ada"), "%s: the cookie is the next source", name)
		}
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.Strict = true })
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		Eventually(ctx, func(o Gomega) {
			for name, value := range forged {
				r := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("let me in"), "x-thread-id", value)
				o.Expect(r.status).To(Equal(401), name)
				o.Expect(r.body).To(And(ContainSubstring(`"reason":"Unauthorized"`), Not(ContainSubstring(id))), name)
			}
		}).Should(Succeed())
		Expect(tell(ctx, http.DefaultClient, ns, "still me", "x-thread-id", first.id()).id()).To(Equal(first.id()))

		By("rotating the key")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) {
			s.SigningKeys = []corev1.SecretKeySelector{gatewayKey("second"), gatewayKey("first")}
		})
		Eventually(ctx, func(o Gomega) {
			r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", first.id())
			o.Expect(r.body).To(ContainSubstring("a secret of ada"), "the old key verifies")
			o.Expect(r.id()).To(Equal(signedBy(secondKey, id)), "the new key signs")
		}).Should(Succeed())
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.SigningKeys = []corev1.SecretKeySelector{gatewayKey("second")} })
		Eventually(ctx, func() int {
			return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", first.id()).status
		}).Should(Equal(401))

		By("a key that is missing or too short")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.SigningKeys = []corev1.SecretKeySelector{gatewayKey("short")} })
		gatewayIs(ctx, g, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("has 9 bytes: use 16 or more"))))
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.SigningKeys = []corev1.SecretKeySelector{gatewayKey("none")} })
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound))
		Eventually(ctx, func() int {
			return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "").status
		}).Should(Equal(404), "there is no key to fall back to")
	}, SpecTimeout(5*time.Minute))

	It("answers a repeat with the same key as the first time, and refuses another message with it", Label("IDS-03", "MSG-10"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		begun := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "")
		first := tell(ctx, http.DefaultClient, ns, "go", "Idempotency-Key", "k", "x-thread-id", begun.id())
		Expect(first.id()).To(Equal(begun.id()), "the id that a client gets before its first message")
		again := tell(ctx, http.DefaultClient, ns, "go", "Idempotency-Key", "k", "x-thread-id", begun.id())
		Expect(again.id()).To(Equal(first.id()))
		Expect(saidThrough(ctx, ns)).To(Equal([]string{"user: go", "assistant: echo: go"}), "the agent got it once")
		other := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("stay"), "Idempotency-Key", "k", "x-thread-id", first.id())
		Expect(other.status).To(Equal(http.StatusUnprocessableEntity), other.body)
		Expect(other.body).To(ContainSubstring("this Idempotency-Key was used for another message"))
		tell(ctx, http.DefaultClient, ns, "stay", "Idempotency-Key", "k2", "x-thread-id", first.id())
		stranger := tell(ctx, http.DefaultClient, ns, "go", "Idempotency-Key", "k")
		Expect(stranger.id()).NotTo(Equal(first.id()), "a key joins no strangers")
	}, SpecTimeout(2*patience))

	It("gives each of twenty concurrent requests its own x-session-id", Label("IDS-05"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo)
		var mu sync.Mutex
		sessions, threads := map[string]bool{}, map[string]bool{}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				r := tell(ctx, http.DefaultClient, ns, fmt.Sprintf("number %d", i))
				Expect(r.session()).To(MatchRegexp(`^sess_[0-9a-f]{32}$`))
				Expect(r.body).To(ContainSubstring(`"session":"` + r.session() + `"`))
				mu.Lock()
				defer mu.Unlock()
				sessions[r.session()], threads[r.id()] = true, true
			})
		}
		all.Wait()
		Expect(sessions).To(HaveLen(20))
		Expect(threads).To(HaveLen(20))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "nothing/v1/messages", "").session()).To(HavePrefix("sess_"), "on errors too")
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", `{}`).session()).To(HavePrefix("sess_"))
		made := madeThreads(ctx, ns)
		Expect(made).To(HaveLen(20))
		ms, err := cluster.Thread(ns, made[0].Name).Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(sessions).To(HaveKey(ms[0].Metadata["sessionId"]), "the message names the request that brought it")
	}, SpecTimeout(5*time.Minute))

	It("gives each user that the proxy names one thread on all devices, with a random id", Label("IDS-06", "IDS-02"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo, func(s *skeinv1.ThreadGatewaySpec) {
			s.User = &skeinv1.GatewayUser{Header: "X-User-Id", HashKey: gatewayKey("users")}
		})
		phone := tell(ctx, browser(), ns, "from the phone", "X-User-Id", "ada@example.com")
		desk := tell(ctx, browser(), ns, "from the desk", "X-User-Id", "ada@example.com")
		Expect(desk.id()).To(Equal(phone.id()))
		id, _, _ := strings.Cut(phone.id(), ";")
		Expect(id).To(MatchRegexp(`^thrd_[a-zA-Z0-9]{27,59}$`))
		plain := sha256.Sum256([]byte("ada@example.com"))
		Expect(id).NotTo(ContainSubstring(fmt.Sprintf("%x", plain)[:27]), "a plain hash could be guessed")
		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-User-Id", "ada@example.com")
		Expect(r.body).To(And(ContainSubstring("from the phone"), ContainSubstring("from the desk")))

		bob := tell(ctx, browser(), ns, "hello", "X-User-Id", "bob@example.com", "x-thread-id", phone.id())
		Expect(bob.id()).NotTo(Equal(phone.id()), "the user counts, not an id that somebody sends along")
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", phone.id()).status).To(Equal(401), "without a user")
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-User-Id", "ada@example.com", "X-User-Id", "bob@example.com").status).To(Equal(401))
		users := []string{}
		for _, t := range madeThreads(ctx, ns) {
			users = append(users, t.Spec.UserID)
		}
		Expect(users).To(ConsistOf("ada@example.com", "bob@example.com"))
	}, SpecTimeout(5*time.Minute))

	It("streams the answer to those who ask for events, and refuses what is wrong with a clear error", Label("IDS-03"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.On("slow", harness.Slow(time.Hour, harness.Answer("late"))), harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) {
			s.AnswerTimeout = &metav1.Duration{Duration: time.Second}
			s.AllowedOrigins = []string{"https://chat.example.com"}
			s.Limits.MessageBytes = 256
		})
		r := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("slow"))
		Expect(r.status).To(Equal(202), r.body)
		Expect(r.body).To(ContainSubstring(`"status":"running"`))
		r = knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", r.id())
		Expect(r.body).To(ContainSubstring(`"content":"slow"`))

		for _, row := range []struct {
			method, path, body string
			status             int
			says               string
			header             []string
		}{
			{"POST", "chat/v1/message", `{"content":""}`, 400, "content is empty", nil},
			{"POST", "chat/v1/message", `{"content":"x","thread":"other"}`, 400, "nothing else", nil},
			{"POST", "chat/v1/message", `[`, 400, "JSON object", nil},
			{"POST", "chat/v1/message", said(strings.Repeat("x", 300)), 413, "too long", nil},
			{"POST", "chat/v1/message", said("x"), 415, "application/json", []string{"Content-Type", "text/plain"}},
			{"GET", "chat/v1/message", "", 405, "use POST", nil},
			{"GET", "chat/v1/messages?limit=0", "", 400, "from 1 to 200", nil},
			{"GET", "chat/v2", "", 404, "v1/message", nil},
			{"GET", "other/v1/messages", "", 404, "nothing is served here", nil},
			{"POST", "chat/v1/message", said("x"), 403, "other sites", []string{"Origin", "https://evil.example"}},
			{"OPTIONS", "chat/v1/message", "", 403, "other sites", []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "POST"}},
		} {
			r := knock(ctx, http.DefaultClient, row.method, ns, row.path, row.body, row.header...)
			Expect([]any{r.status, r.body}).To(ConsistOf(row.status, ContainSubstring(row.says)), "%+v", row)
			Expect(r.header.Get("Content-Type")).To(Equal("application/json"))
		}
		r = knock(ctx, http.DefaultClient, "OPTIONS", ns, "chat/v1/message", "", "Origin", "https://chat.example.com", "Access-Control-Request-Method", "POST")
		Expect(r.status).To(Equal(204))
		Expect(r.header.Get("Access-Control-Allow-Origin")).To(Equal("https://chat.example.com"))

		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+door+"/"+ns+"/chat/v1/message", strings.NewReader(said("hello")))
		Expect(err).NotTo(HaveOccurred())
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = resp.Body.Close() }()
		Expect(resp.Header.Get("Content-Type")).To(Equal("text/event-stream"))
		Expect(resp.Header.Get("x-thread-id")).NotTo(BeEmpty())
		var events []string
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				events = append(events, name)
			}
		}
		Expect(events).To(ContainElement("message"))
		Expect(events[len(events)-1]).To(Equal("done"))
	}, SpecTimeout(5*time.Minute))
})
