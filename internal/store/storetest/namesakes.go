package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/owners"
)

// describeNamesakes describes what goes by the name of a namespace when another namespace has had the name before.
func describeNamesakes(e *env) {
	const agent = "helper"
	// threadOf creates a thread in a namespace.
	threadOf := func(ctx context.Context, ns store.Namespace, id, parent string) string {
		GinkgoHelper()
		_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: ns.Name, NamespaceUID: ns.UID, Name: id, Agent: agent, ParentID: parent, Reference: id})
		Expect(err).NotTo(HaveOccurred())
		return id
	}
	ran := func(ctx context.Context, thread string, tokens int) {
		GinkgoHelper()
		r := store.Run{ID: "sess_" + thread, Agent: agent, Status: store.RunRunning, StartedAt: e.now()}
		e.apply(ctx, thread, &store.PutRun{Run: r})
		r.Status, r.EndedAt, r.Usage = store.RunSucceeded, e.now(), fmt.Appendf(nil, `{"inputTokens":%d}`, tokens)
		e.apply(ctx, thread, &store.PutRun{Run: r})
	}
	purge := func(ctx context.Context, thread string) {
		GinkgoHelper()
		_, err := e.store.PurgeThread(ctx, thread)
		Expect(err).NotTo(HaveOccurred())
	}
	used := func(ctx context.Context, ns store.Namespace) string {
		GinkgoHelper()
		u, err := e.store.Usage(ctx, store.UsageQuery{Namespace: ns.Name, NamespaceUID: ns.UID})
		Expect(err).NotTo(HaveOccurred())
		of, err := e.store.Usage(ctx, store.UsageQuery{Namespace: ns.Name, NamespaceUID: ns.UID, Agent: agent})
		Expect(err).NotTo(HaveOccurred())
		Expect(of).To(Equal(u))
		return fmt.Sprintf("%d in %d", u.InputTokens, u.Threads)
	}
	anyone, first, second := store.Namespace{Name: "door"}, store.Namespace{Name: "door", UID: "uid-1"}, store.Namespace{Name: "door", UID: "uid-2"}

	Describe("namespaces of one name", func() {
		It("have sums of usage of their own, also of threads that are gone", Label("LOG-03"), func(ctx SpecContext) {
			ran(ctx, threadOf(ctx, anyone, "unknown", ""), 1)
			root := threadOf(ctx, first, "first", "")
			ran(ctx, root, 10)
			child := threadOf(ctx, first, "child", root)
			ran(ctx, child, 100)
			kept := threadOf(ctx, first, "kept", "")
			ran(ctx, kept, 1000)
			Expect(used(ctx, first)).To(Equal("1111 in 4"))
			Expect(used(ctx, second)).To(Equal("1 in 1"))
			purge(ctx, child)
			purge(ctx, root)
			Expect(used(ctx, first)).To(Equal("1111 in 4"), "what threads used that are gone")
			Expect(used(ctx, second)).To(Equal("1 in 1"))
			ran(ctx, threadOf(ctx, second, "second", ""), 10_000)
			ran(ctx, threadOf(ctx, second, "stays", ""), 100_000)
			purge(ctx, "second")
			purge(ctx, kept) // after the namespace is gone, as of retained data that is old
			for range 2 {
				Expect(used(ctx, first)).To(Equal("1111 in 4"))
				Expect(used(ctx, second)).To(Equal("110001 in 3"))
				Expect(used(ctx, anyone)).To(Equal("111111 in 6"))
				purge(ctx, "unknown")
			}
		})

		It("are found, given rows that had no owner, and lose them, some at a time", Label("STA-07", "LOG-03"), func(ctx SpecContext) {
			Expect(e.store.Cluster(ctx)).To(BeEmpty())
			for _, uid := range []string{"c1", "c2"} {
				Expect(e.store.SetCluster(ctx, uid)).To(Succeed())
				Expect(e.store.Cluster(ctx)).To(Equal(uid))
			}
			put := func(ns store.Namespace, n int) {
				GinkgoHelper()
				for i := range n {
					Expect(e.store.SetKV(ctx, ns, "s", store.KVEntry{Key: fmt.Sprint(ns.UID, i), Value: json.RawMessage(`1`)})).To(Succeed())
				}
			}
			defer func(n int64) { owners.Slice = n }(owners.Slice)
			owners.Slice = 2
			all := func(step func() (int64, error)) (sum int64) {
				GinkgoHelper()
				for {
					n, err := step()
					Expect(err).NotTo(HaveOccurred())
					Expect(n).To(BeNumerically("<=", owners.Slice))
					if sum += n; n == 0 {
						return sum
					}
				}
			}
			put(anyone, 3)
			put(first, 3)
			put(store.Namespace{Name: "other", UID: "uid-3"}, 1)
			ran(ctx, threadOf(ctx, anyone, "unknown", ""), 1)
			ran(ctx, threadOf(ctx, first, "first", ""), 10)
			kept := threadOf(ctx, anyone, "kept", "")
			e.apply(ctx, kept, &store.Retain{})
			Expect(e.store.Owners(ctx)).To(ConsistOf(anyone, first, store.Namespace{Name: "other", UID: "uid-3"}))
			Expect(all(func() (int64, error) { return e.store.RemoveRows(ctx, anyone) })).To(BeZero(), "their owner is not known")

			Expect(all(func() (int64, error) { return e.store.GiveRows(ctx, anyone, second.UID) })).To(BeEquivalentTo(3 + 1 + 1))
			Expect(e.info(ctx, "unknown").NamespaceUID).To(Equal(second.UID))
			Expect(e.info(ctx, "first").NamespaceUID).To(Equal(first.UID))
			Expect(e.info(ctx, kept).NamespaceUID).To(BeEmpty(), "retained data that any namespace may adopt stays so")
			Expect(used(ctx, second)).To(Equal("1 in 1"))
			Expect(e.store.Owners(ctx)).To(ConsistOf(second, first, store.Namespace{Name: "other", UID: "uid-3"}))

			Expect(all(func() (int64, error) { return e.store.RemoveRows(ctx, first) })).To(BeEquivalentTo(3 + 1))
			Expect(used(ctx, first)).To(Equal("0 in 0"))
			Expect(e.store.KVKeys(ctx, anyone, "s", store.KeyQuery{})).To(HaveField("Keys", HaveLen(3)))
			Expect(e.store.KVKeys(ctx, second, "s", store.KeyQuery{})).To(HaveField("Keys", HaveLen(3)))
			Expect(e.store.KVKeys(ctx, store.Namespace{Name: "other"}, "s", store.KeyQuery{})).To(HaveField("Keys", HaveLen(1)))

			Expect(all(func() (int64, error) { return e.store.GiveRows(ctx, second, "") })).To(BeEquivalentTo(3 + 1))
			Expect(e.store.Owners(ctx)).To(ConsistOf(anyone, store.Namespace{Name: "other", UID: "uid-3"}))
		})

		It("of another cluster are found in the order of their use, and their threads given away, some at a time", Label("THR-09"), func(ctx SpecContext) {
			defer func(n int64) { owners.Slice = n }(owners.Slice)
			owners.Slice = 2
			at := func(ns store.Namespace, ids ...string) {
				GinkgoHelper()
				for _, id := range ids {
					e.clock.Step(time.Second)
					threadOf(ctx, ns, id, "")
				}
			}
			at(second, "old")
			at(first, "a", "b", "c", "kept")
			e.apply(ctx, "kept", &store.Retain{NamespaceUID: first.UID})
			at(store.Namespace{Name: "only-retained", UID: "uid-3"}, "gone")
			e.apply(ctx, "gone", &store.Retain{NamespaceUID: "uid-3"})
			at(anyone, "unknown")
			Expect(e.store.FormerOwners(ctx)).To(Equal([]store.Namespace{second, first}))
			e.clock.Step(time.Second)
			Expect(e.store.SetKV(ctx, second, "s", store.KVEntry{Key: "k", Value: json.RawMessage(`1`)})).To(Succeed())
			Expect(e.store.FormerOwners(ctx)).To(Equal([]store.Namespace{first, second}))

			for _, n := range []int64{2, 1, 0} {
				Expect(e.store.GiveThreads(ctx, first, "uid-9", false)).To(Equal(n))
			}
			Expect(e.info(ctx, "a").NamespaceUID).To(Equal("uid-9"))
			Expect(e.info(ctx, "kept").NamespaceUID).To(Equal(first.UID))
			for _, n := range []int64{1, 0} {
				Expect(e.store.GiveThreads(ctx, first, "", true)).To(Equal(n))
			}
			Expect(e.info(ctx, "kept").NamespaceUID).To(BeEmpty())
			Expect(e.store.GiveThreads(ctx, anyone, "uid-9", true)).To(BeZero(), "retained data that any namespace may adopt stays so")
		})

		It("have lifecycle events of their own", Label("STA-06"), func(ctx SpecContext) {
			purge(ctx, threadOf(ctx, first, "first", ""))
			threadOf(ctx, second, "second", "")
			threadOf(ctx, anyone, "unknown", "")
			read := func(ns store.Namespace) (all []string) {
				GinkgoHelper()
				Eventually(func() bool { // an earlier transaction may still be in progress
					page, err := e.store.Lifecycle(ctx, store.LifecycleQuery{Namespace: ns.Name, NamespaceUID: ns.UID})
					Expect(err).NotTo(HaveOccurred())
					all = nil
					for _, ev := range page.Events {
						all = append(all, ev.ThreadName+" "+ev.Type)
					}
					return page.InFlight
				}).Should(BeFalse())
				return all
			}
			Expect(read(first)).To(Equal([]string{"first thread.created", "first thread.destroyed", "unknown thread.created"}))
			Expect(read(second)).To(Equal([]string{"second thread.created", "unknown thread.created"}))
			Expect(read(anyone)).To(HaveLen(4))
			Expect(read(store.Namespace{})).To(HaveLen(4), "all namespaces")
		})
	})
}

