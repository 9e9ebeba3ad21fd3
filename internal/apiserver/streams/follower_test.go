package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// patience bounds what must happen, with room for busy machines. No spec measures it.
const patience = 2 * time.Minute

func TestStreams(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Streams of the runtime API")
}

var _ = Describe("events", Label("EVT-01", "EVT-03"), func() {
	It("are found by reading when a notification was lost", func(ctx SpecContext) {
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		threads := thread.NewService(thread.Options{Store: db})
		t, _, err := threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: "ns", Name: "hello", Agent: "helper"}})
		Expect(err).NotTo(HaveOccurred())
		st, err := threads.Open(ctx, t.ID)
		Expect(err).NotTo(HaveOccurred())

		h := &Handler{Threads: threads, Options: Options{Heartbeat: 20 * time.Millisecond, SlowClient: patience}}
		h.tails = observe.NewTails(observe.TailOptions{Read: db.Events, Recheck: h.Heartbeat, Subscribe: func(string, func(store.Notification)) (stop func()) {
			return func() {}
		}})
		f := &follower{handler: h, threadID: st.ID(), follow: true}
		deaf := &countingSink{got: make(chan int, 100)}
		runCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); f.run(runCtx, deaf) }()
		Expect(st.Emit(ctx, "tick", json.RawMessage("0"))).To(Succeed())
		Eventually(deaf.got).Should(Receive(Equal(1)))
		cancel()
		Eventually(done).Should(BeClosed())
	}, SpecTimeout(2*patience))
})

// readings counts how often a thread's log is read.
type readings struct {
	store.Store
	events, lines atomic.Int64
}

func (r *readings) Events(ctx context.Context, threadID string, after int64, limit int) ([]store.Event, error) {
	r.events.Add(1)
	return r.Store.Events(ctx, threadID, after, limit)
}

func (r *readings) Lines(ctx context.Context, threadID string, q store.LineQuery) ([]store.Event, error) {
	r.lines.Add(1)
	return r.Store.Lines(ctx, threadID, q)
}

var _ = Describe("log lines", Label("EVT-01", "EVT-02", "LOG-03"), func() {
	It("are read once for all who follow them, and are those that were asked for", func(ctx SpecContext) {
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		counted := &readings{Store: db}
		threads := thread.NewService(thread.Options{Store: counted})
		t, _, err := threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: "ns", Name: "hello", Agent: "helper"}})
		Expect(err).NotTo(HaveOccurred())
		st, err := threads.Open(ctx, t.ID)
		Expect(err).NotTo(HaveOccurred())
		line := func(run, text string) {
			GinkgoHelper()
			data, err := json.Marshal(store.CodeLine{Message: text})
			Expect(err).NotTo(HaveOccurred())
			Expect(st.Apply(ctx, &store.AppendEvent{Event: store.Event{Type: store.EventCodeLog, RunID: run, Data: data}})).To(Succeed())
		}
		for _, text := range []string{"1", "2", "3"} {
			line("a", text)
			Expect(st.Emit(ctx, "tick", json.RawMessage("0"))).To(Succeed())
		}
		row, err := db.Thread(ctx, t.ID)
		Expect(err).NotTo(HaveOccurred())

		h := New(threads, nil, nil, nil, Options{Heartbeat: time.Hour, SlowClient: patience})
		follow := func(f follower) *textSink {
			f.handler, f.threadID, f.newest, f.follow, f.lines = h, t.ID, row.LastSeq, true, true
			to := &textSink{got: make(chan string, 1000)}
			runCtx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() { defer close(done); f.run(runCtx, to) }()
			DeferCleanup(func() { cancel(); Eventually(done).Should(BeClosed()) })
			return to
		}
		var all []*textSink
		for range 20 {
			all = append(all, follow(follower{}))
		}
		two, other, none := follow(follower{tail: 2}), follow(follower{runID: "b"}), follow(follower{runID: "c", tail: 5})
		for _, to := range all {
			to.gets("1", "2", "3")
		}
		two.gets("2", "3")
		for i := range 30 { // they are all past the beginning when this comes
			line("b", fmt.Sprint("b", i))
			for _, to := range append(all, two, other) {
				to.gets(fmt.Sprint("b", i))
			}
		}
		line("c", "0")
		for _, to := range append(all, two, none) {
			to.gets("0")
		}
		events, lines := counted.events.Load(), counted.lines.Load()
		line("a", "4")
		line("b", "5")
		for _, to := range append(all, two) {
			to.gets("4", "5")
		}
		other.gets("5")
		line("c", "6")
		none.gets("6")
		Expect(counted.lines.Load()).To(Equal(lines), "nothing is read for one alone")
		Expect(counted.events.Load()-events).To(BeNumerically("<=", 6), "one reads for all")
	}, SpecTimeout(2*patience))
})

// textSink sends the text of each line that it receives to a channel.
type textSink struct{ got chan string }

func (t *textSink) send(_ context.Context, events []store.Event) error {
	for i := range events {
		var l store.CodeLine
		if err := json.Unmarshal(events[i].Data, &l); err != nil {
			return err
		}
		t.got <- l.Message
	}
	return nil
}

func (t *textSink) gets(texts ...string) {
	GinkgoHelper()
	for _, text := range texts {
		Eventually(t.got).Should(Receive(Equal(text)))
	}
}

func (*textSink) ping(context.Context) error                    { return nil }
func (*textSink) close(context.Context, runtimev1.StreamClosed) {}

// countingSink counts the events that it gets.
type countingSink struct{ got chan int }

func (c *countingSink) send(_ context.Context, events []store.Event) error {
	c.got <- len(events)
	return nil
}

func (c *countingSink) ping(context.Context) error                    { return nil }
func (c *countingSink) close(context.Context, runtimev1.StreamClosed) {}
