package pgsuite

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

func text(id string) *store.AppendMessage {
	return &store.AppendMessage{Message: &store.Message{ID: id, Role: store.RoleUser, Content: &id}}
}

// noticeable is longer than a notification takes.
const noticeable = 100 * time.Millisecond

var _ = Describe("An unreachable PostgreSQL", func() {
	It("makes calls fail as unavailable, loses no acknowledged write, and is used again when it is back", func(ctx SpecContext) {
		own, err := pgtest.Start(ctx, pgtest.Options{Durable: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(own.Stop()).To(Succeed()) })
		name, err := own.NewDatabase(ctx, "")
		Expect(err).NotTo(HaveOccurred())
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: own.URL(name)})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		for round := range 3 {
			id := fmt.Sprint("t", round)
			_, _, err = s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			var mu sync.Mutex
			var kept []string
			var wg sync.WaitGroup
			var refused atomic.Int64
			for w := range 8 {
				wg.Go(func() {
					defer GinkgoRecover()
					for n := 0; refused.Load() < 16; n++ {
						m := fmt.Sprintf("%d-%d-%d", round, w, n)
						if err := s.Apply(ctx, id, nil, text(m)); err != nil {
							Expect(err).To(MatchError(store.ErrUnavailable))
							refused.Add(1)
							continue
						}
						mu.Lock()
						kept = append(kept, m)
						mu.Unlock()
					}
				})
			}
			Eventually(func() int { mu.Lock(); defer mu.Unlock(); return len(kept) }).Should(BeNumerically(">", 50))
			Expect(own.Down()).To(Succeed())
			wg.Wait()
			_, err = s.Thread(ctx, id)
			Expect(err).To(MatchError(store.ErrUnavailable))
			Expect(s.Ping(ctx)).To(MatchError(store.ErrUnavailable))

			Expect(own.Up(ctx)).To(Succeed())
			Eventually(ctx, func() error { return s.Ping(ctx) }).Should(Succeed())
			for _, m := range kept {
				_, err := s.Message(ctx, id, m)
				Expect(err).NotTo(HaveOccurred())
			}
			t, err := s.Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			page, err := s.Messages(ctx, id, store.MessageQuery{Limit: 100_000})
			Expect(err).NotTo(HaveOccurred())
			Expect(int64(len(page.Messages))).To(Equal(t.Messages))
		}
	})

	It("is reported at startup without the password", func(ctx SpecContext) {
		_, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: "postgres://skein:hunter2@127.0.0.1:1/none"})
		Expect(err).To(MatchError(store.ErrUnavailable))
		Expect(err.Error()).To(ContainSubstring("127.0.0.1"))
		Expect(err.Error()).NotTo(ContainSubstring("hunter2"))
	})
})

var _ = Describe("Replicas of one PostgreSQL database", Label("K8S-05"), func() {
	open := func(ctx SpecContext, d database) store.Store {
		s, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		return s
	}

	It("write to the same threads at once without losing or repeating a write", func(ctx SpecContext) {
		d := newDatabase(ctx)
		replicas := []store.Store{open(ctx, d), open(ctx, d), open(ctx, d)}
		const threads, writers, each = 3, 4, 40
		for i := range threads {
			_, _, err := replicas[0].CreateThread(ctx, store.Thread{ID: fmt.Sprint("t", i), Namespace: "n", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
		}
		var wg sync.WaitGroup
		for r, s := range replicas {
			for w := range writers {
				wg.Go(func() {
					defer GinkgoRecover()
					for n := range each {
						id, to := fmt.Sprint("t", (n+w)%threads), fmt.Sprint("t", (n+w+1)%threads)
						key := fmt.Sprintf("%d-%d-%d", r, w, n)
						Expect(s.Apply(ctx, id, nil, text(key), text("same-"+fmt.Sprint(n)),
							&store.Enqueue{To: to, Item: store.InboxItem{Key: key, Kind: store.InboxResume}})).To(Succeed())
					}
				})
			}
		}
		wg.Wait()
		var messages, items int
		for i := range threads {
			id := fmt.Sprint("t", i)
			t, err := replicas[1].Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			page, err := replicas[2].Messages(ctx, id, store.MessageQuery{Limit: 10_000, Order: "asc"})
			Expect(err).NotTo(HaveOccurred())
			Expect(int64(len(page.Messages))).To(Equal(t.Messages))
			seqs := map[int64]bool{}
			for _, m := range page.Messages {
				Expect(seqs[m.Seq]).To(BeFalse())
				seqs[m.Seq] = true
			}
			waiting, err := replicas[0].Inbox(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			messages += len(page.Messages)
			items += len(waiting)
		}
		Expect(messages).To(Equal(len(replicas)*writers*each+threads*each), "each key once, and each shared id once a thread")
		Expect(items).To(Equal(len(replicas) * writers * each))
	})

	It("receive notifications of each other's commits, and after a lost connection one that anything may have changed", func(ctx SpecContext) {
		d := newDatabase(ctx)
		here, there := open(ctx, d), open(ctx, d)
		heard := make(chan store.Notification, 1000)
		stop := there.Subscribe(func(h store.Notification) { heard <- h })
		DeferCleanup(stop)
		_, _, err := here.CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		tells := func() (h store.Notification) { // notifications from before it listened may be lost
			Expect(here.Apply(ctx, "t", nil, &store.AppendEvent{Event: store.Event{Type: "event:x"}})).To(Succeed())
			select {
			case h = <-heard:
			case <-time.After(noticeable):
			}
			return h
		}
		Eventually(tells).Should(Equal(store.Notification{ThreadID: "t", Changed: store.ChangedLog, Remote: true}))
		for len(heard) > 0 { // drop what was reported more than once
			<-heard
		}
		Expect(server.Disconnect(ctx, d.name)).To(Succeed())
		Eventually(heard).Should(Receive(Equal(store.Notification{
			Changed: store.ChangedThread | store.ChangedInbox | store.ChangedLog | store.ChangedFiring | store.ChangedStop | store.ChangedTasks | store.ChangedDelivery, Remote: true,
		})))
		Eventually(ctx, func() error { return here.Apply(ctx, "t", nil, text("m")) }).Should(Succeed())
		Eventually(heard).Should(Receive(Equal(store.Notification{ThreadID: "t", Changed: store.ChangedLog, Remote: true})))
	})

	It("lease a thread to one of many that ask at once", func(ctx SpecContext) {
		d := newDatabase(ctx)
		all := []store.Store{open(ctx, d), open(ctx, d), open(ctx, d)}
		_, _, err := all[0].CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		var got atomic.Int64
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				defer GinkgoRecover()
				_, err := all[i%3].Acquire(ctx, "t", fmt.Sprint(i), time.Minute)
				if err == nil {
					got.Add(1)
					return
				}
				Expect(err).To(MatchError(store.ErrLeaseHeld))
			})
		}
		wg.Wait()
		Expect(got.Load()).To(Equal(int64(1)))
	})
})
