package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/skein-dev/skein/internal/store"
)

func describePurge(e *env) {
	Describe("purging", Label("THR-09"), func() {
		It("removes all of a thread, nothing of another, and returns the freed objects", func(ctx SpecContext) {
			fill := func(own byte) string {
				return e.thread(ctx,
					putFile("/own", own),
					putFile("/d/shared", 9),
					&store.PutValue{Key: "k", Value: json.RawMessage(`1`)},
					&store.AppendMessage{Message: message("hi")},
					&store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning}},
					queued("q", "waits"))
			}
			gone, kept := fill(1), fill(2)
			for _, id := range []string{gone, kept} {
				recorded, err := e.store.RecordFiring(ctx, store.Firing{EffectID: id, Due: 1, ThreadID: id, Namespace: "default"})
				Expect(err).NotTo(HaveOccurred())
				Expect(recorded).To(BeTrue())
			}

			Expect(e.store.PurgeThread(ctx, gone)).To(Equal([]string{object(1)}))

			_, err := e.store.Thread(ctx, gone)
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Value(ctx, gone, "k")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.File(ctx, gone, "/own")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Firing(ctx, store.FiringKey{EffectID: gone, Due: 1, ThreadID: gone})
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Contents(ctx, digest(1))
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.Contents(ctx, digest(9))).To(Equal(object(9)))
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{kept}))
			Expect(e.texts(ctx, kept, store.MessageQuery{})).To(Equal([]string{"hi"}))
			_, err = e.store.Firing(ctx, store.FiringKey{EffectID: kept, Due: 1, ThreadID: kept})
			Expect(err).NotTo(HaveOccurred())

			Expect(e.store.PurgeThread(ctx, gone)).To(BeEmpty())
			Expect(e.store.PurgeThread(ctx, kept)).To(ConsistOf(object(2), object(9)))
		})

		It("creates no thread for an object that is deleted, and lets none adopt one", Label("K8S-05"), func(ctx SpecContext) {
			Expect(e.store.MarkedDeleted(ctx, "object")).To(BeFalse())
			Expect(e.store.MarkDeleted(ctx, "object", "object")).To(Succeed())
			Expect(e.store.MarkedDeleted(ctx, "object")).To(BeTrue())
			Expect(e.store.MarkDeleted(ctx, "object", "object", "subagent")).To(Succeed())
			Expect(e.store.MarkedDeleted(ctx, "subagent")).To(BeTrue())
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: "object", Namespace: "n", Agent: "a"})
			Expect(err).To(MatchError(store.ErrObjectDeleted))
			retained := e.thread(ctx)
			e.apply(ctx, retained, &store.Retain{})
			Expect(e.store.Apply(ctx, retained, nil, &store.Adopt{ObjectUID: "object", Name: "t", Agent: "a"})).To(MatchError(store.ErrObjectDeleted))
			e.apply(ctx, retained, &store.Adopt{ObjectUID: "another", Name: "t", Agent: "a"})

			e.clock.Step(time.Minute)
			Expect(e.store.MarkDeleted(ctx, "later", "later")).To(Succeed())
			Expect(e.store.SweepDeleted(ctx, e.now(), 10)).To(Equal(int64(2)))
			_, _, err = e.store.CreateThread(ctx, store.Thread{ID: "later", Namespace: "n", Agent: "a"})
			Expect(err).To(MatchError(store.ErrObjectDeleted))
		})

		It("stores no thread that is refused, until it is readmitted or a minute has passed", Label("K8S-11"), func(ctx SpecContext) {
			create := func(id string) error {
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
				return err
			}
			Expect(e.store.Refuse(ctx, "one")).To(BeTrue())
			Expect(e.store.Refuse(ctx, "two")).To(BeTrue())
			Expect(create("one")).To(MatchError(store.ErrObjectDeleted))
			Expect(e.store.MarkedDeleted(ctx, "one")).To(BeFalse())
			Expect(e.store.Readmit(ctx, "one")).To(Succeed())
			Expect(create("one")).To(Succeed())
			Expect(e.store.Refuse(ctx, "one")).To(BeFalse(), "it is stored")
			Expect(e.info(ctx, "one").Deleting).To(BeFalse())
			e.clock.Step(30 * time.Second)
			Expect(e.store.Refuse(ctx, "two")).To(BeTrue(), "a repeat begins anew")
			e.clock.Step(59 * time.Second)
			Expect(create("two")).To(MatchError(store.ErrObjectDeleted))
			e.clock.Step(2 * time.Second)
			Expect(create("two")).To(Succeed())
			Expect(e.store.MarkDeleted(ctx, "three", "three")).To(Succeed())
			Expect(e.store.Readmit(ctx, "three")).To(Succeed())
			Expect(create("three")).To(MatchError(store.ErrObjectDeleted), "its object is deleted")
		})

		It("lets no replica work on a thread whose object is deleted, until it is adopted by another", Label("K8S-05"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("q", "waits"), &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning}})
			f, err := e.store.Acquire(ctx, id, "me", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			notified := make(chan store.Notification, 100)
			defer e.store.Subscribe(func(n store.Notification) { notified <- n })()

			Expect(e.store.MarkDeleted(ctx, "another", id)).To(Succeed())
			Expect(e.store.Renew(ctx, f, time.Minute)).To(Succeed(), "the thread belongs to another object")
			Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed())
			Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed())

			Eventually(ctx, notified).Should(Receive(And(HaveField("ThreadID", id), HaveField("Changed", Satisfy(func(c store.Change) bool {
				return c&store.ChangedStop != 0 && c&store.ChangedThread != 0
			})))))
			Expect(e.store.Renew(ctx, f, time.Minute)).To(MatchError(store.ErrFenced))
			Expect(e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message("ghost")})).To(MatchError(store.ErrFenced))
			Expect(e.store.Release(ctx, f)).To(Succeed())
			_, err = e.store.Acquire(ctx, id, "me", time.Minute)
			Expect(err).To(MatchError(store.ErrObjectDeleted))
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			Expect(e.store.Apply(ctx, id, nil, queued("late", "late"))).To(MatchError(store.ErrTerminated))
			Expect(e.store.Apply(ctx, id, nil, &store.Continue{})).To(Succeed())
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			Expect(e.store.Thread(ctx, id)).To(HaveField("Deleting", true))
			Expect(e.store.Apply(ctx, id, nil, &store.ExpectActive{})).To(MatchError(store.ErrTerminated))
			Expect(e.store.Apply(ctx, id, nil, &store.ImportConversation{Lines: func(func(store.ImportLine, error) bool) {}})).To(MatchError(store.ErrTerminated))

			e.apply(ctx, id, &store.Retain{})
			Expect(e.store.Thread(ctx, id)).To(And(HaveField("Deleting", false), HaveField("RetainedAt", Not(BeZero()))))
			Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed())
			e.apply(ctx, id, &store.Adopt{ObjectUID: "next", Name: "t", Agent: "a"})
			Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed(), "a repeat for the object before")
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{id}))
			_, err = e.store.Acquire(ctx, id, "me", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.MarkDeleted(ctx, "next", id)).To(Succeed())
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			Expect(e.store.PurgeThread(ctx, id)).To(BeEmpty())
		})

		It("shows each thread that was created before its object was marked", Label("K8S-05"), func(ctx SpecContext) {
			var group errgroup.Group
			for i := range 50 {
				id := fmt.Sprintf("raced-%d", i)
				ready := make(chan struct{})
				group.Go(func() error {
					<-ready
					_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
					if errors.Is(err, store.ErrObjectDeleted) {
						err = nil
					}
					return err
				})
				group.Go(func() error {
					close(ready)
					if err := e.store.MarkDeleted(ctx, id, id); err != nil {
						return err
					}
					_, seen := e.store.Thread(ctx, id)
					_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
					if there := err == nil; there != (seen == nil) {
						return fmt.Errorf("thread %s: after the mark and later: %w", id, errors.Join(seen, err))
					}
					return nil
				})
			}
			Expect(group.Wait()).To(Succeed())
		})

		It("fences the current holder, also when the id is used again", func(ctx SpecContext) {
			id := e.thread(ctx)
			f, err := e.store.Acquire(ctx, id, "me", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			_, err = e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message("ghost")})).To(MatchError(store.ErrNotFound))

			e.clock.Step(time.Microsecond)
			_, created, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(BeTrue())
			_, err = e.store.Acquire(ctx, id, "me", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message("ghost")})).To(MatchError(store.ErrFenced))
		})

		It("removes a long conversation", func(ctx SpecContext) {
			id := e.thread(ctx)
			for i := range 30 {
				var ops []store.Op
				for j := range 100 {
					ops = append(ops, &store.AppendMessage{Message: message("m")}, &store.AppendEvent{Event: store.Event{Type: store.EventDelta}})
					key := queued("", "q")
					key.Item.Key = fmt.Sprint(i, "/", j)
					ops = append(ops, key)
				}
				e.apply(ctx, id, ops...)
			}
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			_, err = e.store.Events(ctx, id, 0, 0)
			Expect(err).To(MatchError(store.ErrNotFound))
			_, created, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(BeTrue())
			Expect(e.events(ctx, id)).To(BeEmpty())
			once := queued("", "q")
			once.Item.Key = "0/0"
			e.apply(ctx, id, once)
			Expect(once.Existed).To(BeFalse())
		})
	})
}

// digest returns a content address for tests.
func digest(n byte) string { return fmt.Sprintf("%064x", n) }
