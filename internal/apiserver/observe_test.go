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

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// until observes a thread until its value satisfies done, and returns the observations.
func until(ctx context.Context, t *runtimeclient.Thread, o runtimeclient.ObserveOptions, each func(*runtimev1.ObservedThread) (done bool)) []runtimeclient.Observed {
	GinkgoHelper()
	var out []runtimeclient.Observed
	for seen, err := range t.Observe(ctx, o) {
		Expect(err).NotTo(HaveOccurred())
		out = append(out, seen)
		value, err := seen.Thread()
		Expect(err).NotTo(HaveOccurred())
		if each(value) {
			break
		}
	}
	return out
}

func say(st *thread.State, text string) *store.Message {
	GinkgoHelper()
	m, err := st.Inject(context.Background(), thread.NewMessage{Role: store.RoleUser, Content: &text})
	Expect(err).NotTo(HaveOccurred())
	return m
}

var _ = Describe("observing a thread", Label("EVT-02"), func() {
	It("gives its present value, then patches that lead to what a GET says", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.heartbeat = time.Hour }) // notifications alone must suffice
		st, t := e.thread("hello")
		say(st, "before")
		var writing sync.WaitGroup
		defer writing.Wait()
		seen := until(ctx, t, runtimeclient.ObserveOptions{Include: []string{"messages", "state", "values"}}, func(v *runtimev1.ObservedThread) bool {
			if len(v.Messages) == 1 && v.Thread.Title == "" {
				writing.Go(func() {
					defer GinkgoRecover()
					for i := range 30 {
						m := say(st, fmt.Sprint("message ", i))
						if i%3 == 0 {
							_, err := st.DeleteMessage(ctx, m.ID)
							Expect(err).NotTo(HaveOccurred())
						}
						Expect(st.SetValue(ctx, "n", json.RawMessage(fmt.Sprint(i)))).To(Succeed())
						Expect(t.SetState(ctx, "step", i)).To(Succeed())
					}
					title := "the end"
					_, err := t.Update(ctx, runtimev1.ThreadPatch{Title: &title})
					Expect(err).NotTo(HaveOccurred())
				})
			}
			return v.Thread.Title == "the end"
		})
		Expect(seen[0].Value).NotTo(BeEmpty())
		for i, o := range seen[1:] {
			Expect(o.Patch).NotTo(BeEmpty())
			Expect(o.V).To(BeNumerically(">", seen[i].V))
		}
		writing.Wait()
		last, err := seen[len(seen)-1].Thread()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(last.State["step"])).To(Equal("29"))
		Expect(string(last.Values["n"])).To(Equal("29"))
		list, err := t.Messages(ctx, runtimeclient.MessageOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(last.Messages).To(Equal(list.Messages))
		record, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(last.Thread).To(Equal(record))
	}, SpecTimeout(2*patience))

	It("keeps the messages of a value within bounds", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		for i := range 150 {
			say(st, fmt.Sprint(i))
		}
		fed := false
		sizes := map[int]bool{}
		until(ctx, t, runtimeclient.ObserveOptions{Include: []string{"messages"}}, func(v *runtimev1.ObservedThread) bool {
			sizes[len(v.Messages)] = true
			if !fed {
				fed = true
				Expect(v.Messages).To(HaveLen(100))
				for i := range 150 {
					say(st, fmt.Sprint(150+i))
				}
			}
			return *v.Messages[len(v.Messages)-1].Content == "299"
		})
		for n := range sizes {
			Expect(n).To(BeNumerically("<=", 200))
		}
	}, SpecTimeout(2*patience))

	It("gives the parts that were asked for, and refuses others", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		Expect(st.SetValue(ctx, "big", json.RawMessage(`"`+strings.Repeat("x", 65<<10)+`"`))).To(Succeed())
		Expect(st.SetValue(ctx, "small", json.RawMessage(`1`))).To(Succeed())
		members := func(o runtimeclient.ObserveOptions) (names []string) {
			o.NoFollow = true
			for seen, err := range t.Observe(ctx, o) {
				Expect(err).NotTo(HaveOccurred())
				var m map[string]json.RawMessage
				Expect(json.Unmarshal(seen.Now, &m)).To(Succeed())
				for name := range m {
					names = append(names, name)
				}
				if v, ok := m["values"]; ok {
					Expect(v).To(MatchJSON(`{"small":1}`))
				}
			}
			return names
		}
		Expect(members(runtimeclient.ObserveOptions{})).To(ConsistOf("thread", "messages", "state"))
		Expect(members(runtimeclient.ObserveOptions{Include: []string{}})).To(ConsistOf("thread"))
		Expect(members(runtimeclient.ObserveOptions{Include: []string{"values", "values"}})).To(ConsistOf("thread", "values"))
		for _, err := range t.Observe(ctx, runtimeclient.ObserveOptions{Include: []string{"env"}}) {
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(`"env" is not one of thread, messages, state, values`)))
		}
		for _, err := range e.client().Thread("ns", "nobody").Observe(ctx, runtimeclient.ObserveOptions{}) {
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
	}, SpecTimeout(2*patience))

	It("ends when the thread is deleted", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		var last error
		for _, err := range t.Observe(ctx, runtimeclient.ObserveOptions{}) {
			if last = err; err == nil {
				Expect(e.svc.Purge(ctx, st.ID())).To(Succeed())
			}
		}
		Expect(last).To(MatchError(runtimeclient.ErrThreadDeleted))
	}, SpecTimeout(2*patience))

	It("serves browsers' events and WebSockets alike, twenty at once", func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("hello")
		var clients sync.WaitGroup
		begun := make(chan struct{}, 20)
		for i := range 20 {
			clients.Go(func() {
				defer GinkgoRecover()
				read := e.observeWS(ctx)
				if i%2 == 0 {
					read = e.observeSSE(ctx)
				}
				Expect(read().Value).To(ContainSubstring(`"messages":[]`))
				begun <- struct{}{}
				Expect(read().Patch).To(ContainSubstring(`"path":"/messages/0"`))
			})
		}
		for range 20 {
			Eventually(begun).Should(Receive())
		}
		say(st, "hi")
		clients.Wait()
	}, SpecTimeout(2*patience))

	It("says to a WebSocket why it ends", func(ctx SpecContext) {
		e := newEnv()
		e.thread("hello")
		conn := e.dialObserve(ctx, "")
		_, _, err := conn.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		e.stop()
		_, _, err = conn.Read(ctx)
		Expect(websocket.CloseStatus(err)).To(Equal(websocket.StatusGoingAway), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("ServerStopping: connect again for the present value")))
	}, SpecTimeout(2*patience))

	It("drops a client that does not read, and not the others", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.transferTimeout, o.heartbeat = 200*time.Millisecond, time.Hour })
		st, t := e.thread("hello")
		deaf := e.dial()
		fmt.Fprintf(deaf, "GET %s?include=values HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n", at("hello", "/observe"))
		Eventually(openMetric).Should(BeNumerically(">", 0))
		n := 0
		set := func() {
			n++
			for i := range 20 {
				text := strings.Repeat(string(rune('a'+n%26)), 60<<10)
				Expect(st.SetValue(ctx, fmt.Sprint(i), json.RawMessage(`"`+text+`"`))).To(Succeed())
			}
			Expect(st.SetValue(ctx, "n", json.RawMessage(fmt.Sprint(n)))).To(Succeed())
		}
		until(ctx, t, runtimeclient.ObserveOptions{Include: []string{"values"}}, func(v *runtimev1.ObservedThread) bool {
			if string(v.Values["n"]) == fmt.Sprint(n) || n == 0 {
				set()
			}
			return openMetric() == 1 && n > 2
		})
		// On a busy machine the client that reads may have been dropped instead. Then the deaf one gets more.
		Eventually(func() float64 { set(); return openMetric() }).Should(BeZero())
		Expect(deaf.SetDeadline(time.Now().Add(patience))).To(Succeed())
		_, err := io.Copy(io.Discard, deaf)
		Expect(err).NotTo(MatchError(os.ErrDeadlineExceeded))
	}, SpecTimeout(2*patience))
})

