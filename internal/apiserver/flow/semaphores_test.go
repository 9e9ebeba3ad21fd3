package flow_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

var _ = Describe("Semaphores", Label("K8S-12"), func() {
	It("refuse with 429 what finds the queue full or waits until its deadline, and nothing else", func(ctx SpecContext) {
		s := flow.NewSemaphores(1, 2, "requests of %q wait for a test")
		release, err := s.Acquire(ctx, "one")
		Expect(err).NotTo(HaveOccurred())

		late, stop := context.WithDeadline(ctx, time.Unix(0, 0))
		defer stop()
		_, err = s.Acquire(late, "one")
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("waited until its deadline")))
		gone, leave := context.WithCancel(ctx)
		leave()
		_, err = s.Acquire(gone, "one")
		Expect(err).To(MatchError(context.Canceled))

		waiting := make(chan func())
		go func() {
			defer GinkgoRecover()
			release, err := s.Acquire(ctx, "one")
			Expect(err).NotTo(HaveOccurred())
			waiting <- release
		}()
		Eventually(func() error {
			_, err := s.Acquire(gone, "one")
			return err
		}).Should(MatchError(ContainSubstring(`2 requests of "one" wait for a test: try again later`)))
		_, err = s.Acquire(ctx, "one")
		seconds, again := apierrors.SuggestsClientDelay(err)
		Expect(again).To(BeTrue())
		Expect(seconds).To(BeNumerically(">", 0))
		other, err := s.Acquire(ctx, "other")
		Expect(err).NotTo(HaveOccurred())
		other()

		release()
		Eventually(waiting).Should(Receive(&release))
		release()
		release, err = s.Acquire(ctx, "one")
		Expect(err).NotTo(HaveOccurred(), "no place is lost")
		release()
	})
})
