package storetest

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeFiringSearches(e *env) {
	Describe("firings that are due", Label("EFF-04"), func() {
		It("are shared among namespaces", func(ctx SpecContext) {
			in := func(due int64, namespace string) {
				GinkgoHelper()
				e.fires(ctx, due, func(f *store.Firing) { f.Namespace = namespace })
				e.clock.Step(time.Second)
			}
			for due := range int64(9) {
				in(due, "many")
			}
			in(9, "few")
			in(10, "few")
			e.fires(ctx, 11, func(f *store.Firing) { f.Namespace, f.AvailableAt = "later", e.now()+time.Hour.Microseconds() })
			found, err := e.store.DueFirings(ctx, "", 5)
			Expect(err).NotTo(HaveOccurred())
			Expect(found.Due).To(HaveExactElements(
				And(HaveField("Namespace", "many"), HaveField("Count", 5)), And(HaveField("Namespace", "few"), HaveField("Count", 2))))
			Expect(found.All).To(BeTrue())
			Expect(found.Next).To(Equal(time.Hour), "of the one that comes later")
			Expect(e.store.PendingFirings(ctx)).To(Equal(map[string]int64{"many": 9, "few": 2, "later": 1}))
			claimed, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"many": 2, "few": 5, "later": 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(claimed).To(ConsistOf(HaveField("Due", int64(0)), HaveField("Due", int64(1)), HaveField("Due", int64(9)), HaveField("Due", int64(10))))
			found, err = e.store.DueFirings(ctx, "", 100)
			Expect(err).NotTo(HaveOccurred())
			Expect(found.Due).To(ConsistOf(And(HaveField("Namespace", "many"), HaveField("Count", 7))))
			Expect(found.Next).To(Equal(time.Minute), "until the claims expire")
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: claimed[0].Key(), Epoch: 1, Status: store.FiringSucceeded})).To(Succeed())
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: claimed[1].Key(), Epoch: 1, Status: store.FiringSucceeded})).To(Succeed())
			Expect(e.store.PendingFirings(ctx)).To(Equal(map[string]int64{"many": 9, "later": 1}))
			Expect(e.store.ClaimFirings(ctx, "a", time.Minute, nil)).To(BeEmpty())
		})

		It("are found in each of many namespaces, the oldest first", func(ctx SpecContext) {
			const namespaces = 30
			var want []store.DueFirings
			due := int64(0)
			in := func(namespace string, n int, change func(*store.Firing)) {
				GinkgoHelper()
				for range n {
					due++
					e.fires(ctx, due, func(f *store.Firing) { f.Namespace = namespace; change(f) })
				}
			}
			for i := range namespaces {
				name := fmt.Sprint("n-", i*7%namespaces) // in another order than that of the names
				in(name, i%4+1, func(*store.Firing) {})
				want = append(want, store.DueFirings{Namespace: name, Count: min(i%4+1, 3), Oldest: e.now()})
				e.clock.Step(time.Second)
			}
			in("later", 2, func(f *store.Firing) { f.AvailableAt = e.now() + time.Hour.Microseconds() })
			in("queued", 2, func(f *store.Firing) { f.Status = store.FiringQueued })
			Expect(e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{want[4].Namespace: 1, want[5].Namespace: 1})).To(HaveLen(2))
			want[5].Count = 1
			want = slices.Delete(want, 4, 5)
			Expect(e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{want[0].Namespace: 1})).To(HaveLen(1))
			in(want[0].Namespace, 1, func(*store.Firing) {})
			want = append(want[1:], store.DueFirings{Namespace: want[0].Namespace, Count: 1, Oldest: e.now()})
			got, err := e.store.DueFirings(ctx, "", 3)
			Expect(err).NotTo(HaveOccurred())
			Expect(got).To(Equal(&store.DueSearch{Due: want, All: true, Next: time.Minute}))
		})

		It("are found in a hundred namespaces at a time, and always where the oldest are", func(ctx SpecContext) {
			const namespaces, each = 250, 2
			name := func(i int) string { return fmt.Sprintf("n-%03d", i) }
			for round := range int64(each) { // the oldest are in the last namespaces
				for i := namespaces - 1; i >= 0; i-- {
					Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: name(i), Due: round, Namespace: name(i), Name: "e", Effect: "e"})).To(BeTrue())
					e.clock.Step(time.Millisecond)
				}
			}
			seen := map[string]bool{}
			for from, looks := "", 1; ; looks++ {
				found, err := e.store.DueFirings(ctx, from, 3)
				Expect(err).NotTo(HaveOccurred())
				Expect(found.All).To(BeFalse())
				Expect(len(found.Due)).To(BeNumerically("<=", 100+64))
				Expect(found.Due[0].Namespace).To(Equal(name(namespaces-1)), "in each of them")
				for _, d := range found.Due {
					seen[d.Namespace] = true
				}
				if from = found.From; from == "" {
					Expect(looks).To(Equal(3))
					break
				}
			}
			Expect(seen).To(HaveLen(namespaces))
		})

		It("are all found while few are due, beside namespaces that wait", func(ctx SpecContext) {
			for i := range 250 {
				e.fires(ctx, int64(i), func(f *store.Firing) {
					f.Namespace, f.AvailableAt = fmt.Sprint("later-", i), e.now()+time.Hour.Microseconds()
				})
			}
			e.fires(ctx, 1000, func(f *store.Firing) { f.Namespace = "z" })
			now := e.now()
			for _, from := range []string{"", "later-1", "zz"} {
				found, err := e.store.DueFirings(ctx, from, 3)
				Expect(err).NotTo(HaveOccurred())
				Expect(found).To(Equal(&store.DueSearch{Due: []store.DueFirings{{Namespace: "z", Count: 1, Oldest: now}}, From: from, All: true, Next: time.Hour}))
			}
		})
	})
}