// observeSSE returns a function that reads the next observation from server-sent events.
func (e *testEnv) observeSSE(ctx context.Context) func() runtimev1.Observation {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+at("hello", "/observe"), nil)
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Authorization", "Bearer alice")
	resp, err := e.http.Do(req) //nolint:bodyclose // the cleanup closes it
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(resp.Body.Close)
	Expect(resp.Header.Get("Content-Type")).To(Equal("text/event-stream"))
	r := bufio.NewReader(resp.Body)
	return func() (o runtimev1.Observation) {
		GinkgoHelper()
		Expect(json.Unmarshal([]byte(nextData(r)), &o)).To(Succeed())
		return o
	}
}

func (e *testEnv) dialObserve(ctx context.Context, query string) *websocket.Conn {
	GinkgoHelper()
	conn, _, err := websocket.Dial(ctx, e.base+at("hello", "/observe")+query, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: e.http1(), HTTPHeader: http.Header{"Authorization": {"Bearer alice"}}, Subprotocols: []string{runtimev1.ObserveSubprotocol},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.Subprotocol()).To(Equal(runtimev1.ObserveSubprotocol))
	DeferCleanup(func() { _ = conn.CloseNow() })
	return conn
}

// observeWS returns a function that reads the next observation from a WebSocket.
func (e *testEnv) observeWS(ctx context.Context) func() runtimev1.Observation {
	GinkgoHelper()
	conn := e.dialObserve(ctx, "")
	return func() (o runtimev1.Observation) {
		GinkgoHelper()
		_, body, err := conn.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(body, &o)).To(Succeed())
		return o
	}
}

