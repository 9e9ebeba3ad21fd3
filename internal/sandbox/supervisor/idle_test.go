//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("a supervisor that is asked whether it idles", Label("COD-09"), func() {
	var ctx context.Context
	BeforeEach(func() { ctx = within(60 * time.Second) })

	It("tells every connection of its thread, and counts from the end of what ran last", func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		one, two := s.Dial(GinkgoT(), "thread-a"), s.Dial(GinkgoT(), "thread-a")
		began := time.Now()
		idle, err := two.Idle(ctx)
		Expect(err).NotTo(HaveOccurred(), "it idles before it has a thread, too")
		e, release := holdRun(ctx, one)
		Expect(two.Idle(ctx)).To(BeZero(), "something runs, whoever started it")
		release()
		e.Wait(ctx)
		Eventually(ctx, func() (time.Duration, error) { return two.Idle(ctx) }).Should(And(
			BeNumerically(">", 0), BeNumerically("<", idle+time.Since(began))))
		first, err := two.Idle(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() (time.Duration, error) { return two.Idle(ctx) }).Should(BeNumerically(">", first))
		Expect(one.Close()).To(Succeed())
		_, err = one.Idle(ctx)
		Expect(err).To(HaveOccurred())
	})

	It("tells no other thread, and asking makes it nobody's", func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		_, err := s.Dial(GinkgoT(), "thread-b").Idle(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, release := holdRun(ctx, s.Dial(GinkgoT(), "thread-a"))
		defer release()
		_, err = s.Dial(GinkgoT(), "thread-b").Idle(ctx)
		Expect(err).To(MatchError(ContainSubstring("belongs to another thread")))
	})
})
