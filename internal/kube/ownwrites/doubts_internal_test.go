package ownwrites

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
}

var _ = Describe("An object is doubtful", Label("K8S-05"), func() {
	It("once it was read without the wait for own writes, and others are not", func(ctx SpecContext) {
		inner := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod("p"), pod("q")).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if key.Name == "p" && !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
					<-ctx.Done()
					return fmt.Errorf("failed to wait for cache to catch up: %w", ctx.Err())
				}
				return c.Get(ctx, key, o)
			},
		})
		reader := New(inner, logr.Discard())
		reader.wait = 10 * time.Millisecond
		Expect(reader.Get(ctx, client.ObjectKeyFromObject(pod("q")), pod("q"))).To(Succeed())
		Expect(reader.Doubtful(pod("q"))).To(BeFalse())
		Expect(reader.Get(ctx, client.ObjectKeyFromObject(pod("p")), pod("p"))).To(Succeed())
		Expect(reader.Doubtful(pod("p"))).To(BeTrue())
		Expect(reader.Doubtful(pod("q"))).To(BeFalse())
		Expect(reader.Get(ctx, client.ObjectKeyFromObject(pod("q")), pod("q"))).To(Succeed())
		Expect(reader.Doubtful(pod("q"))).To(BeTrue(), "no read of the type waits at present")
	})

	resource := schema.GroupResource{Resource: "pods"}
	DescribeTable("when a write of it may have been stored although it failed", func(ctx SpecContext, failure error, doubtful bool) {
		funcs := interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return failure },
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return failure },
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return failure
			},
			SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
				return failure
			},
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				return failure
			},
		}
		for way, write := range map[string]func(client.Client, *corev1.Pod) error{
			"create":        func(c client.Client, o *corev1.Pod) error { return c.Create(ctx, o) },
			"update":        func(c client.Client, o *corev1.Pod) error { return c.Update(ctx, o) },
			"patch":         func(c client.Client, o *corev1.Pod) error { return c.Patch(ctx, o, client.MergeFrom(pod("p"))) },
			"status update": func(c client.Client, o *corev1.Pod) error { return c.Status().Update(ctx, o) },
			"status patch": func(c client.Client, o *corev1.Pod) error {
				return c.Status().Patch(ctx, o, client.MergeFrom(pod("p")))
			},
		} {
			writer := New(interceptor.NewClient(fake.NewClientBuilder().Build(), funcs), logr.Discard())
			err := write(writer, pod("p"))
			if failure == nil {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(failure))
			}
			Expect(writer.Doubtful(pod("p"))).To(Equal(doubtful), way)
		}
	},
		Entry("no answer came", errors.New("unexpected EOF"), true),
		Entry("the server could not finish", apierrors.NewTimeoutError("the request timed out", 1), true),
		Entry("not when it was refused", apierrors.NewConflict(resource, "p", errors.New("the object has been modified")), false),
		Entry("not when there is none", apierrors.NewNotFound(resource, "p"), false),
		Entry("not when it succeeded", nil, false),
	)

	It("for a while", func() {
		d := newDoubts(time.Hour)
		d.add("p")
		d.turned = d.turned.Add(-time.Hour)
		Expect(d.has("p")).To(BeTrue(), "one period later")
		d.turned = d.turned.Add(-time.Hour)
		Expect(d.has("p")).To(BeFalse(), "two periods later")
	})
})
