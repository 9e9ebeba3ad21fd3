package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/kubetest"
)

var _ = Describe("The object of a Thread that was refused", Label("K8S-11"), func() {
	It("is deleted as it was read, and stays when it has changed since", func(ctx SpecContext) {
		c := kubetest.Cluster(interceptor.Funcs{}, &skeinv1.Thread{ObjectMeta: kubetest.Meta("x")})
		port := kube.NewThreads(c, c)
		var read, now skeinv1.Thread
		key := client.ObjectKey{Namespace: kubetest.Namespace, Name: "x"}
		Expect(c.Get(ctx, key, &read)).To(Succeed())
		read.DeepCopyInto(&now)
		now.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonReady}}
		Expect(c.Status().Update(ctx, &now)).To(Succeed())
		Expect(port.RemoveRefused(ctx, &read)).To(Satisfy(apierrors.IsConflict))
		Expect(c.Get(ctx, key, &now)).To(Succeed())
		Expect(port.RemoveRefused(ctx, &now)).To(Succeed())
		Expect(c.Get(ctx, key, &read)).To(Satisfy(apierrors.IsNotFound))
		Expect(port.RemoveRefused(ctx, &now)).To(Succeed(), "a repeat")
	})
})
