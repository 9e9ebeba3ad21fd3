package app

import (
	"math"
	"runtime/debug"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The budget of memory", Label("K8S-12"), Serial, func() {
	// limited sets the memory limit of the process for the spec.
	limited := func(bytes int64) {
		was := debug.SetMemoryLimit(bytes)
		DeferCleanup(func() { debug.SetMemoryLimit(was) })
	}
	budget := func(flag string) (int64, error) {
		o := Defaults()
		o.MemoryBudget = flag
		return o.memoryBudget()
	}

	It("is a part of the memory limit", func() {
		limited(math.MaxInt64)
		Expect(budget("")).To(BeEquivalentTo(1 << 30))
		limited(10 << 30)
		Expect(budget("")).To(BeNumerically("~", 4608<<20, 1<<20))
		limited(200 << 20)
		Expect(budget("")).To(BeEquivalentTo(128<<20), "less than that is of no use")
	})

	DescribeTable("is what the flag says", func(flag string, want int64) {
		limited(10 << 30)
		Expect(budget(flag)).To(Equal(want))
	},
		Entry(nil, "400Mi", int64(400<<20)),
		Entry(nil, "128Mi", int64(128<<20)),
		Entry(nil, "0", int64(0)),
	)

	DescribeTable("refuses invalid values", func(flag string) {
		_, err := budget(flag)
		Expect(err).To(MatchError(ContainSubstring("--memory-budget=" + flag + ": give an amount of bytes such as 400Mi, at least 128Mi, or 0 for no limit")))
		o := Defaults()
		o.MemoryBudget = flag
		Expect(o.validate()).To(MatchError(ContainSubstring("--memory-budget")))
	},
		Entry(nil, "much"),
		Entry(nil, "-1"),
		Entry(nil, "127Mi"),
		Entry(nil, "45%"),
	)
})
