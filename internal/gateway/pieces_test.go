package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// speaking is an engine whose agent answers each message with events and messages of its own.
type speaking struct {
	silent
	says func(runID string) []store.Op
}

func (e speaking) Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, _ skeinv1.RunPolicy) (*store.Message, error) {
	m, err := st.Queue(ctx, n)
	if err != nil {
		return nil, err
	}
	items, err := e.store.Inbox(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	taken, run := *m, store.Run{ID: uuid.NewString(), Agent: t.Agent, Status: store.RunRunning}
	taken.RunID, taken.Status = run.ID, store.MessageCompleted
	ops := []store.Op{&store.PutRun{Run: run}, &store.AppendMessage{Message: &taken}, &store.Dequeue{Seqs: []int64{items[0].Seq}}}
	ended := run
	ended.Status = store.RunSucceeded
	return m, st.Apply(ctx, append(append(ops, e.says(run.ID)...), &store.PutRun{Run: ended})...)
}

// spoken is a piece of an answer, or a whole message.
type spoken struct {
	id, text, whole string
	reset           bool
}

// answers returns the operations of a run that says something.
func answers(parts ...spoken) func(runID string) []store.Op {
	return func(runID string) (ops []store.Op) {
		for _, p := range parts {
			id := p.id + "-" + runID
			if p.whole != "" {
				ops = append(ops, &store.AppendMessage{Message: &store.Message{ID: id, Role: store.RoleAssistant, Content: &p.whole, RunID: runID, Status: store.MessageCompleted}})
				continue
			}
			data, _ := json.Marshal(map[string]any{"text": p.text, "reset": p.reset})
			ops = append(ops, &store.AppendEvent{Event: store.Event{Type: store.EventDelta, RunID: runID, MessageID: id, Data: data}})
		}
		return ops
	}
}

// shown is what a client shows of an answer while it comes, as the page of the gateway says: the messages so far, and below them the pieces
// of the one that is being said.
type shown struct{ messages, id, pieces string }

func (s *shown) frame(event string, data []byte) {
	GinkgoHelper()
	var d struct {
		ID, Content, MessageID, Text string
		Reset                        bool
	}
	Expect(json.Unmarshal(data, &d)).To(Succeed())
	switch event {
	case "delta":
		Expect(d.MessageID).NotTo(BeEmpty())
		if d.MessageID != s.id || d.Reset {
			s.pieces = ""
		}
		s.id, s.pieces = d.MessageID, s.pieces+d.Text
	case "message":
		if d.ID == s.id {
			Expect(d.Content).To(Equal(s.pieces), "the pieces together are the message")
		}
		s.messages, s.id, s.pieces = s.messages+d.Content+"\n", "", ""
	}
}

var _ = DescribeTable("A client that shows pieces of an answer shows in the end what the agent said", Label("IDS-03"), func(ctx SpecContext, says func(runID string) []store.Op) {
	c := objectsOf(interceptor.Funcs{})
	st, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(st.Close)
	s := serverOf(nil)
	s.opts.Threads, s.opts.Engine, s.opts.Objects = thread.NewService(thread.Options{Store: st}), speaking{silent{store: st}, says}, making{kube.NewThreads(c, c), st}
	s.finder, s.tails = &lookup.Finder{Reader: c, Threads: s.opts.Threads, SetupWait: time.Millisecond}, tailsOf(st)
	s.stopping = make(chan struct{})

	By("reading server-sent events")
	var events, socketed shown
	w := &deadlines{httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/ns/chat/v1/message", strings.NewReader(`{"content":"hello"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	s.serve(w, r)
	var whole Answer
	for _, frame := range strings.Split(strings.TrimSpace(w.Body.String()), "\n\n") {
		event, data, ok := strings.Cut(strings.TrimPrefix(frame, "event: "), "\ndata: ")
		Expect(ok).To(BeTrue(), frame)
		if event == "done" {
			Expect(json.Unmarshal([]byte(data), &whole)).To(Succeed())
		}
		events.frame(event, []byte(data))
	}
	Expect(whole.Content).NotTo(BeEmpty())
	Expect(events).To(Equal(shown{messages: strings.ReplaceAll(whole.Content, between, "\n") + "\n"}))

	By("reading a WebSocket")
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	DeferCleanup(h.Close)
	socket, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(h.URL, "http")+"/ns/chat/v1/socket", nil)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = socket.CloseNow() })
	Expect(socket.Write(ctx, websocket.MessageText, []byte(`{"content":"hello"}`))).To(Succeed())
	for done := false; !done; {
		var f struct {
			Event string
			Data  json.RawMessage
		}
		_, data, err := socket.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(data, &f)).To(Succeed())
		Expect(f.Event).NotTo(Equal("error"), string(f.Data))
		socketed.frame(f.Event, f.Data)
		done = f.Event == "done"
	}
	Expect(socketed).To(Equal(events))
},
	Entry("when it comes in pieces", SpecTimeout(time.Minute), answers(spoken{id: "1", text: "hel"}, spoken{id: "1", text: "lo"}, spoken{id: "1", whole: "hello"})),
	Entry("when the model begins a message again", SpecTimeout(time.Minute),
		answers(spoken{id: "1", text: "hel"}, spoken{id: "1", text: "good", reset: true}, spoken{id: "1", text: " day"}, spoken{id: "1", whole: "good day"})),
	Entry("when the model begins a message again and has said nothing yet", SpecTimeout(time.Minute),
		answers(spoken{id: "1", text: "hel"}, spoken{id: "1", reset: true}, spoken{id: "1", text: "good day"}, spoken{id: "1", whole: "good day"})),
	Entry("when a run goes on after a crash, with a message of another id", SpecTimeout(time.Minute),
		answers(spoken{id: "0", whole: "a moment"}, spoken{id: "1", text: "hel"}, spoken{id: "2", text: "good"}, spoken{id: "2", text: " day"}, spoken{id: "2", whole: "good day"})),
)
