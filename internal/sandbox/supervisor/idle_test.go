//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("a supervisor that is asked whether it idles", Label("COD-09"), func() {
	var ctx context.Context
	BeforeEach(func() { ctx = within(2 * patience) })

	It("tells every connection of its thread the time since the last run ended", func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		one, two := s.Dial(GinkgoT(), "thread-a"), s.Dial(GinkgoT(), "thread-a")
		Expect(two.Idle(ctx)).Error().NotTo(HaveOccurred(), "it idles before it has a thread, too")
		e, release := holdRun(ctx, one)
		Expect(two.Idle(ctx)).To(BeZero(), "something runs, whoever started it")
		ended := time.Now()
		release()
		e.Wait(ctx)
		Eventually(ctx, func(g Gomega) {
			idle, err := two.Idle(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(idle).To(BeNumerically(">", 0))
			Expect(idle).To(BeNumerically("<=", time.Since(ended)), "it counts from the end")
		}, patience).Should(Succeed())
		first, err := two.Idle(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() (time.Duration, error) { return two.Idle(ctx) }, patience).Should(BeNumerically(">", first))
		Expect(one.Close()).To(Succeed())
		_, err = one.Idle(ctx)
		Expect(err).To(HaveOccurred())
	})

	It("starts nothing more after it agreed to be deleted", func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		first, two := s.Dial(GinkgoT(), "thread"), s.Dial(GinkgoT(), "thread")
		e, release := holdRun(ctx, first)
		Expect(two.Retire(ctx, 0, time.Minute)).To(BeZero())
		release()
		e.Wait(ctx)
		Eventually(ctx, func() (time.Duration, error) { return two.Idle(ctx) }, patience).Should(BeNumerically(">", 0))
		Expect(two.Retire(ctx, time.Hour, time.Minute)).To(BeNumerically("<", time.Hour))
		Expect(first.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status).To(Equal(sandbox.StatusSuccess), "it has not idled for so long")

		_, err := s.Dial(GinkgoT(), "another").Retire(ctx, 0, time.Minute)
		Expect(err).To(MatchError(ContainSubstring("belongs to another thread")))
		Eventually(ctx, func() (time.Duration, error) { return two.Retire(ctx, time.Millisecond, 2*time.Minute) }, patience).Should(BeNumerically(">", 0))
		r := first.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx)
		Expect(r.Error).To(HaveField("Message", ContainSubstring("about to be deleted")))
		Expect(r.Retriable).To(BeTrue(), "in another one")
		_, err = first.OpenIsolate(ctx, sandbox.IsolateRequest{})
		var gone *sandbox.IsolateGoneError
		Expect(errors.As(err, &gone)).To(BeTrue(), "%v", err)
		Expect(gone.Started).To(BeFalse())
		Expect(two.Idle(ctx)).To(BeNumerically(">", 0), "it can be asked again")
	})

	It("runs code again when it is not deleted in time", func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		c := s.Dial(GinkgoT(), "thread")
		Eventually(ctx, func() (time.Duration, error) { return c.Retire(ctx, 0, 50*time.Millisecond) }, patience).Should(BeNumerically(">", 0))
		Eventually(ctx, func() sandbox.Status {
			return c.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status
		}, patience).Should(Equal(sandbox.StatusSuccess))
	})

	It("answers no thread but its own, and is not claimed by the question", func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		_, err := s.Dial(GinkgoT(), "thread-b").Idle(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, release := holdRun(ctx, s.Dial(GinkgoT(), "thread-a"))
		defer release()
		_, err = s.Dial(GinkgoT(), "thread-b").Idle(ctx)
		Expect(err).To(MatchError(ContainSubstring("belongs to another thread")))
	})
})
