package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// idService is a service that gives ids. What it answers to a question can be changed.
type idService struct {
	*httptest.Server
	answer atomic.Pointer[func(w http.ResponseWriter, question map[string]any)]
	mu     sync.Mutex
	asked  []map[string]any
	tokens []string
}

func newIDService() *idService {
	s := &idService{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		_ = json.NewDecoder(r.Body).Decode(&q)
		s.mu.Lock()
		s.asked, s.tokens = append(s.asked, q), append(s.tokens, r.Header.Get("Authorization"))
		s.mu.Unlock()
		(*s.answer.Load())(w, q)
	}))
	DeferCleanup(s.Close)
	return s
}

func (s *idService) answers(f func(w http.ResponseWriter, question map[string]any)) {
	s.answer.Store(&f)
}

func (s *idService) last() (question map[string]any, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[len(s.asked)-1], s.tokens[len(s.tokens)-1]
}

var _ = Describe("A gateway whose ids come from a service", func() {
	by := func(s *idService) func(*skeinv1.ThreadGatewaySpec) {
		return func(g *skeinv1.ThreadGatewaySpec) {
			g.IDProvider = &skeinv1.GatewayIDProvider{HTTP: &skeinv1.GatewayHTTPIDs{
				URL: s.URL + "/ids", Headers: []string{"X-Session"}, Token: ptr.To(gatewayKey("second")), Timeout: &metav1.Duration{Duration: 2 * time.Second},
			}}
		}
	}
	// bySession gives each session an id of its own.
	bySession := func(w http.ResponseWriter, q map[string]any) {
		session, _ := q["headers"].(map[string]any)["x-session"].(string)
		if session == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"threadId": "thrd_" + session + strings.Repeat("0", 27-len(session))})
	}

	It("means the conversation that the service says", Label("IDS-06", "IDS-02"), func(ctx SpecContext) {
		service := newIDService()
		service.answers(bySession)
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, by(service))
		ada := tell(ctx, http.DefaultClient, ns, "hello", "X-Session", "Ada", "Cookie", "other=1")
		Expect(ada.id()).To(Equal(signedBy(firstKey, "thrd_Ada000000000000000000000000")))
		question, token := service.last()
		Expect(question).To(Equal(map[string]any{
			"namespace": ns, "gateway": "chat", "method": "POST", "path": "v1/message", "address": "127.0.0.1", "threadId": "", "headers": map[string]any{"x-session": "Ada"},
		}), "no other header leaves")
		Expect(token).To(Equal("Bearer " + secondKey))
		tell(ctx, http.DefaultClient, ns, "again", "X-Session", "Ada")
		bob := tell(ctx, http.DefaultClient, ns, "hello", "X-Session", "Bob", "x-thread-id", ada.id())
		Expect(bob.id()).NotTo(Equal(ada.id()), "the service says it, not the client")
		question, _ = service.last()
		Expect(question["threadId"]).To(Equal("thrd_Ada000000000000000000000000"), "the service is told what the client has proved")
		knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-Session", "Bob", "x-thread-id", strings.Replace(ada.id(), "Ada", "Eve", 1))
		question, _ = service.last()
		Expect(question["threadId"]).To(BeEmpty(), "what is forged is not told")
		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-Session", "Ada")
		Expect(r.body).To(And(ContainSubstring("hello"), ContainSubstring("again")))
		Expect(madeThreads(ctx, ns)).To(HaveLen(2))
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/new", "", "X-Session", "Ada").status).To(Equal(409))
	}, SpecTimeout(5*time.Minute))

	It("refuses a request for which the service gives no valid id, and falls back to nothing", Label("IDS-02", "IDS-06"), func(ctx SpecContext) {
		service := newIDService()
		service.answers(bySession)
		ns, g := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, by(service))
		good := tell(ctx, http.DefaultClient, ns, "hello", "X-Session", "Ada").id()
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("x"), "x-thread-id", good).status).To(Equal(401), "the service knows no user")
		release := make(chan struct{})
		for name, wrong := range map[string]func(http.ResponseWriter, map[string]any){
			"too short":      func(w http.ResponseWriter, _ map[string]any) { _, _ = fmt.Fprint(w, `{"threadId":"thrd_abc"}`) },
			"too long":       func(w http.ResponseWriter, _ map[string]any) { _, _ = fmt.Fprintf(w, `{"threadId":"thrd_%060d"}`, 0) },
			"another prefix": func(w http.ResponseWriter, _ map[string]any) { _, _ = fmt.Fprintf(w, `{"threadId":"thread_%030d"}`, 0) },
			"a dash":         func(w http.ResponseWriter, _ map[string]any) { _, _ = fmt.Fprintf(w, `{"threadId":"thrd_%030d-"}`, 0) },
			"no id":          func(w http.ResponseWriter, _ map[string]any) { _, _ = fmt.Fprint(w, `{}`) },
			"no JSON":        func(w http.ResponseWriter, _ map[string]any) { _, _ = fmt.Fprint(w, `<html>`) },
			"too much": func(w http.ResponseWriter, _ map[string]any) {
				_, _ = fmt.Fprintf(w, `{"threadId":"thrd_%030d","x":"%01000000d"}`, 0, 0)
			},
			"an error": func(w http.ResponseWriter, _ map[string]any) { w.WriteHeader(500) },
			"a redirect": func(w http.ResponseWriter, _ map[string]any) {
				w.Header().Set("Location", "/other")
				w.WriteHeader(307)
			},
			"silence": func(http.ResponseWriter, map[string]any) { <-release },
		} {
			service.answers(wrong)
			for _, path := range []string{"POST chat/v1/message", "POST chat/v1/chat/completions", "GET chat/v1/messages"} {
				method, path, _ := strings.Cut(path, " ")
				body := ""
				if method == "POST" {
					body = said("x")
				}
				r := knock(ctx, http.DefaultClient, method, ns, path, body, "X-Session", "Ada", "x-thread-id", good)
				Expect(r.status).To(Equal(503), "%s: %s", name, r.body)
				Expect(r.body).To(And(ContainSubstring(`"reason":"NoID"`), Not(ContainSubstring("127.0.0.1"))), name)
				Expect(r.id()).To(BeEmpty(), name)
			}
		}
		close(release)
		Expect(madeThreads(ctx, ns)).To(HaveLen(1))

		By("twenty at once")
		service.answers(bySession)
		var all sync.WaitGroup
		for i := range 20 { // five to each of four
			all.Go(func() {
				defer GinkgoRecover()
				Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", said("hi"), "X-Session", fmt.Sprint("Twenty", i%4)).status).To(Equal(200))
			})
		}
		all.Wait()
		Expect(madeThreads(ctx, ns)).To(HaveLen(5))

		By("a service that is gone")
		service.Close()
		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "X-Session", "Ada")
		Expect([]any{r.status, r.id()}).To(Equal([]any{503, ""}))

		By("a service that may not be reached")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.IDProvider.HTTP.URL = "http://169.254.169.254/latest" })
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden))
		Eventually(ctx, func() int { return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "").status }).Should(Equal(503))
	}, SpecTimeout(5*time.Minute))

	It("is refused, or not ready, when its declaration is wrong", Label("IDS-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		for says, wrong := range map[string]func(*skeinv1.ThreadGatewaySpec){
			"write an address such as": func(s *skeinv1.ThreadGatewaySpec) {
				s.IDProvider = &skeinv1.GatewayIDProvider{HTTP: &skeinv1.GatewayHTTPIDs{URL: "ftp://ids.example.com"}}
			},
			"write names of headers": func(s *skeinv1.ThreadGatewaySpec) {
				s.IDProvider = &skeinv1.GatewayIDProvider{HTTP: &skeinv1.GatewayHTTPIDs{URL: "https://ids.example.com", Headers: []string{"a b"}}}
			},
			"give a duration from 100ms to 30s": func(s *skeinv1.ThreadGatewaySpec) {
				s.IDProvider = &skeinv1.GatewayIDProvider{HTTP: &skeinv1.GatewayHTTPIDs{URL: "https://ids.example.com", Timeout: &metav1.Duration{Duration: time.Hour}}}
			},
			"write user or idProvider": func(s *skeinv1.ThreadGatewaySpec) {
				s.IDProvider = &skeinv1.GatewayIDProvider{HTTP: &skeinv1.GatewayHTTPIDs{URL: "https://ids.example.com"}}
				s.User = &skeinv1.GatewayUser{Header: "X-User-Id", HashKey: gatewayKey("users")}
			},
		} {
			Expect(cluster.Client.Create(ctx, gatewayOf(ns, "chat", "agent", wrong))).To(MatchError(ContainSubstring(says)))
		}
		g := gatewayOf(ns, "chat", "agent", func(s *skeinv1.ThreadGatewaySpec) {
			s.APIKeys = []corev1.SecretKeySelector{gatewayKey("short")}
		})
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g)
		gatewayIs(ctx, g, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("spec.apiKeys[0]"))))
	}, SpecTimeout(5*time.Minute))
})
