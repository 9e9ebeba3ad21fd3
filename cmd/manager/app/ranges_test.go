package app

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestAddressesOfTheClusterAreKnown(t *testing.T) {
	g := NewWithT(t)
	full := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"x": "y"}, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.NodeSpec{Unschedulable: true, PodCIDRs: []string{"10.244.3.0/24", "2600:1f00:1::/64"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}, Images: []corev1.ContainerImage{{Names: []string{"large"}}}, Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "172.18.0.3"}, {Type: corev1.NodeExternalIP, Address: "2600:1f00::3"}, {Type: corev1.NodeHostName, Address: "n"}}}}
	kept, err := onlyNeeded(full)
	g.Expect(err).NotTo(HaveOccurred())
	node := kept.(*corev1.Node)
	g.Expect(node.Annotations).To(BeEmpty())
	g.Expect(node.Status.Images).To(BeEmpty())
	// SandboxPools read these.
	g.Expect(node.Labels).To(HaveKeyWithValue("x", "y"))
	g.Expect(node.Spec.Unschedulable).To(BeTrue())
	g.Expect(node.Status.Allocatable).To(Equal(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}))
	node.ResourceVersion = ""
	r := &clusterRanges{services: true, declared: []netip.Prefix{netip.MustParsePrefix("2600:1f00:9::/48")},
		reader: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(node, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "2600:1f00:2::/112"}}}).Build()}
	for address, want := range map[string]bool{
		"10.244.3.9": true, "2600:1f00:1::9": true, "10.96.0.1": true, "2600:1f00:2::7": true, "2600:1f00:9:1::1": true,
		"10.245.0.1": false, "2600:1f00:3::9": false, "8.8.8.8": false, "172.18.0.3": false,
	} {
		g.Expect(r.has(netip.MustParseAddr(address))).To(Equal(want), address)
	}
	for address, want := range map[string]bool{"172.18.0.3": true, "2600:1f00::3": true, "172.18.0.4": false} {
		g.Expect(r.node(netip.MustParseAddr(address))).To(Equal(want), address)
	}
	r.services = false
	g.Expect(r.has(netip.MustParseAddr("10.96.0.1"))).To(BeFalse(), "an API server before Kubernetes 1.33 has no ServiceCIDRs")
	unreadable := &clusterRanges{reader: fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()}
	g.Expect(unreadable.has(netip.MustParseAddr("8.8.8.8"))).To(BeTrue(), "when they are unknown, each address may be one of them")
}
