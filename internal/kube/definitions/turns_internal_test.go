package definitions

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
)

var _ = Describe("Compiling", Label("TOL-02"), func() {
	It("takes one source of a namespace at a time, and delays no other namespace", func(ctx SpecContext) {
		begun, end := make(chan string, 10), make(chan struct{})
		cache := newCodeCache(func(filename, _ string, _ sandbox.Language) (sandbox.Module, *sandbox.Error) {
			begun <- filename
			if filename == "hostile.ts" {
				<-end
			}
			return sandbox.Module{}, nil
		})
		done := make(chan string, 10)
		compile := func(namespace, filename string) {
			_, err := cache.get(codeOwner{namespace: namespace, name: filename}, "1", filename, "source", sandbox.TypeScript)
			Expect(err).NotTo(HaveOccurred())
			done <- filename
		}
		go compile("a", "hostile.ts")
		Eventually(ctx, begun).Should(Receive(Equal("hostile.ts")))
		go compile("a", "next.ts")
		for _, other := range []string{"b", "c"} {
			compile(other, other+".ts")
			Expect(begun).To(Receive(Equal(other + ".ts")))
			Expect(done).To(Receive(Equal(other + ".ts")))
		}
		Expect(begun).NotTo(Receive(), "the namespace's own sources wait")
		close(end)
		Eventually(ctx, begun).Should(Receive(Equal("next.ts")))
		Eventually(ctx, done).Should(Receive(Equal("hostile.ts")))
		Eventually(ctx, done).Should(Receive(Equal("next.ts")))
		Expect(cache.turns.locks).To(BeEmpty())
	})
})
