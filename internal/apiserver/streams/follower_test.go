package streams

import (
	"context"
	"encoding/json"
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

// countingSink counts the events that it gets.
type countingSink struct{ got chan int }

func (c *countingSink) send(_ context.Context, events []store.Event) error {
	c.got <- len(events)
	return nil
}

func (c *countingSink) ping(context.Context) error                    { return nil }
func (c *countingSink) close(context.Context, runtimev1.StreamClosed) {}
