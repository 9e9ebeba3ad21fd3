package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// gatewaySocket is a WebSocket of a gateway.
type gatewaySocket struct{ *websocket.Conn }

// frameOf is what comes over it.
type frameOf struct {
	Event string
	Data  struct {
		ThreadID, Session, Text, Content, Status string
		Error                                    struct{ Reason, Message string }
	}
}

// openSocket opens a WebSocket of the gateway chat; header are pairs of names and values.
func openSocket(ctx context.Context, ns string, header ...string) (gatewaySocket, *http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	conn, resp, err := websocket.Dial(ctx, "ws://"+door+"/"+ns+"/chat/v1/socket", &websocket.DialOptions{HTTPHeader: h, Subprotocols: []string{"v1.gateway.skein.dev"}})
	if err == nil {
		DeferCleanup(func() { _ = conn.CloseNow() })
	}
	return gatewaySocket{conn}, resp, err
}

func (s gatewaySocket) say(ctx context.Context, text string) {
	GinkgoHelper()
	Expect(s.Write(ctx, websocket.MessageText, []byte(text))).To(Succeed())
}

// until reads up to an event of one of these kinds.
func (s gatewaySocket) until(ctx context.Context, kinds ...string) frameOf {
	GinkgoHelper()
	for {
		_, data, err := s.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		var f frameOf
		Expect(json.Unmarshal(data, &f)).To(Succeed(), string(data))
		for _, k := range kinds {
			if f.Event == k {
				return f
			}
		}
	}
}

