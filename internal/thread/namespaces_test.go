package thread_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("What goes by the name of a namespace", Label("STA-07", "K8S-10"), func() {
	var e *env
	var uids map[string]string // of the namespaces in the cluster
	var away map[string]bool   // namespaces that cannot be read
	errAway := errors.New("connection refused")

	put := func(ctx context.Context, ns store.Namespace, key string) {
		GinkgoHelper()
		Expect(e.store.SetKV(ctx, ns, "s", store.KVEntry{Key: key, Value: json.RawMessage(`1`)})).To(Succeed())
	}
	sweep := func(ctx context.Context) int64 {
		GinkgoHelper()
		removed, err := e.ReconcileOwners(ctx)
		Expect(err).NotTo(HaveOccurred())
		return removed
	}
	owners := func(ctx context.Context) []store.Namespace {
		GinkgoHelper()
		all, err := e.store.Owners(ctx)
		Expect(err).NotTo(HaveOccurred())
		return all
	}
	named := func(name, uid string) store.Namespace { return store.Namespace{Name: name, UID: uid} }

	BeforeEach(func(ctx SpecContext) {
		e = newEnv(ctx)
		uids, away = map[string]string{"kube-system": "cluster-1", "door": "uid-2"}, map[string]bool{}
		e.ServeNamespaces(func(_ context.Context, name string) (string, error) {
			if away[name] {
				return "", errAway
			}
			return uids[name], nil
		})
		put(ctx, named("door", ""), "of an earlier release")
		put(ctx, named("door", "uid-1"), "of a deleted namespace")
		put(ctx, named("door", "uid-2"), "mine")
		put(ctx, named("gone", "uid-3"), "of a name that is free")
		put(ctx, named("free", ""), "of an earlier release")
	})

	It("is removed with the namespace, and unowned values go to the namespace of that name", func(ctx SpecContext) {
		for _, removed := range []int64{2, 0} {
			Expect(sweep(ctx)).To(Equal(removed))
			Expect(owners(ctx)).To(ConsistOf(named("door", "uid-2"), named("free", "")))
		}
		Expect(e.KV(named("door", "")).Keys(ctx, "s", store.KeyQuery{})).To(HaveField("Keys", []string{"mine", "of an earlier release"}))
	})

	It("stays while the API server is away, and when the cluster is unknown", func(ctx SpecContext) {
		old := map[string]store.Namespace{"kube-system": named("door", "uid-1"), "door": named("door", "uid-1"), "gone": named("gone", "uid-3")}
		for _, name := range []string{"kube-system", "gone", "door"} {
			put(ctx, old[name], "once more")
			away = map[string]bool{name: true}
			_, err := e.ReconcileOwners(ctx)
			Expect(err).To(MatchError(errAway))
			Expect(owners(ctx)).To(ContainElement(old[name]), name)
		}
		_, err := e.KV(named("door", "")).Get(ctx, "s", "mine")
		Expect(err).To(MatchError(store.ErrUnavailable), "nobody knows whose values to show")
		Expect(e.KV(named("door", "uid-2")).Get(ctx, "s", "mine")).To(HaveField("Exists", true), "of a thread, whose namespace is known")
		away = nil
		delete(uids, "kube-system")
		_, err = e.ReconcileOwners(ctx)
		Expect(err).To(MatchError(ContainSubstring("there is no namespace kube-system")))
		Expect(owners(ctx)).To(ContainElement(old["door"]))
	})

	It("goes by the name again after the cluster was made anew", func(ctx SpecContext) {
		Expect(sweep(ctx)).To(BeEquivalentTo(2))
		uids = map[string]string{"kube-system": "cluster-2"}
		Expect(sweep(ctx)).To(BeZero(), "no namespace is there yet")
		uids["door"] = "uid-9"
		Expect(sweep(ctx)).To(BeZero())
		Expect(owners(ctx)).To(ConsistOf(named("door", "uid-9"), named("free", "")))
		Expect(e.KV(named("door", "")).Get(ctx, "s", "mine")).To(HaveField("Exists", true))
	})

	Context("of threads, when the cluster was made anew", Label("THR-09"), func() {
		create := func(ctx context.Context, id, uid string, ops ...store.Op) {
			GinkgoHelper()
			e.clock.Step(time.Second)
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "door", NamespaceUID: uid, Name: id, Agent: "helper"})
			Expect(err).NotTo(HaveOccurred())
			if len(ops) > 0 {
				Expect(e.store.Apply(ctx, id, nil, ops...)).To(Succeed())
			}
		}
		owner := func(ctx context.Context, id string) string {
			GinkgoHelper()
			t, err := e.store.Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			return t.NamespaceUID
		}
		BeforeEach(func(ctx SpecContext) {
			create(ctx, "earlier", "uid-1", &store.Retain{NamespaceUID: "uid-1"})
			create(ctx, "lost", "uid-1") // its finalizer was removed by hand
			create(ctx, "kept", "uid-2", &store.Retain{NamespaceUID: "uid-2"})
			create(ctx, "living", "uid-2")
			Expect(sweep(ctx)).To(BeEquivalentTo(2))
		})

		It("goes to the namespace of the name, but for data that was retained in an earlier one", func(ctx SpecContext) {
			uids = map[string]string{"kube-system": "cluster-2", "door": "uid-9"}
			create(ctx, "new", "uid-9") // before the leader has looked
			away = map[string]bool{"door": true}
			_, err := e.ReconcileOwners(ctx)
			Expect(err).To(MatchError(errAway))
			Expect(owner(ctx, "kept")).To(Equal("uid-2"))
			away = nil
			for range 2 {
				Expect(sweep(ctx)).To(BeZero())
				for _, id := range []string{"kept", "living", "lost", "new"} {
					Expect(owner(ctx, id)).To(Equal("uid-9"), id)
				}
				Expect(owner(ctx, "earlier")).To(Equal("uid-1"))
			}
			adopt := &store.Adopt{ObjectUID: "object", NamespaceUID: "uid-9", Name: "again", Agent: "helper"}
			Expect(e.store.Apply(ctx, "earlier", nil, adopt)).To(MatchError(store.ErrNotRetained))
			Expect(e.store.Apply(ctx, "kept", nil, adopt)).To(Succeed())
		})

		It("waits for a namespace of the name", func(ctx SpecContext) {
			uids = map[string]string{"kube-system": "cluster-2"}
			Expect(sweep(ctx)).To(BeZero())
			Expect(owner(ctx, "kept")).To(BeEmpty())
			Expect(owner(ctx, "earlier")).To(Equal("uid-1"))
			uids["door"] = "uid-9"
			Expect(sweep(ctx)).To(BeZero())
			Expect(owner(ctx, "living")).To(Equal("uid-9"))
			adopt := &store.Adopt{ObjectUID: "object", NamespaceUID: "uid-9", Name: "again", Agent: "helper"}
			Expect(e.store.Apply(ctx, "kept", nil, adopt)).To(Succeed())
		})
	})
})
