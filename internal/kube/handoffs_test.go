package kube_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/store"
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
})