// describeNamesake describes the backup of a namespace whose name others have had.
func (b *backups) describeNamesake() {
	It("has nothing of an earlier namespace of the same name, and belongs to the namespace that it is restored into", func(ctx SpecContext) {
		anyone, first, second := store.Namespace{Name: "default"}, store.Namespace{Name: "default", UID: "uid-1"}, store.Namespace{Name: "default", UID: "uid-2"}
		put := func(s store.Store, ns store.Namespace, key string) {
			GinkgoHelper()
			Expect(s.SetKV(ctx, ns, "s", store.KVEntry{Key: key, Value: fmt.Appendf(nil, "%q", key+" of "+ns.UID)})).To(Succeed())
		}
		kept := func(id, uid string) {
			GinkgoHelper()
			_, _, err := b.source.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "default", NamespaceUID: uid, Name: id, Agent: "helper"}, putFile("/"+id, byte(len(id))))
			Expect(err).NotTo(HaveOccurred())
			run := store.Run{ID: "sess_" + id, Agent: "helper", Status: store.RunSucceeded, Usage: json.RawMessage(`{"inputTokens":1}`)}
			b.source.apply(ctx, id, &store.PutRun{Run: run})
			b.source.apply(ctx, id, &store.Retain{NamespaceUID: uid})
		}
		put(b.source.store, anyone, "unknown")
		put(b.source.store, first, "earlier")
		put(b.source.store, second, "new")
		kept("earlier-thread", first.UID)
		kept("new", second.UID)
		b.source.threadIn(ctx, "default")
		c := b.readOf(ctx, &b.source, second)
		Expect(c.sum.Rows).To(And(HaveKeyWithValue("kv_service", BeEquivalentTo(2)), HaveKeyWithValue("thread", BeEquivalentTo(2)), HaveKeyWithValue("usage_sum", BeEquivalentTo(1))))
		Expect(c.sum.Contents).To(HaveLen(1))
		for _, r := range c.rows {
			Expect(string(r.Data)).NotTo(ContainSubstring("earlier"))
		}
		Expect(b.read(ctx, &b.source, "default").sum.Rows).To(HaveKeyWithValue("thread", BeEquivalentTo(3)), "a caller that names one that is gone gets all")

		target := b.target.store
		put(target, store.Namespace{Name: "default", UID: "uid-0"}, "new") // is to be removed
		b.restore.NamespaceUID = "uid-3"
		b.send(ctx, c)
		b.finish(ctx, c)
		third := store.Namespace{Name: "default", UID: "uid-3"}
		for _, key := range []string{"unknown", "new"} {
			v, err := target.GetKV(ctx, third, "s", key)
			Expect(err).NotTo(HaveOccurred(), key)
			Expect(string(v.Value)).NotTo(ContainSubstring("uid-0"))
			_, err = target.GetKV(ctx, first, "s", key)
			Expect(errors.Is(err, store.ErrNotFound)).To(BeTrue(), key)
		}
		Expect(target.Usage(ctx, store.UsageQuery{Namespace: "default", NamespaceUID: third.UID})).To(HaveField("InputTokens", BeEquivalentTo(1)))
		Expect(target.Usage(ctx, store.UsageQuery{Namespace: "default", NamespaceUID: first.UID})).To(HaveField("InputTokens", BeZero()))
		Expect(b.target.info(ctx, "new").Within("uid-4")).To(BeFalse())
	})
}
