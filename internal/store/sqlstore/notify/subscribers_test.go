package notify

import (
	"fmt"
	"sync/atomic"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func TestNotify(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Notifications of the store")
}

var _ = Describe("a notification", Label("EVT-02"), func() {
	It("calls the subscribers of its thread only, and all of them when anything may have changed", func() {
		var s Subscribers
		calls := map[string]int{}
		count := func(name string) func(store.Notification) {
			return func(store.Notification) { calls[name]++ }
		}
		defer s.Subscribe(count("all"))()
		stop := s.SubscribeThread("a", count("a1"))
		defer s.SubscribeThread("a", count("a2"))()
		defer s.SubscribeThread("b", count("b"))()
		s.Send([]store.Notification{{ThreadID: "a", Changed: store.ChangedLog}, {ThreadID: "c"}, {EffectID: "e"}})
		Expect(calls).To(Equal(map[string]int{"all": 3, "a1": 1, "a2": 1}))
		stop()
		stop() // a second time changes nothing
		s.Send([]store.Notification{{Changed: store.ChangedLog}})
		Expect(calls).To(Equal(map[string]int{"all": 4, "a1": 1, "a2": 2, "b": 1}))
	})

	It("leaves nothing of a thread whose subscribers have ended", func() {
		var s Subscribers
		for i := range 20 {
			s.SubscribeThread(fmt.Sprint(i%5), func(store.Notification) {})()
		}
		s.threads.Range(func(id, _ any) bool { Fail(fmt.Sprint("left: ", id)); return false })
	})
})

// BenchmarkSend measures a notification that one subscriber hears, beside subscribers of other threads. Its time must
// not depend on their number.
func BenchmarkSend(b *testing.B) {
	for _, others := range []int{0, 1_000, 100_000} {
		b.Run(fmt.Sprintf("%d others", others), func(b *testing.B) {
			var s Subscribers
			var heard atomic.Int64
			for i := range others {
				s.SubscribeThread(fmt.Sprint("other", i), func(store.Notification) { heard.Add(1) })
			}
			s.SubscribeThread("a", func(store.Notification) { heard.Add(1) })
			about := []store.Notification{{ThreadID: "a", Changed: store.ChangedLog}}
			for b.Loop() {
				s.Send(about)
			}
			if heard.Load() != int64(b.N) {
				b.Fatalf("%d notifications were heard, not %d", heard.Load(), b.N)
			}
		})
	}
}
