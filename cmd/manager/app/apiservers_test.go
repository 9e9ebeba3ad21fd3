package app

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func slice(namespace, name, service string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(port)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}})
	}
	return s
}

func TestEveryAPIServerOfTheClusterIsClosedToTools(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(
		slice("default", "kubernetes", "kubernetes", 6443, "10.0.0.5", "10.0.0.6"),
		slice("default", "kubernetes-6", "kubernetes", 6443, "fd00::5"),
		slice("default", "shop", "shop", 80, "10.0.0.7"),
		slice("shop", "kubernetes", "kubernetes", 6443, "10.0.0.8"), // a Service in any namespace may have this name
	).Build()
	own := newOwnAddresses(c)
	for address, has := range map[string]bool{
		"10.0.0.5:6443": true, "10.0.0.6:6443": true, "[fd00::5]:6443": true,
		"10.0.0.6:443": false, "10.0.0.7:80": false, "10.0.0.8:6443": false, "10.0.0.9:6443": false,
	} {
		g.Expect(own.has(netip.MustParseAddrPort(address))).To(Equal(has), address)
	}

	// One that is added later.
	changed := slice("default", "kubernetes", "kubernetes", 6443)
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(changed), changed)).To(Succeed())
	changed.Endpoints[1].Addresses[0] = "10.0.0.9"
	g.Expect(c.Update(t.Context(), changed)).To(Succeed())
	g.Expect(own.has(netip.MustParseAddrPort("10.0.0.9:6443"))).To(BeTrue())
	g.Expect(own.has(netip.MustParseAddrPort("10.0.0.6:6443"))).To(BeFalse(), "it is gone")
}

func TestNoAddressIsOpenedWhileThoseOfTheAPIServersAreUnknown(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no cache")
		},
	}).Build()
	NewWithT(t).Expect(newOwnAddresses(c).has(netip.MustParseAddrPort("10.0.0.9:6443"))).To(BeTrue())
}
