package storetest

import (
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeKVService(e *env) {
	Describe("the key-value service", Label("STA-07"), func() {
		It("keeps values by namespace and store, until they expire", func(ctx SpecContext) {
			named := func(name string) store.Namespace { return store.Namespace{Name: name} }
			put := func(ns, s, key, value string, expires int64) {
				GinkgoHelper()
				Expect(e.store.SetKV(ctx, named(ns), s, store.KVEntry{Key: key, Value: json.RawMessage(value), ExpiresAt: expires})).To(Succeed())
			}
			keys := func(q store.KeyQuery) []string {
				GinkgoHelper()
				page, err := e.store.KVKeys(ctx, named("ns"), "s", q)
				Expect(err).NotTo(HaveOccurred())
				return page.Keys
			}
			put("ns", "s", "a", `1`, 0)
			put("ns", "s", "b/c", `2`, e.now()+time.Second.Microseconds())
			put("ns", "s2", "a", `3`, 0)
			put("ns2", "s", "a", `4`, 0)
			put("ns", "s", "a", `{"x":1}`, 0)
			got, err := e.store.GetKV(ctx, named("ns"), "s", "a")
			Expect(err).NotTo(HaveOccurred())
			Expect(got.Value).To(MatchJSON(`{"x":1}`))
			Expect(keys(store.KeyQuery{})).To(Equal([]string{"a", "b/c"}))
			Expect(keys(store.KeyQuery{Prefix: "b"})).To(Equal([]string{"b/c"}))
			Expect(keys(store.KeyQuery{After: "a"})).To(Equal([]string{"b/c"}))
			page, err := e.store.KVKeys(ctx, named("ns"), "s", store.KeyQuery{Limit: 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(page).To(HaveValue(And(HaveField("Keys", []string{"a"}), HaveField("HasMore", true))))
			e.clock.Step(time.Second)
			_, err = e.store.GetKV(ctx, named("ns"), "s", "b/c")
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(keys(store.KeyQuery{})).To(Equal([]string{"a"}))
			Expect(e.store.DeleteKV(ctx, named("ns"), "s", "b/c")).To(BeFalse(), "it has expired")
			put("ns", "s", "b", `2`, e.now()+1)
			e.clock.Step(time.Second)
			removed, more, err := e.store.SweepSession(ctx, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(more).To(BeFalse())
			Expect(removed).To(BeEquivalentTo(1))
			Expect(e.store.DeleteKV(ctx, named("ns"), "s", "a")).To(BeTrue())
			Expect(e.store.DeleteKV(ctx, named("ns"), "s", "a")).To(BeFalse())
			_, err = e.store.GetKV(ctx, named("ns2"), "s", "a")
			Expect(err).NotTo(HaveOccurred())
		})

		It("keeps the values of a namespace from a later one of the same name", func(ctx SpecContext) {
			unknown, first, second := store.Namespace{Name: "n"}, store.Namespace{Name: "n", UID: "uid-1"}, store.Namespace{Name: "n", UID: "uid-2"}
			put := func(ns store.Namespace, key, value string) {
				GinkgoHelper()
				Expect(e.store.SetKV(ctx, ns, "s", store.KVEntry{Key: key, Value: json.RawMessage(value)})).To(Succeed())
			}
			has := func(ns store.Namespace) (all []string) {
				GinkgoHelper()
				page, err := e.store.KVKeys(ctx, ns, "s", store.KeyQuery{})
				Expect(err).NotTo(HaveOccurred())
				for _, key := range []string{"a", "b", "c", "d"} {
					got, err := e.store.GetKV(ctx, ns, "s", key)
					if errors.Is(err, store.ErrNotFound) {
						continue
					}
					Expect(err).NotTo(HaveOccurred())
					Expect(page.Keys).To(ContainElement(key))
					all = append(all, key+"="+string(got.Value))
				}
				Expect(page.Keys).To(HaveLen(len(all)))
				return all
			}
			put(unknown, "a", `0`)
			put(first, "b", `1`)
			put(first, "c", `1`)
			put(second, "d", `2`)
			Expect(has(first)).To(Equal([]string{"a=0", "b=1", "c=1"}))
			Expect(has(second)).To(Equal([]string{"a=0", "d=2"}), "a value without a namespace UID is visible in each namespace of the name")
			Expect(has(unknown)).To(Equal([]string{"a=0", "b=1", "c=1", "d=2"}))
			Expect(e.store.DeleteKV(ctx, second, "s", "b")).To(BeFalse())
			Expect(has(first)).To(ContainElement("b=1"))
			put(second, "b", `2`)
			Expect(has(first)).To(Equal([]string{"a=0", "c=1"}))
			Expect(has(second)).To(Equal([]string{"a=0", "b=2", "d=2"}))
			put(second, "a", `2`)
			Expect(has(first)).To(Equal([]string{"c=1"}), "a value that is written again has an owner from then on")
			Expect(e.store.DeleteKV(ctx, first, "s", "c")).To(BeTrue())
			Expect(has(unknown)).To(Equal([]string{"a=2", "b=2", "d=2"}))
		})
	})

	Describe("keys of a thread's values", Label("KVS-01"), func() {
		It("are listed in order, by page and prefix", func(ctx SpecContext) {
			id := e.thread(ctx)
			for _, k := range []string{"b", "a/2", "a/1", "é"} {
				e.apply(ctx, id, &store.PutValue{Key: k, Value: json.RawMessage(`1`)})
			}
			page, err := e.store.ValueKeys(ctx, id, store.KeyQuery{Limit: 3})
			Expect(err).NotTo(HaveOccurred())
			Expect(*page).To(Equal(store.KeyPage{Keys: []string{"a/1", "a/2", "b"}, HasMore: true}))
			page, err = e.store.ValueKeys(ctx, id, store.KeyQuery{After: "b"})
			Expect(err).NotTo(HaveOccurred())
			Expect(*page).To(Equal(store.KeyPage{Keys: []string{"é"}}))
			page, err = e.store.ValueKeys(ctx, id, store.KeyQuery{Prefix: "a/"})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Keys).To(Equal([]string{"a/1", "a/2"}))
			_, err = e.store.ValueKeys(ctx, "none", store.KeyQuery{})
			Expect(err).To(MatchError(store.ErrNotFound))
		})
	})
}