var _ = Describe("waiting for a version", Label("EVT-04"), func() {
	It("answers at once for a version that is there, and else when it comes, twenty at once", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.flushWait = patience })
		st, t := e.thread("hello")
		say(st, "one")
		rec, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, v := range []int64{0, rec.V} {
			now, err := t.FlushVersion(ctx, v)
			Expect(err).NotTo(HaveOccurred())
			Expect(now).To(Equal(rec.V))
		}
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				defer GinkgoRecover()
				now, err := t.FlushVersion(ctx, rec.V+2)
				Expect(err).NotTo(HaveOccurred())
				Expect(now).To(BeNumerically(">=", rec.V+2))
			})
		}
		say(st, "two")
		say(st, "three")
		waiting.Wait()
	}, SpecTimeout(2*patience))

	It("fails when the version does not come in time, and says which there is", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.flushWait = 20 * time.Millisecond })
		st, t := e.thread("hello")
		say(st, "one")
		rec, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = t.FlushVersion(ctx, rec.V+1)
		Expect(apierrors.IsTimeout(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("was at version %d after 20ms, and version %d had not been written", rec.V, rec.V+1))))
	}, SpecTimeout(2*patience))

	It("refuses an invalid version", func(ctx SpecContext) {
		e := newEnv()
		e.thread("hello")
		for _, query := range []string{"", "?v=", "?v=x", "?v=-1", "?v=1&v=2", "?v=1&w=2"} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+at("hello", "/flush")+query, nil)
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Authorization", "Bearer alice")
			resp, err := e.http.Do(req)
			Expect(err).NotTo(HaveOccurred())
			body, err := io.ReadAll(resp.Body)
			Expect(errors.Join(err, resp.Body.Close())).NotTo(HaveOccurred())
			Expect(resp.StatusCode).To(Equal(http.StatusUnprocessableEntity), query)
			Expect(string(body)).To(ContainSubstring(`"field":"`), query)
		}
	}, SpecTimeout(2*patience))
})

var _ = Describe("watching the list of threads", Label("EVT-04"), func() {
	It("tells which of a namespace have changed, as a list shows them then", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		other := e.object("other")
		_, _, err := e.svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: string(other.UID), Namespace: "elsewhere", Name: "other", Agent: "helper"}})
		Expect(err).NotTo(HaveOccurred())
		elsewhere, err := e.svc.Open(ctx, string(other.UID))
		Expect(err).NotTo(HaveOccurred())
		watch := func(path string) *http.Response {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/apis/runtime.skein.dev/v1alpha1"+path, nil)
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Authorization", "Bearer alice")
			resp, err := e.http.Do(req)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(resp.Body.Close)
			return resp
		}
		one, all := watch("/namespaces/ns/history?watch=true"), watch("/history?watch=true")
		Expect(one.StatusCode).To(Equal(http.StatusOK))
		say(elsewhere, "not for ns")
		say(st, "hi")
		title := "changed"
		rec, err := t.Update(ctx, runtimev1.ThreadPatch{Title: &title})
		Expect(err).NotTo(HaveOccurred())
		read := func(resp *http.Response, done func(runtimev1.ThreadHistory) bool) {
			r := bufio.NewReader(resp.Body)
			for {
				var list runtimev1.ThreadHistoryList
				Expect(json.Unmarshal([]byte(nextData(r)), &list)).To(Succeed())
				for _, item := range list.Items {
					if resp == one {
						Expect(item.Namespace).To(Equal("ns"))
					}
					if done(item) {
						return
					}
				}
			}
		}
		read(one, func(i runtimev1.ThreadHistory) bool {
			return i.V == rec.V && *i.Title == title && i.SummaryStats.MessageCount == 1
		})
		seen := map[string]bool{}
		read(all, func(i runtimev1.ThreadHistory) bool { seen[i.Namespace] = true; return len(seen) == 2 })

		refused := watch("/namespaces/ns/history?watch=true&agent=helper")
		body, err := io.ReadAll(refused.Body)
		Expect(err).NotTo(HaveOccurred())
		Expect(refused.StatusCode).To(Equal(http.StatusUnprocessableEntity))
		Expect(string(body)).To(ContainSubstring("a watch has all threads: leave it out"))
	}, SpecTimeout(2*patience))

	It("ends when there is no memory for what has changed", Label("K8S-12"), func(ctx SpecContext) {
		budget := membudget.New(64<<20, time.Millisecond)
		e := newEnv(func(o *Options) { o.Memory = budget })
		st, _ := e.thread("hello")
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/apis/runtime.skein.dev/v1alpha1/namespaces/ns/history?watch=true", nil)
		Expect(err).NotTo(HaveOccurred())
		req.Header.Set("Authorization", "Bearer alice")
		resp, err := e.http.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		others := budget.Open("ns")
		defer others.Close()
		Expect(others.TryDraw(32<<20 - 1<<10 - budget.Used())).To(Succeed())
		say(st, "hi")
		Expect(nextData(bufio.NewReader(resp.Body))).To(And(ContainSubstring(`"reason":"NoMemory"`), ContainSubstring("watch again, then list")))
	}, SpecTimeout(2*patience))
})