// closed reads until the server has closed, and returns how.
func (s gatewaySocket) closed(ctx context.Context) websocket.StatusCode {
	for {
		if _, _, err := s.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

var _ = Describe("The gateway's WebSocket", Label("IDS-03", "EVT-03"), func() {
	It("has the conversation that header or cookie mean, and each answer in pieces", Label("IDS-05"), func(ctx SpecContext) {
		poem := strings.Repeat("one two three four five ", 20) + "six"
		ns, g := openDoor(ctx, []skeinv1.ScriptStep{harness.On("poem", skeinv1.ScriptStep{Content: poem, ChunkDelay: &metav1.Duration{Duration: 300 * time.Millisecond}}), harness.Echo()})
		s, resp, err := openSocket(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Subprotocol()).To(Equal("v1.gateway.skein.dev"))
		hello := s.until(ctx, "open")
		Expect(hello.Data.ThreadID).To(And(Equal(resp.Header.Get("x-thread-id")), HavePrefix("thrd_")))
		Expect(resp.Header.Get("Set-Cookie")).To(ContainSubstring("HttpOnly"))
		Expect(madeThreads(ctx, ns)).To(BeEmpty(), "looking costs nothing")
		s.say(ctx, said("hello"))
		first := s.until(ctx, "done", "error")
		Expect([]string{first.Data.Content, first.Data.Status}).To(Equal([]string{"echo: hello", "succeeded"}), "%+v", first)
		Expect(first.Data.Session).To(And(HavePrefix("sess_"), Not(Equal(hello.Data.Session))))
		s.say(ctx, said("a poem"))
		text, pieces := "", 0
		for {
			f := s.until(ctx, "delta", "done", "error")
			if f.Event != "delta" {
				Expect(f.Data.Content).To(Equal(poem))
				break
			}
			text, pieces = text+f.Data.Text, pieces+1
		}
		Expect(poem).To(HavePrefix(text))
		Expect(pieces).To(BeNumerically(">", 1))

		By("saying the same again, on another WebSocket, by the cookie")
		again, _, err := openSocket(ctx, ns, "Cookie", strings.Split(resp.Header.Get("Set-Cookie"), ";")[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(again.until(ctx, "open").Data.ThreadID).To(Equal(hello.Data.ThreadID))
		for range 3 {
			again.say(ctx, `{"content":"once","key":"k1"}`)
			Expect(again.until(ctx, "done", "error").Data.Content).To(Equal("echo: once"))
		}
		Expect(saidThrough(ctx, ns)).To(Equal([]string{"user: hello", "assistant: echo: hello", "user: a poem", "assistant: " + poem, "user: once", "assistant: echo: once"}))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", hello.Data.ThreadID).body).To(ContainSubstring("once"))

		By("losing the gateway")
		Expect(cluster.Client.Delete(ctx, g)).To(Succeed())
		Eventually(ctx, func() int { return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "").status }).Should(Equal(404))
		again.say(ctx, said("more"))
		Expect(again.until(ctx, "done", "error").Data.Error.Reason).To(Equal("NotFound"))
		Expect(again.closed(ctx)).To(Equal(websocket.StatusGoingAway))
	}, SpecTimeout(5*time.Minute))

	It("answers twenty clients of others at once", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		clients := startClients(ctx, "talk.mjs", map[string]any{"url": "ws://" + door + "/" + ns + "/chat/v1/socket", "clients": 20, "contents": []string{"hello", "again"}})
		for i, l := range clients.of(ctx, 20, func(l clientLine) bool { return l.Closed != nil }) {
			Expect(*l.Closed).To(Equal(1000), l.Error)
			Expect(*l.Open).To(Equal("v1.gateway.skein.dev"))
			Expect(*l.Answer).To(Equal(fmt.Sprintf("echo: hello of %d, echo: again of %d", i, i)))
		}
		Expect(madeThreads(ctx, ns)).To(HaveLen(20))
	}, SpecTimeout(5*time.Minute))

	It("refuses what cannot be, with clear errors", Label("IDS-04"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(g *skeinv1.ThreadGatewaySpec) {
			g.Strict, g.AllowedOrigins, g.Limits.MessageBytes = true, []string{"https://chat.example.com"}, 300
		})
		r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/socket", "")
		Expect([]any{r.status, r.header.Get("Upgrade")}).To(Equal([]any{426, "websocket"}))
		Expect(r.body).To(ContainSubstring("open a WebSocket here"))
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/socket", "{}").status).To(Equal(405))
		for origin, status := range map[string]int{"https://evil.example.com": 403, "null": 403, "https://chat.example.com.evil.com": 403, "https://chat.example.com": 0, "http://" + door: 0} {
			_, resp, err := openSocket(ctx, ns, "Origin", origin)
			if status == 0 {
				Expect(err).NotTo(HaveOccurred(), origin)
				continue
			}
			Expect(err).To(HaveOccurred(), origin)
			Expect(resp.StatusCode).To(Equal(status), origin)
		}
		_, resp, err := openSocket(ctx, ns, "x-thread-id", "thrd_00000000000000000000000000;AAAA")
		Expect(err).To(HaveOccurred())
		Expect(resp.StatusCode).To(Equal(401))

		s, _, err := openSocket(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		s.until(ctx, "open")
		for body, says := range map[string]string{
			"hello": "send a JSON object", `{"content":"x","tools":[]}`: "send a JSON object", `{"content":" "}`: "say something", `{}`: "say something",
			said(strings.Repeat("x", 301)): "too long", `{"content":"x","key":"` + strings.Repeat("k", 201) + `"}`: "200 characters",
		} {
			s.say(ctx, body)
			f := s.until(ctx, "error", "done")
			Expect(f.Data.Error.Message).To(ContainSubstring(says), body)
		}
		s.say(ctx, said("well"))
		Expect(s.until(ctx, "error", "done").Data.Content).To(Equal("echo: well"), "it is open still")
		Expect(s.Write(ctx, websocket.MessageBinary, []byte("x"))).To(Succeed())
		Expect(s.closed(ctx)).To(Equal(websocket.StatusUnsupportedData))
		large, _, err := openSocket(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		large.say(ctx, strings.Repeat("x", 10_000))
		Expect(large.closed(ctx)).To(Equal(websocket.StatusMessageTooBig))
		Expect(madeThreads(ctx, ns)).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))

	It("bounds floods of messages and of WebSockets, and others are unharmed", func(ctx SpecContext) {
		slow := skeinv1.ScriptStep{Content: "late", Latency: &metav1.Duration{Duration: time.Hour}}
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.On("wait", slow), harness.Echo()}, func(g *skeinv1.ThreadGatewaySpec) { g.Limits.PerThread, g.Limits.Open = 12, 5 })
		calm, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		loud, _, err := openSocket(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		written := make(chan error, 1)
		go func() { // without waiting for answers
			for i := 0; ; i++ {
				if err := loud.Write(ctx, websocket.MessageText, []byte(said(fmt.Sprint(i)))); err != nil {
					written <- err
					return
				}
			}
		}()
		var read error
		for read == nil {
			_, _, read = loud.Read(ctx)
		}
		_ = loud.CloseNow()
		if websocket.CloseStatus(read) != websocket.StatusPolicyViolation {
			// What still comes when the server has closed resets the connection, and the reason is lost with it.
			Expect(errors.Join(read, <-written)).To(Or(MatchError(syscall.ECONNRESET), MatchError(syscall.EPIPE)))
		}

		By("waiting for an answer that does not come")
		stuck, _, err := openSocket(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		stuck.until(ctx, "open")
		stuck.say(ctx, said("wait"))
		Eventually(ctx, func() int { return len(madeThreads(ctx, ns)) }).Should(BeNumerically(">=", 1))
		stuck.say(ctx, said("one that waits"))
		for range 19 {
			stuck.say(ctx, said("one too many"))
			Expect(stuck.until(ctx, "error").Data.Error.Reason).To(Equal("Busy"))
		}
		Expect(stuck.CloseNow()).To(Succeed())

		By("opening more than may be open")
		var open []gatewaySocket
		Eventually(ctx, func() int { // those before are let go
			s, resp, err := openSocket(ctx, ns)
			if err != nil {
				return resp.StatusCode
			}
			open = append(open, s)
			return 0
		}).Should(Equal(429))
		Eventually(ctx, func() int { return len(open) }).Should(BeNumerically("<=", 5))
		Expect(tell(ctx, http.DefaultClient, calm, "hello").id()).NotTo(BeEmpty())
		for _, s := range open {
			Expect(s.CloseNow()).To(Succeed())
		}
		Eventually(ctx, func() error {
			_, _, err := openSocket(ctx, ns)
			return err
		}).Should(Succeed(), "places come back")
	}, SpecTimeout(5*time.Minute))
})
