package kube_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("The object of a context handoff", Label("REL-03"), func() {
	It("is found by a repeat before the cache has it", func(ctx SpecContext) {
		empty, c := kubetest.Cluster(interceptor.Funcs{}), kubetest.Cluster(interceptor.Funcs{})
		behind := interceptor.NewClient(c, interceptor.Funcs{Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return empty.Get(ctx, key, o, opts...)
		}})
		port := kube.NewThreads(behind, c)
		t := &store.Thread{ID: "66666666-2222-4333-8444-555555555555", Namespace: kubetest.Namespace, Name: "x", Agent: "worker"}
		Expect(port.Declare(ctx, t, "call_1")).To(Succeed())
		Expect(port.Declare(ctx, t, "resumed")).To(Succeed())
	})

	It("is refused by a webhook that answers that it exists", func(ctx SpecContext) {
		c := kubetest.Cluster(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonAlreadyExists, Message: `admission webhook "no.example.com" denied the request: no`}}
		}})
		t := &store.Thread{ID: "66666666-2222-4333-8444-555555555555", Namespace: kubetest.Namespace, Name: "x", Agent: "worker"}
		err := kube.NewThreads(c, c).Declare(ctx, t, "call_1")
		Expect(thread.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("denied the request: no")))
	})
})
