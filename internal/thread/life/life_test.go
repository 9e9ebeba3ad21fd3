package life_test

import (
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/life"
)

func TestLife(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Life of threads")
}

var _ = Describe("The table of accepted actions", Label("THR-05"), func() {
	all := []life.Action{life.Read, life.Say, life.Work, life.Keep, life.Notify, life.Relate, life.Branch, life.Arrange, life.Remove, life.End, life.Acquire, life.Release}

	DescribeTable("refuses by state",
		func(t store.Thread, state string, want error, taken ...life.Action) {
			Expect(life.Of(&t).String()).To(Equal(state))
			for _, a := range all {
				err := life.Check(&t, a)
				if want == nil || slices.Contains(taken, a) {
					Expect(err).NotTo(HaveOccurred(), string(a))
				} else {
					Expect(err).To(MatchError(want), string(a))
				}
				Expect(life.Allows(life.Of(&t), a)).To(Equal(err == nil), string(a))
			}
		},
		Entry("nothing of an active thread", store.Thread{}, "active", nil),
		Entry("nothing of an archived one", store.Thread{ArchivedAt: 1}, "archived", nil),
		Entry("nothing of one that was destroyed", store.Thread{DestroyedAt: 1, ArchivedAt: 1}, "destroyed", nil),
		Entry("all new work of a terminated one", store.Thread{TerminatedAt: 1, DestroyedAt: 1, ArchivedAt: 1}, "terminated", store.ErrTerminated,
			life.Read, life.Branch, life.Arrange, life.Remove, life.End, life.Acquire, life.Release),
		Entry("all but reading of a retained one", store.Thread{RetainedAt: 1, TerminatedAt: 1}, "retained", store.ErrRetained, life.Read, life.Release),
	)

	It("refuses an action without a row", func() {
		Expect(life.Check(&store.Thread{}, "dance")).To(MatchError(ContainSubstring("dance")))
	})
})
