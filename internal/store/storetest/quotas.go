package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeQuotas(e *env) {
	Describe("quotas of namespaces", Label("K8S-11"), func() {
		limit := func(resource store.QuotaResource, hard int64) {
			e.store.LimitNamespaces(func(namespace string) store.Quotas {
				if namespace != "small" {
					return nil
				}
				return store.Quotas{resource: {Hard: hard, By: `ThreadQuota "team"`}}
			})
		}
		over := func(resource store.QuotaResource, hard int64) *store.NamespaceQuotaError {
			return &store.NamespaceQuotaError{Namespace: "small", Resource: resource, QuotaLimit: store.QuotaLimit{Hard: hard, By: `ThreadQuota "team"`}}
		}
		used := func(ctx SpecContext, resource store.QuotaResource) int64 {
			GinkgoHelper()
			use, err := e.store.QuotaUse(ctx, "small")
			Expect(err).NotTo(HaveOccurred())
			alone, err := e.store.QuotaUse(ctx, "small", resource)
			Expect(err).NotTo(HaveOccurred())
			Expect(alone).To(HaveKeyWithValue(resource, use[resource]))
			Expect(len(alone)).To(BeNumerically("<=", 2), "nothing else is read, but what is in the same row")
			return use[resource]
		}
		create := func(ctx SpecContext, namespace string, n int) error {
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: fmt.Sprintf("00000000-0000-4000-9000-%012d", n), Namespace: namespace, Name: fmt.Sprint("q-", n), Agent: "helper"})
			return err
		}

		It("bound the threads, however many are created at once", func(ctx SpecContext) {
			limit(store.QuotaThreads, 3)
			Expect(atOnce(over(store.QuotaThreads, 3), func(i int) error { return create(ctx, "small", i) })).To(BeEquivalentTo(3))
			Expect(used(ctx, store.QuotaThreads)).To(BeEquivalentTo(3))
			Expect(atOnce(nil, func(i int) error { return create(ctx, "other", 100+i) })).To(BeEquivalentTo(20), "another namespace has none")
			ids, _, err := e.store.Threads(ctx, store.ThreadQuery{Namespace: "small"})
			Expect(err).NotTo(HaveOccurred())
			var n int
			_, err = fmt.Sscanf(ids[0].Name, "q-%d", &n)
			Expect(err).NotTo(HaveOccurred())
			Expect(create(ctx, "small", n)).To(Succeed(), "a repeat needs no room")
			_, err = e.store.PurgeThread(ctx, ids[0].ID)
			Expect(err).NotTo(HaveOccurred())
			Expect(create(ctx, "small", 50)).To(Succeed(), "room was made")
			Expect(create(ctx, "small", 51)).To(MatchError(store.ErrQuota))
		})

		It("bound the bytes of all files", func(ctx SpecContext) {
			limit(store.QuotaBytes, 50)
			var threads []string
			for range 20 {
				threads = append(threads, e.threadIn(ctx, "small"))
			}
			put := func(thread string, n int) error {
				return e.store.Apply(ctx, thread, nil, putFile(fmt.Sprint("/", n), 10))
			}
			Expect(atOnce(over(store.QuotaBytes, 50), func(i int) error { return put(threads[i], i) })).To(BeEquivalentTo(5))
			Expect(used(ctx, store.QuotaBytes)).To(BeEquivalentTo(50))
			Expect(e.store.Apply(ctx, threads[0], nil, &store.PutFile{File: store.File{Path: "/folder", Dir: true}})).To(Succeed(), "a folder has no bytes")
			e.apply(ctx, e.threadIn(ctx, "other"), putFile("/a", 10))
			for _, id := range threads {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(used(ctx, store.QuotaBytes)).To(BeZero())
			Expect(put(e.threadIn(ctx, "small"), 1)).To(Succeed())
		})

		It("bound the threads that run, until their leases end", func(ctx SpecContext) {
			limit(store.QuotaRunningThreads, 3)
			var fences []*store.Fence
			for i := range 20 {
				f, err := e.store.Acquire(ctx, e.threadIn(ctx, "small"), fmt.Sprint("replica-", i%3), time.Minute)
				Expect(err).NotTo(HaveOccurred())
				fences = append(fences, f)
			}
			var mu sync.Mutex
			var running []*store.Fence
			start := func(f *store.Fence) error {
				err := e.store.CountRunning(ctx, f)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					running = append(running, f)
				}
				return err
			}
			Expect(atOnce(over(store.QuotaRunningThreads, 3), func(i int) error { return start(fences[i]) })).To(BeEquivalentTo(3))
			Expect(e.store.CountRunning(ctx, running[0])).To(Succeed(), "it counts once")
			Expect(used(ctx, store.QuotaRunningThreads)).To(BeEquivalentTo(3))
			free := slices.DeleteFunc(slices.Clone(fences), func(f *store.Fence) bool { return slices.Contains(running, f) })
			Expect(e.store.Release(ctx, running[0])).To(Succeed())
			Expect(used(ctx, store.QuotaRunningThreads)).To(BeEquivalentTo(2))
			again, err := e.store.Acquire(ctx, running[0].ThreadID, "replica", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(used(ctx, store.QuotaRunningThreads)).To(BeEquivalentTo(2), "a lease alone does not count")
			Expect(e.store.CountRunning(ctx, running[0])).To(MatchError(store.ErrFenced))
			Expect(e.store.CountRunning(ctx, free[0])).To(Succeed())
			Expect(e.store.CountRunning(ctx, again)).To(MatchError(store.ErrQuota))
			e.clock.Step(2 * time.Minute) // the holders are lost
			Expect(used(ctx, store.QuotaRunningThreads)).To(BeZero())
		})

		It("count what model calls use on a day, also of threads that were purged", func(ctx SpecContext) {
			limit(store.QuotaTokens, 100)
			id := e.threadIn(ctx, "small")
			run := func(id, usage string, status store.RunStatus) {
				GinkgoHelper()
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "helper", Status: status, Usage: json.RawMessage(usage)}})
			}
			run(id, ``, store.RunRunning)
			run(id, `{"inputTokens":10,"outputTokens":5,"cost":0.25}`, store.RunRunning)
			run(id, `{"inputTokens":10,"outputTokens":5,"cost":0.25}`, store.RunRunning)
			Expect(used(ctx, store.QuotaTokens)).To(BeEquivalentTo(15))
			e.reopen() // the store no longer remembers the run
			limit(store.QuotaTokens, 100)
			run(id, `{"inputTokens":30,"outputTokens":6,"cost":0.5}`, store.RunSucceeded)
			Expect(used(ctx, store.QuotaTokens)).To(BeEquivalentTo(36))
			Expect(used(ctx, store.QuotaCost)).To(BeEquivalentTo(500_000_000))
			e.apply(ctx, id, &store.AddTaskUsage{RunID: "sess_1", Task: "title", Agent: "helper", Usage: store.RunUsage{InputTokens: 4}})
			Expect(used(ctx, store.QuotaTokens)).To(BeEquivalentTo(40))
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(used(ctx, store.QuotaTokens)).To(BeEquivalentTo(40))
			run(e.threadIn(ctx, "other"), `{"inputTokens":10}`, store.RunRunning)
			e.clock.Step(24 * time.Hour)
			Expect(used(ctx, store.QuotaTokens)).To(BeZero(), "another day")
			e.clock.Step(24 * time.Hour)
			Expect(e.store.SweepQuotas(ctx)).To(Succeed())
		})

		It("keep room for objects that no cache shows yet", func(ctx SpecContext) {
			claim := func(i int, limit int64, count func([]string) int64) error {
				return e.store.ClaimQuota(ctx, store.QuotaClaim{Namespace: "small", Resource: store.QuotaEffects, Name: fmt.Sprint("effect-", i), Limit: store.QuotaLimit{Hard: limit, By: `ThreadQuota "team"`},
					TTL: time.Minute, Count: count})
			}
			unseen := func(claimed []string) int64 { return int64(len(claimed)) + 1 }
			Expect(atOnce(over(store.QuotaEffects, 4), func(i int) error { return claim(i, 4, unseen) })).To(BeEquivalentTo(3))
			var name string
			Expect(claim(30, 9, func(claimed []string) int64 { name = claimed[0]; return 0 })).To(Succeed())
			var n int
			_, err := fmt.Sscanf(name, "effect-%d", &n)
			Expect(err).NotTo(HaveOccurred())
			Expect(claim(n, 0, unseen)).To(Succeed(), "a repeat")
			Expect(e.store.ReleaseQuota(ctx, "small", store.QuotaEffects, name)).To(Succeed())
			Expect(claim(31, 5, unseen)).To(Succeed())
			var full *store.NamespaceQuotaError
			Expect(errors.As(claim(32, 5, unseen), &full)).To(BeTrue())
			e.clock.Step(time.Minute)
			Expect(claim(32, 2, unseen)).To(Succeed(), "claims end")
			Expect(e.store.SweepQuotas(ctx)).To(Succeed())
		})

		It("show what a thread waits for", func(ctx SpecContext) {
			id := e.threadIn(ctx, "small")
			before := e.info(ctx, id).Version
			e.apply(ctx, id, &store.AwaitQuota{Message: "room"})
			Expect(e.info(ctx, id).Waits).To(Equal("room"))
			e.apply(ctx, id, &store.AwaitQuota{Message: "room"})
			Expect(e.info(ctx, id).Version).To(Equal(before + 1))
			e.apply(ctx, id, &store.AwaitQuota{})
			Expect(e.info(ctx, id).Waits).To(BeEmpty())
		})
	})
}

// atOnce makes twenty calls at once and returns how many succeeded. The others must fail with the error.
func atOnce(expected error, call func(i int) error) int32 {
	GinkgoHelper()
	var done atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			defer GinkgoRecover()
			if err := call(i); err == nil {
				done.Add(1)
			} else {
				Expect(err).To(MatchError(expected))
			}
		})
	}
	group.Wait()
	return done.Load()
}
