package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
)

var _ = Describe("The Thread of a delivery", Label("EVT-05"), func() {
	It("is created once, and a foreign Thread of its name is never used", func(ctx SpecContext) {
		c := kubetest.Cluster(interceptor.Funcs{})
		port := kube.NewThreads(c, c)
		r := &definitions.Receiver{Namespace: kubetest.Namespace, Name: "orders", UID: "1", Agent: "worker"}
		name, err := port.CreateReceivedThread(ctx, r, "d-1")
		Expect(err).NotTo(HaveOccurred())
		Expect(port.CreateReceivedThread(ctx, r, "d-1")).To(Equal(name))
		other := *r
		other.Name = "others"
		var o skeinv1.Thread
		Expect(c.Get(ctx, client.ObjectKey{Namespace: kubetest.Namespace, Name: name}, &o)).To(Succeed())
		o.Labels[skeinv1.LabelReceiver] = other.Name
		Expect(c.Update(ctx, &o)).To(Succeed())
		_, err = port.CreateReceivedThread(ctx, r, "d-1")
		Expect(err).To(And(MatchError(kube.ErrOtherThread), MatchError(ContainSubstring("receiver"))))
	})
})
