package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/streams"
	"github.com/skein-dev/skein/internal/thread"
)

// emit writes n custom events.
func emit(st *thread.State, from, n int) {
	GinkgoHelper()
	for i := range n {
		Expect(st.Emit(context.Background(), "tick", json.RawMessage(fmt.Sprint(from+i)))).To(Succeed())
	}
}

// collect reads n events and returns the numbers in them.
func collect(ctx context.Context, t *runtimeclient.Thread, o runtimeclient.EventOptions, n int) (data []string, last int64, err error) {
	for e, err := range t.Events(ctx, o) {
		if err != nil {
			return data, last, err
		}
		data, last = append(data, string(e.Data)), e.Seq
		if len(data) == n {
			break
		}
	}
	return data, last, nil
}

func numbers(from, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(from+i))
	}
	return out
}

var _ = Describe("events", Label("EVT-01", "EVT-03"), func() {
	It("give the backlog, then what happens, nothing lost or doubled where they meet", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.heartbeat = time.Hour }) // notifications alone must suffice
		st, t := e.thread("hello")
		const backlog, live = 3 * streams.EventPage / 2, 200
		emit(st, 0, backlog)
		var writing sync.WaitGroup
		writing.Go(func() {
			defer GinkgoRecover()
			emit(st, backlog, live)
		})
		got, _, err := collect(ctx, t, runtimeclient.EventOptions{}, backlog+live)
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(Equal(numbers(0, backlog+live)))
		writing.Wait()
	}, SpecTimeout(2*patience))

	It("resume after a sequence number", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		emit(st, 0, 10)
		_, seq, err := collect(ctx, t, runtimeclient.EventOptions{}, 4)
		Expect(err).NotTo(HaveOccurred())
		got, _, err := collect(ctx, t, runtimeclient.EventOptions{After: seq, NoFollow: true}, -1)
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(Equal(numbers(4, 6)))

		req := e.sse(ctx, "hello", "?after=1&follow=false", "Last-Event-ID", fmt.Sprint(seq))
		defer req.Body.Close()
		text, err := io.ReadAll(req.Body)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(string(text), "event: event:tick\n")).To(Equal(6), "Last-Event-ID is newer than the URL")
		Expect(string(text)).To(HavePrefix("retry: 1000\n\n"))
		Expect(string(text)).To(ContainSubstring(`event: stream.closed` + "\n" + `data: {"reason":"EndOfLog"`))
	}, SpecTimeout(2*patience))

	It("begin with what happens next when asked to", func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("hello")
		emit(st, 0, 3)
		resp := e.sse(ctx, "hello", "?after=latest")
		defer resp.Body.Close()
		emit(st, 3, 1)
		Expect(nextData(bufio.NewReader(resp.Body))).To(ContainSubstring(`"data":3`))
	}, SpecTimeout(2*patience))

	It("carry the messages", Label("MSG-05"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		m, err := t.Queue(ctx, runtimev1.NewMessage{Content: "hi\nthere"})
		Expect(err).NotTo(HaveOccurred())
		for ev, err := range t.Events(ctx, runtimeclient.EventOptions{}) {
			Expect(err).NotTo(HaveOccurred())
			Expect(ev.Type).To(Equal(runtimev1.EventMessageQueued))
			Expect(ev.MessageID).To(Equal(m.ID))
			Expect(ev.Data).To(ContainSubstring(`hi\nthere`))
			break
		}
	}, SpecTimeout(2*patience))

	It("send heartbeats while nothing happens", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.heartbeat = 20 * time.Millisecond })
		e.thread("hello")
		resp := e.sse(ctx, "hello", "")
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		var lines []string
		for range 6 {
			line, err := r.ReadString('\n')
			Expect(err).NotTo(HaveOccurred())
			lines = append(lines, line)
		}
		Expect(lines).To(ContainElement(": ping\n"))
	}, SpecTimeout(2*patience))

	It("end when the thread is deleted", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		emit(st, 0, 1)
		var last error
		for ev, err := range t.Events(ctx, runtimeclient.EventOptions{}) {
			last = err
			if err == nil && string(ev.Data) == "0" {
				Expect(e.svc.Purge(ctx, st.ID())).To(Succeed())
			}
		}
		Expect(errors.Is(last, runtimeclient.ErrThreadDeleted)).To(BeTrue(), "%v", last)
		for _, err := range e.client().Thread("ns", "nobody").Events(ctx, runtimeclient.EventOptions{}) {
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
	}, SpecTimeout(2*patience))

	It("end with a word when the server stops", func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("hello")
		emit(st, 0, 1)
		resp := e.sse(ctx, "hello", "")
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		Expect(nextData(r)).To(ContainSubstring(`"data":0`))
		e.stop()
		Expect(nextData(r)).To(And(ContainSubstring(`"reason":"ServerStopping"`), ContainSubstring(`"resume":1`)))
		_, err := r.ReadByte()
		for err == nil {
			_, err = r.ReadByte()
		}
	}, SpecTimeout(2*patience))

	It("drop a client that does not read, without holding up the others", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.transferTimeout, o.heartbeat = 200*time.Millisecond, time.Hour })
		st, t := e.thread("hello")
		http1 := e.dial()
		fmt.Fprintf(http1, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n", at("hello", "/events"))
		http2 := e.sse(ctx, "hello", "")
		defer http2.Body.Close()
		Expect(http2.ProtoMajor).To(Equal(2))
		big := json.RawMessage(`"` + strings.Repeat("x", 1<<19) + `"`)
		for range 40 { // more than kernels and flow control buffer for a connection
			Expect(st.Emit(ctx, "big", big)).To(Succeed())
		}
		got, _, err := collect(ctx, t, runtimeclient.EventOptions{}, 40)
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(HaveLen(40))

		// What is buffered for them can be read; then the stream ends, before all events.
		Eventually(openMetric).Should(BeZero())
		Expect(http1.SetDeadline(time.Now().Add(patience))).To(Succeed())
		for _, r := range []io.Reader{http1, http2.Body} {
			n, err := io.Copy(io.Discard, r)
			Expect(err).NotTo(MatchError(os.ErrDeadlineExceeded))
			Expect(n).To(BeNumerically("<", 40<<19))
		}
	}, SpecTimeout(2*patience))

	Describe("by WebSocket", func() {
		It("carry the same events, from the requested place", func(ctx SpecContext) {
			e := newEnv()
			st, _ := e.thread("hello")
			emit(st, 0, 3)
			conn := e.webSocket(ctx, "?after=1")
			emit(st, 3, 1)
			for i := 1; i < 4; i++ {
				kind, body, err := conn.Read(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(kind).To(Equal(websocket.MessageText))
				var ev runtimev1.Event
				Expect(json.Unmarshal(body, &ev)).To(Succeed())
				Expect(ev).To(And(HaveField("Seq", int64(i+1)), HaveField("Type", "event:tick"), HaveField("Data", MatchJSON(fmt.Sprint(i)))))
			}
			Expect(conn.Close(websocket.StatusNormalClosure, "")).To(Succeed())
		}, SpecTimeout(2*patience))

		It("say why they end", func(ctx SpecContext) {
			e := newEnv()
			st, _ := e.thread("hello")
			emit(st, 0, 2)
			ended := e.webSocket(ctx, "?after=2&follow=false")
			_, _, err := ended.Read(ctx)
			Expect(websocket.CloseStatus(err)).To(Equal(websocket.StatusNormalClosure))
			Expect(err).To(MatchError(ContainSubstring("EndOfLog: connect again with after=2")))
			stopped := e.webSocket(ctx, "?after=2")
			e.stop()
			_, _, err = stopped.Read(ctx)
			Expect(websocket.CloseStatus(err)).To(Equal(websocket.StatusGoingAway), "%v", err)
		}, SpecTimeout(2*patience))

		It("refuse a bad request before the upgrade", func(ctx SpecContext) {
			e := newEnv()
			e.thread("hello")
			_, resp, err := e.tryWebSocket(ctx, "?after=x")
			Expect(err).To(HaveOccurred())
			Expect(resp.StatusCode).To(Equal(http.StatusUnprocessableEntity))
		}, SpecTimeout(2*patience))
	})
})

