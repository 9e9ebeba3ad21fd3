package ownwrites

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestOwnWrites(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "own writes")
}

var _ = Describe("A client that reads its own writes", Label("K8S-05"), func() {
	var (
		waits  int
		stuck  bool
		reader *Client
	)
	BeforeEach(func() {
		waits, stuck = 0, true
		wait := func(ctx context.Context, disabled bool) error {
			if disabled {
				return nil
			}
			waits++
			if !stuck {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("failed to wait for cache to catch up: %w", ctx.Err())
		}
		inner := interceptor.NewClient(fake.NewClientBuilder().WithObjects(&corev1.Pod{}).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := wait(ctx, (&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency); err != nil {
					return err
				}
				return c.Get(ctx, key, o)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if err := wait(ctx, (&client.ListOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency); err != nil {
					return err
				}
				return c.List(ctx, l)
			},
		})
		reader = New(inner, logr.Discard())
		reader.wait = 10 * time.Millisecond
	})

	It("reads what the cache has when that never shows a write, and does not wait again for a while", func(ctx SpecContext) {
		var pods corev1.PodList
		Expect(reader.List(ctx, &pods)).To(Succeed())
		Expect(reader.List(ctx, &pods)).To(Succeed())
		Expect(waits).To(Equal(1))
		Expect(reader.Get(ctx, client.ObjectKey{Namespace: "n", Name: "p"}, &corev1.Pod{})).To(Satisfy(apierrors.IsNotFound))
		Expect(waits).To(Equal(2), "another read waits for itself")
	})

	It("waits again later", func(ctx SpecContext) {
		reader.rest = 0
		var pods corev1.PodList
		Expect(reader.List(ctx, &pods)).To(Succeed())
		stuck = false
		Expect(reader.List(ctx, &pods)).To(Succeed())
		Expect(waits).To(Equal(2))
	})

	It("ends with the caller", func(ctx SpecContext) {
		ended, end := context.WithCancel(ctx)
		end()
		Expect(reader.List(ended, &corev1.PodList{})).To(MatchError(context.Canceled))
	})
})
