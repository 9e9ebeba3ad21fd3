package engine_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
)

// acquires is a store that counts how often a lease was taken.
type acquires struct {
	store.Store
	count atomic.Int64
}

func (a *acquires) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (*store.Fence, error) {
	a.count.Add(1)
	return a.Store.Acquire(ctx, id, owner, ttl)
}

var _ = Describe("What a newer release has written", Label("K8S-10"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("one"), enginetest.Say("two")))
	})
	inbox := func(ctx context.Context, id string) []string {
		GinkgoHelper()
		items, err := w.Store.Inbox(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		kinds := []string{}
		for _, item := range items {
			kinds = append(kinds, string(item.Kind))
		}
		return kinds
	}

	for name, item := range map[string]store.InboxItem{
		"of a kind":         {Kind: "teleport", Payload: []byte(`{"to":"mars"}`)},
		"with a payload":    {Kind: store.InboxMessage, Payload: []byte(`{"id":["two","ids"]}`)},
		"of a hook":         {Kind: store.InboxHook, Payload: []byte(`{"hook":"after_teleport"}`)},
		"without a payload": {Kind: store.InboxTool, Payload: []byte(`not JSON`)},
	} {
		It("stays in the inbox: an item "+name+" that it does not know, while the thread goes on", func(ctx SpecContext) {
			counted := &acquires{Store: w.Store}
			e, _ := start(w, func(o *engine.Options) { o.Threads, o.SweepInterval = w.Over(counted), 20*time.Millisecond })
			id := makeThread(ctx, w, "a")
			Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: item})).To(Succeed())
			send(ctx, w, id, "hello")
			Eventually(func() []string { return told(ctx, w, id) }).Should(Equal([]string{"user: hello", "assistant: one"}))
			Eventually(inbox).WithArguments(ctx, id).Should(Equal([]string{string(item.Kind)}))
			Eventually(func() int { return testutil.CollectAndCount(e.NewerMetrics()) }).Should(Equal(1))
			Expect(testutil.ToFloat64(e.NewerMetrics())).To(Equal(1.0), "counted once")
			taken := counted.count.Load()
			Consistently(counted.count.Load, "300ms").Should(BeNumerically("<=", taken+1), "it is not taken again and again")
			send(ctx, w, id, "and now?")
			Eventually(func() []string { return told(ctx, w, id) }).Should(HaveLen(4))
			Expect(inbox(ctx, id)).To(Equal([]string{string(item.Kind)}))
		})
	}

	It("is continued by that release only: a run whose state needs it", func(ctx SpecContext) {
		counted := &acquires{Store: w.Store}
		id := makeThread(ctx, w, "a")
		newer := store.Run{ID: "r", Agent: "a", Status: store.RunRunning, State: []byte(`{"needs":99,"wormhole":{"to":"mars"}}`)}
		Expect(w.Store.Apply(ctx, id, nil, &store.PutRun{Run: newer})).To(Succeed())
		e, _ := start(w, func(o *engine.Options) { o.Threads, o.SweepInterval = w.Over(counted), 20*time.Millisecond })
		send(ctx, w, id, "hello")
		Eventually(func() int { return testutil.CollectAndCount(e.NewerMetrics()) }).Should(Equal(1))
		Expect(testutil.ToFloat64(e.NewerMetrics())).To(Equal(1.0))
		taken := counted.count.Load()
		Consistently(counted.count.Load, "300ms").Should(BeNumerically("<=", taken+1))
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunRunning), HaveField("State", MatchJSON(newer.State))))
		Expect(inbox(ctx, id)).To(Equal([]string{"message"}))
	})

	It("is kept: a field of a run's state that it does not know", func() {
		r := &store.Run{ID: "r", State: json.RawMessage(`{"input":"m1","wormhole":{"to":"mars"}}`)}
		s, err := runstate.Read(r)
		Expect(err).NotTo(HaveOccurred())
		s.Input, s.HookDepth = "m2", 3
		Expect(s.Encode()).To(MatchJSON(`{"input":"m2","hookDepth":3,"wormhole":{"to":"mars"}}`))
		s.Input, s.HookDepth = "", 0
		Expect(s.Encode()).To(MatchJSON(`{"wormhole":{"to":"mars"}}`))
	})
})
