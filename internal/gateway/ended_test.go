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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// silent is an engine whose agents take messages and say nothing. Code of gateways says that all requests mean one conversation.
type silent struct {
	room
	store store.Store
	// queued is called once a message is queued, and no agent takes the message. It may be nil.
	queued func(ctx context.Context, threadID string)
}

func (silent) MessageHooks(context.Context, *store.Thread) thread.MessageHooks { return nil }

func (e silent) Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, _ skeinv1.RunPolicy) (*store.Message, error) {
	m, err := st.Queue(ctx, n)
	if err != nil {
		return nil, err
	}
	if e.queued != nil {
		e.queued(ctx, t.ID)
		return m, nil
	}
	items, err := e.store.Inbox(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	taken, run := *m, store.Run{ID: uuid.NewString(), Agent: t.Agent, Status: store.RunRunning}
	taken.RunID, taken.Status = run.ID, store.MessageCompleted
	ended := run
	ended.Status = store.RunSucceeded
	return m, st.Apply(ctx, &store.PutRun{Run: run}, &store.AppendMessage{Message: &taken}, &store.Dequeue{Seqs: []int64{items[0].Seq}}, &store.PutRun{Run: ended})
}

func (silent) ThreadID(context.Context, *definition.IDCode, map[string]any) (string, error) {
	return "thrd_" + strings.Repeat("a", 32), nil
}

// making creates Threads, and stores them as the controller does.
type making struct {
	*kube.Threads
	store store.Store
}

func (m making) CreateGatewayThread(ctx context.Context, g *definitions.Gateway, id, user string) (*skeinv1.Thread, error) {
	t, err := m.Threads.CreateGatewayThread(ctx, g, id, user)
	if err == nil {
		_, _, err = m.store.CreateThread(ctx, store.Thread{ID: t.ThreadID(), Namespace: t.Namespace, Name: t.Name, Agent: g.Agent})
	}
	return t, err
}

var _ = Describe("A client whose conversation has ended", Label("IDS-03", "IDS-06", "THR-05"), func() {
	const proxy = "127.0.0.1"
	var (
		c  client.Client
		st store.Store
		s  *Server
		id string // of the client's conversation, as a header

		repeat string // the key of a message that may be a repeat
	)
	users := func(g *definitions.Gateway) {
		g.UserHeader, g.UserKey = "X-User-Id", []byte("another key of 32 bytes, or about")
	}
	provided := func(g *definitions.Gateway) {
		g.Provider = &definitions.IDProvider{Timeout: time.Second, Code: &definition.IDCode{}}
	}
	begin := func(ctx context.Context, edit func(*definitions.Gateway)) {
		GinkgoHelper()
		c = objectsOf(interceptor.Funcs{})
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		st, id, repeat = db, "", ""
		s = serverOf(edit, proxy+"/32")
		s.opts.Threads, s.opts.Engine, s.opts.Objects = thread.NewService(thread.Options{Store: st}), silent{store: st}, making{kube.NewThreads(c, c), st}
		s.finder, s.tails = &lookup.Finder{Reader: c, Threads: s.opts.Threads, SetupWait: time.Millisecond}, tailsOf(st)
		s.stopping = make(chan struct{})
	}
	// post sends a request of the client, and returns the answer's status and why it was refused.
	post := func(path, body string) (int, string) {
		GinkgoHelper()
		r := from(proxy+":1", httptest.NewRequest(http.MethodPost, "/ns/chat/"+path, strings.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-User-Id", "ada")
		r.Header.Set("x-thread-id", id)
		r.Header.Set("Idempotency-Key", repeat)
		got := ask(s, r)
		id = got.Header.Get("x-thread-id")
		var refused errorBody
		if got.StatusCode >= 400 {
			Expect(json.NewDecoder(got.Body).Decode(&refused)).To(Succeed())
		}
		return got.StatusCode, refused.Error.Message
	}
	say := func() (int, string) {
		GinkgoHelper()
		return post("v1/message", `{"content":"hello"}`)
	}
	object := func(ctx context.Context) *skeinv1.Thread {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(c.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		return &list.Items[0]
	}
	terminate := func(ctx context.Context, threadID string) {
		GinkgoHelper()
		Expect(st.Apply(ctx, threadID, nil, &store.Terminate{Reason: skeinv1.ReasonTerminatedByRequest})).To(Succeed())
	}

	const (
		endedAlready = "this conversation has ended and takes no more messages: "
		endedSince   = "this conversation ended before the agent answered: "
		byItself     = "POST v1/new begins another one"
		ofUser       = "ask the operator of this site to delete it, and then send the message again"
		ofProvider   = "ask the operator of this site to delete it or to have another one named, and then send the message again"
	)

	DescribeTable("is told what begins another one", func(ctx SpecContext, edit func(*definitions.Gateway), advice string, fresh int) {
		begin(ctx, edit)
		Expect(say()).To(Equal(http.StatusOK))
		terminate(ctx, object(ctx).ThreadID())
		code, why := say()
		Expect(code).To(Equal(http.StatusGone))
		Expect(why).To(Equal(endedAlready + advice))
		code, why = post("v1/new", "")
		Expect(code).To(Equal(fresh))
		Expect(why).NotTo(ContainSubstring("goes on with it"), "no more can be said in it")
		if fresh == http.StatusConflict {
			Expect(c.Delete(ctx, object(ctx))).To(Succeed())
		}
		Expect(say()).To(Equal(http.StatusOK))
	},
		Entry("where it has the id that the gateway gave it", nil, byItself, http.StatusNoContent),
		Entry("where a proxy says who it is", users, ofUser, http.StatusConflict),
		Entry("where a provider says which conversation it means", provided, ofProvider, http.StatusConflict),
	)

	DescribeTable("while it waits is told what begins another one", func(ctx SpecContext, edit func(*definitions.Gateway), end func(context.Context, string), advice string) {
		begin(ctx, edit)
		s.opts.Engine = silent{queued: end}
		s.pingTime = time.Millisecond
		code, why := say()
		Expect(code).To(Equal(http.StatusGone))
		Expect(why).To(Equal(endedSince + advice))
	},
		Entry("where it has the id that the gateway gave it", nil, terminate, byItself),
		Entry("where a proxy says who it is", users, terminate, ofUser),
		Entry("where a provider says which conversation it means", provided, terminate, ofProvider),
		Entry("when its Thread is deleted", users, func(ctx context.Context, threadID string) {
			Expect(st.PurgeThread(ctx, threadID)).Error().NotTo(HaveOccurred())
		}, "the next message begins another one"),
		Entry("when its Thread is being deleted", users, func(ctx context.Context, threadID string) {
			t, err := st.Thread(ctx, threadID)
			Expect(err).NotTo(HaveOccurred())
			Expect(st.MarkDeleted(ctx, t.OwnerUID(), threadID)).To(Succeed())
		}, "the next message begins another one"),
		Entry("when its Thread was deleted and its data is retained", users, func(ctx context.Context, threadID string) {
			Expect(st.Apply(ctx, threadID, nil, &store.Retain{})).To(Succeed())
		}, "the next message begins another one"),
		Entry("when it is destroyed", users, func(ctx context.Context, threadID string) {
			Expect(st.Apply(ctx, threadID, nil, &store.Destroy{Reason: store.DestroyedExplicit})).To(Succeed())
		}, "the next message begins another one"),
	)

	It("gets the answer to a message that it repeats, if there was one", Label("MSG-10"), func(ctx SpecContext) {
		begin(ctx, nil)
		repeat = "answered"
		Expect(say()).To(Equal(http.StatusOK))
		s.opts.Engine = silent{queued: terminate}
		repeat = "waits"
		for range 2 {
			code, why := say()
			Expect(code).To(Equal(http.StatusGone))
			Expect(why).To(Equal(endedSince + byItself))
		}
		repeat = "answered"
		s.opts.Engine = silent{queued: func(context.Context, string) {}}
		Expect(say()).To(Equal(http.StatusOK))
	})

	It("is asked to come back while its Thread is being deleted", func(ctx SpecContext) {
		begin(ctx, nil)
		Expect(say()).To(Equal(http.StatusOK))
		t := object(ctx)
		t.Finalizers = []string{"skein.dev/test"}
		Expect(c.Update(ctx, t)).To(Succeed())
		Expect(st.PurgeThread(ctx, t.ThreadID())).Error().NotTo(HaveOccurred())
		s.finder.Reader = meanwhile{Reader: c, happens: func(ctx context.Context, o client.Object) { // the first read is from before
			Expect(c.Delete(ctx, o.DeepCopyObject().(client.Object))).To(Succeed())
		}}
		code, why := say()
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		Expect(why).To(Equal(errUnavailable.message))
	})

	It("is told so over a WebSocket too", func(ctx SpecContext) {
		begin(ctx, users)
		Expect(say()).To(Equal(http.StatusOK))
		terminate(ctx, object(ctx).ThreadID())
		h := httptest.NewServer(http.HandlerFunc(s.serve))
		DeferCleanup(h.Close)
		socket, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(h.URL, "http")+"/ns/chat/v1/socket", &websocket.DialOptions{HTTPHeader: http.Header{"X-User-Id": {"ada"}}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = socket.CloseNow() })
		_, _, err = socket.Read(ctx) // open
		Expect(err).NotTo(HaveOccurred())
		Expect(socket.Write(ctx, websocket.MessageText, []byte(`{"content":"hello"}`))).To(Succeed())
		_, data, err := socket.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(ContainSubstring(endedAlready + ofUser))
	}, SpecTimeout(time.Minute))
})
