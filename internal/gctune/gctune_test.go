package gctune

import (
	"runtime"
	"runtime/debug"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestGarbageCollector(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Garbage collector")
}

var _ = Describe("The garbage collector", func() {
	DescribeTable("is set by what is in use",
		func(live, others uint64, percent int) { Expect(gcPercent(live, others)).To(Equal(percent)) },
		Entry("of an empty heap", uint64(0), uint64(0), 1200),
		Entry("of a small heap: 48 MiB of garbage", uint64(16<<20), uint64(0), 300),
		Entry("of a small heap beside many stacks: 48 MiB of garbage", uint64(16<<20), uint64(80<<20), 50),
		Entry("of a middling heap: as much garbage as is in use", uint64(100<<20), uint64(0), 100),
		Entry("of a large heap: 128 MiB of garbage", uint64(256<<20), uint64(0), 50),
		Entry("of a heap that is larger still: a share of it", uint64(4<<30), uint64(0), 40),
	)

	It("is set again after each collection", func() {
		DeferCleanup(debug.SetGCPercent, debug.SetGCPercent(100))
		c := &collector{}
		c.watch()
		for range 2 {
			c.percent.Store(1) // far from what any heap asks for
			Eventually(func() int64 {
				runtime.GC()
				return c.percent.Load()
			}).Should(BeNumerically(">=", leastGCPercent))
		}
	})
})