// sse opens a stream of server-sent events as alice.
func (e *testEnv) sse(ctx context.Context, name, query string, headers ...string) *http.Response {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+at(name, "/events")+query, nil)
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Authorization", "Bearer alice")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := e.http.Do(req)
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.StatusCode).To(Equal(http.StatusOK))
	Expect(resp.Header.Get("Content-Type")).To(Equal("text/event-stream"))
	return resp
}

func nextData(r *bufio.Reader) string {
	GinkgoHelper()
	for {
		line, err := r.ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return data
		}
	}
}

// http1 returns the client for WebSockets, which use HTTP/1.1 only.
func (e *testEnv) http1() *http.Client {
	transport := e.http.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	DeferCleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (e *testEnv) tryWebSocket(ctx context.Context, query string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(ctx, e.base+at("hello", "/events")+query, &websocket.DialOptions{
		HTTPClient: e.http1(), HTTPHeader: http.Header{"Authorization": {"Bearer alice"}},
		Subprotocols: []string{runtimev1.EventsSubprotocol},
	})
}

func (e *testEnv) webSocket(ctx context.Context, query string) *websocket.Conn {
	GinkgoHelper()
	conn, _, err := e.tryWebSocket(ctx, query) //nolint:bodyclose // the library closes it
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.Subprotocol()).To(Equal(runtimev1.EventsSubprotocol))
	DeferCleanup(func() { _ = conn.CloseNow() })
	return conn
}

// openMetric returns what the metric of open streams of events says.
func openMetric() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == "skein_runtime_api_event_streams" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	Fail("no metric of open streams")
	return 0
}

// closedMetric returns how many streams the server has ended for a reason.
func closedMetric(reason string) float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "skein_runtime_api_event_streams_closed_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
