package code

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestCode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "code tools")
}

var _ = Describe("Each method of state", Label("THR-05"), func() {
	It("has an action, so that a terminated thread accepts or refuses it", func() {
		served := slices.Concat(slices.Collect(maps.Keys(methods)), slices.Collect(maps.Keys(internalMethods)))
		Expect(slices.Collect(maps.Keys(actions))).To(ConsistOf(served), "decide in lifeactions.go what a new method does to its thread")
	})
})
