package aggregation

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/apiserver/serving"
)

// registration are the specs of how the API server reaches us. The last ones make it reach another server.
func registration() {
	It("keeps what is there, and mends what is broken", func(ctx SpecContext) {
		first := env.Server.CABundle()
		again, err := serving.Ensure(ctx, env.Admin, env.Serving)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.CABundle()).To(Equal(first))
		svc := apiService(ctx)
		Expect(svc.Spec.CABundle).To(Equal(first))
		before := svc.DeepCopy()
		svc.Spec.CABundle = nil
		svc.Spec.InsecureSkipTLSVerify = true
		Expect(env.Client.Patch(ctx, svc, client.MergeFrom(before))).To(Succeed(), "the API server may write its status meanwhile")
		_, err = serving.Ensure(ctx, env.Admin, env.Serving)
		Expect(err).NotTo(HaveOccurred())
		Expect(apiService(ctx).Spec).To(And(HaveField("CABundle", first), HaveField("InsecureSkipTLSVerify", false)))
	})

	It("leaves an installation in the cluster alone", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Client.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "skein-runtime-api"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "skein"}, Ports: []corev1.ServicePort{{Port: 443}},
		}})).To(Succeed())
		_, err = serving.Ensure(ctx, env.Admin, serving.Options{Namespace: ns, External: env.Addr})
		Expect(err).To(MatchError(ContainSubstring("remove that installation first")))
	})

	It("names an endpoint when it is not on loopback, and goes back", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) {
			_, err := serving.Ensure(ctx, env.Admin, env.Serving)
			Expect(err).NotTo(HaveOccurred())
			Expect(serving.WaitAvailable(ctx, env.Admin)).To(Succeed())
		}, NodeTimeout(patience))
		elsewhere := serving.Options{External: &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 8444}}
		for range 2 {
			_, err := serving.Ensure(ctx, env.Admin, elsewhere)
			Expect(err).NotTo(HaveOccurred())
		}
		var slices discoveryv1.EndpointSliceList
		Expect(env.Client.List(ctx, &slices, client.InNamespace("skein-system"), client.MatchingLabels{discoveryv1.LabelServiceName: "skein-runtime-api"})).To(Succeed())
		Expect(slices.Items).To(ConsistOf(And(
			HaveField("Endpoints", ConsistOf(HaveField("Addresses", ConsistOf("10.9.8.7")))),
			HaveField("Ports", ConsistOf(HaveField("Port", HaveValue(Equal(int32(8444)))))),
		)))
		Expect(apiService(ctx).Spec.Service.Port).To(HaveValue(Equal(int32(443))))
	})

	It("says what the API server says when it does not reach us", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) {
			_, err := serving.Ensure(ctx, env.Admin, env.Serving)
			Expect(err).NotTo(HaveOccurred())
			Expect(serving.WaitAvailable(ctx, env.Admin)).To(Succeed())
		}, NodeTimeout(patience))
		closed := serving.Options{External: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}
		_, err := serving.Ensure(ctx, env.Admin, closed)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() apiregistrationv1.ConditionStatus { return available(apiService(ctx)) }).Should(Equal(apiregistrationv1.ConditionFalse))
		Eventually(func() error {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return serving.WaitAvailable(short, env.Admin)
		}).Should(MatchError(ContainSubstring("connection refused")))
	}, SpecTimeout(3*patience))
}
