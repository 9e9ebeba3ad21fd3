//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

var _ = Describe("a child whose engine is broken", Label("COD-01", "COD-08"), func() {
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		if name == "do what it may" {
			continue
		}
		It("cannot "+name, func() {
			r := attack(name, time.Minute)
			Expect(r.Status).To(Equal(sandbox.StatusSuccess), "%v", r.Error)
			Expect(r.Value).To(SatisfyAny(
				Equal("EPERM"), Equal("ENOSYS"), ContainSubstring("operation not permitted"), ContainSubstring("function not implemented"),
			))
		})
	}

	It("can still do what an engine needs", func() {
		Expect(attack("do what it may", time.Minute).Value).To(Equal("fine"))
	})

	for _, name := range slices.Sorted(maps.Keys(forgeries)) {
		It("gets nowhere with "+name, func() {
			r := attack(name, 2*time.Second)
			Expect(r.Status).To(BeElementOf(sandbox.StatusTerminated, sandbox.StatusMemory))
			Expect(r.Value).To(BeNil())
			Expect(r.Error.Message).NotTo(BeEmpty())
			Expect(r.Retriable).To(BeFalse())
		})
	}
})

// attack runs code in a separate supervisor whose child does what a compromised engine might.
func attack(name string, wall time.Duration) sandbox.Result {
	GinkgoHelper()
	exe, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
		o.Child, o.Prefork = []string{exe, hostileArg, name}, 1
	})
	ctx := within(patience)
	hold := func(ctx context.Context, _ []any) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	r := s.Dial(GinkgoT(), "thread").RunCode(ctx, sandbox.CodeRequest{
		Source: "1", WallTime: wall, Globals: map[string]sandbox.Binding{"hold": {Func: hold}},
	}).Wait(ctx)
	Expect(ctx.Err()).NotTo(HaveOccurred(), "it ended because nobody waited any longer")
	if r.Error != nil {
		Expect(r.Error.Message).NotTo(ContainSubstring("did not stop"), "nobody stopped it: the client gave it up")
	}
	return r
}
