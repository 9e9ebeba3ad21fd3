package storetest

import (
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// listener collects notifications.
type listener struct {
	mu   sync.Mutex
	seen map[string]store.Change
}

func listen(s store.Store) (l *listener, stop func()) {
	l = &listener{seen: map[string]store.Change{}}
	return l, s.Subscribe(l.hear)
}

func (l *listener) hear(h store.Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[h.ThreadID] |= h.Changed
}

// take returns what was reported about a thread since the last take.
func (l *listener) take(id string) store.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.seen[id]
	delete(l.seen, id)
	return c
}

func describeNotifications(e *env) {
	Describe("notifications", func() {
		It("say what a commit has changed", func(ctx SpecContext) {
			l, stop := listen(e.store)
			DeferCleanup(stop)
			id, other := e.thread(ctx), e.thread(ctx)
			heard := func(of string, want store.Change) {
				GinkgoHelper()
				var got store.Change
				Eventually(func() store.Change { got |= l.take(of); return got & want }).Should(Equal(want))
			}
			heard(id, store.ChangedAtWork)
			e.say(ctx, id, "m")
			heard(id, store.ChangedLog)
			to := queued("q", "go")
			to.To = other
			e.apply(ctx, id, to)
			heard(other, store.ChangedInbox)
			e.apply(ctx, id, &store.Enqueue{To: other, Item: store.InboxItem{Kind: store.InboxStop}})
			heard(other, store.ChangedInbox|store.ChangedStop)
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning}})
			heard(id, store.ChangedAtWork)
			e.apply(ctx, id, &store.Terminate{Reason: "x"})
			heard(id, store.ChangedThread)
			_, err := e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 1, ThreadID: id, Namespace: "default"})
			Expect(err).NotTo(HaveOccurred())
			heard(id, store.ChangedFiring)
		})

		It("tell what a thread does at work from what ends, and from changes of its record", Label("K8S-07"), func(ctx SpecContext) {
			l, stop := listen(e.store)
			DeferCleanup(stop)
			id := e.thread(ctx)
			heard := func(want store.Change) {
				GinkgoHelper()
				Eventually(func() store.Change { return l.take(id) & store.ChangedThread }).Should(Equal(want))
			}
			heard(store.ChangedAtWork)
			for _, status := range []store.RunStatus{store.RunRunning, store.RunWaiting, store.RunRunning} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: status}})
				heard(store.ChangedAtWork)
			}
			thinks, title := "thinks", "Plan"
			e.apply(ctx, id, &store.UpdateThread{RegistryStatus: &thinks})
			heard(store.ChangedAtWork)
			e.apply(ctx, id, &store.UpdateThread{RegistryStatus: &title, Title: &title})
			heard(store.ChangedThread)
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded}})
			heard(store.ChangedThread)
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "s", Status: store.RunRunning}}, &store.Terminate{Reason: "x"})
			heard(store.ChangedThread)
		})

		It("name the effect whose firings have changed, and do not speak of everything", Label("EFF-04"), func(ctx SpecContext) {
			type notices chan store.Notification
			hear := func(s store.Store) notices {
				heard := make(notices, 1000)
				DeferCleanup(s.Subscribe(func(h store.Notification) {
					if h.Changed&store.ChangedFiring != 0 && !h.Everything() {
						heard <- h
					}
				}))
				return heard
			}
			hearers := map[notices]bool{hear(e.store): false}
			if !e.backend.Exclusive() { // another replica
				other, err := e.backend.Open(e.clock)
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(other.Close)
				listening := make(chan struct{}, 100)
				DeferCleanup(other.Subscribe(func(h store.Notification) {
					if h.Everything() {
						listening <- struct{}{}
					}
				}))
				Eventually(listening).Should(Receive(), "it says so when it begins to listen")
				hearers[hear(other)] = true
			}
			changes := func(effect, thread string, change func() error) {
				GinkgoHelper()
				Expect(change()).To(Succeed())
				for heard, remote := range hearers {
					Eventually(heard).Should(Receive(Equal(store.Notification{EffectID: effect, ThreadID: thread, Changed: store.ChangedFiring, Remote: remote})))
				}
			}
			record := func(f store.Firing) func() error {
				return func() error { _, err := e.store.RecordFiring(ctx, f); return err }
			}
			plain, of := store.Firing{EffectID: "e", Due: 1}, store.Firing{EffectID: "e", Due: 1, ThreadID: "t"}
			changes("e", "", record(plain))
			changes("e", "t", record(of))
			changes("s", "t", func() error {
				return e.store.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "s"}, Firings: []store.Firing{{EffectID: "s", Due: 1, ThreadID: "t"}}})
			})
			claimed, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"": 10})
			Expect(err).NotTo(HaveOccurred())
			Expect(claimed).To(HaveLen(3))
			changes(store.AnyEffect, "", func() error { return e.store.ReleaseFirings(ctx, "a") })
			_, err = e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"": 10})
			Expect(err).NotTo(HaveOccurred())
			changes("e", "t", func() error {
				return e.store.WaitFiring(ctx, store.FiringClaim{Key: of.Key(), Epoch: 3}, "", "the pool is full")
			})
			changes("e", "", func() error {
				return e.store.FinishFiring(ctx, store.FiringEnd{Key: plain.Key(), Epoch: 3, Status: store.FiringFailed})
			})
			changes("e", "t", func() error { _, err := e.store.CancelFirings(ctx, "no", of.Key()); return err })
			changes("e", "", func() error { return e.store.ForgetEffect(ctx, "e") })
		})

		It("report waiting work when a lease is released", func(ctx SpecContext) {
			id := e.thread(ctx)
			f, err := e.store.Acquire(ctx, id, "a", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			e.apply(ctx, id, queued("q", "came meanwhile"))
			l, stop := listen(e.store)
			DeferCleanup(stop)
			Expect(e.store.Release(ctx, f)).To(Succeed())
			Eventually(func() store.Change { return l.take(id) & store.ChangedInbox }).Should(Equal(store.ChangedInbox))
		})

		It("of a thread reach its own subscribers, and not those of other threads", Label("EVT-02"), func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			var mine, twin, others listener
			subscribe := func(l *listener, id string) (stop func()) {
				l.seen = map[string]store.Change{}
				return e.store.SubscribeThread(id, l.hear)
			}
			stop := subscribe(&mine, id)
			DeferCleanup(subscribe(&twin, id))
			DeferCleanup(subscribe(&others, other))
			e.say(ctx, id, "m")
			Eventually(func() store.Change { return mine.take(id) & store.ChangedLog }).Should(Equal(store.ChangedLog))
			Eventually(func() store.Change { return twin.take(id) & store.ChangedLog }).Should(Equal(store.ChangedLog))
			stop()
			e.say(ctx, id, "n")
			e.say(ctx, other, "n")
			Eventually(func() store.Change { return twin.take(id) & store.ChangedLog }).Should(Equal(store.ChangedLog), "its twin has ended")
			Eventually(func() store.Change { return others.take(other) & store.ChangedLog }).Should(Equal(store.ChangedLog))
			Expect(mine.take(id)).To(BeZero(), "it has ended")
			Expect(others.take(id)).To(BeZero(), "it is about another thread")
		})

		It("are not sent for failed transactions, and stop with their subscription", func(ctx SpecContext) {
			id := e.thread(ctx)
			l, stop := listen(e.store)
			Expect(e.store.Apply(ctx, id, nil, &store.AppendMessage{Message: message("x")}, &store.RemoveFile{Path: "/none"})).NotTo(Succeed())
			other, stopOther := listen(e.store)
			DeferCleanup(stopOther)
			stop()
			e.say(ctx, id, "heard by the other only")
			Eventually(func() store.Change { return other.take(id) }).Should(Equal(store.ChangedLog))
			Expect(l.take(id)).To(BeZero())
		})
	})
}
