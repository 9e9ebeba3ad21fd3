package app

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=list;watch

// flagClusterRanges is the flag that declares ranges.
const flagClusterRanges = "cluster-ranges"

// clusterRanges knows which addresses are the cluster's own: those of its nodes, and the ranges of its pods and Services. Some
// clusters have public addresses for them.
type clusterRanges struct {
	reader   client.Reader
	services bool           // the API server has ServiceCIDRs, which Kubernetes has since 1.33
	declared []netip.Prefix // by the flag
}

// onlyNeeded keeps of a Node what clusterRanges and the SandboxPools read.
func onlyNeeded(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	return &corev1.Node{
		TypeMeta:   n.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Spec:       corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs, Unschedulable: n.Spec.Unschedulable},
		Status: corev1.NodeStatus{Addresses: n.Status.Addresses, Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: n.Status.Allocatable[corev1.ResourceCPU],
		}},
	}, nil
}

func nodeCache() cache.ByObject { return cache.ByObject{Transform: onlyNeeded} }

// watchRanges begins to follow the cluster's nodes and ranges.
func (o *Options) watchRanges(ctx context.Context, mgr ctrl.Manager) (*clusterRanges, error) {
	r := &clusterRanges{reader: mgr.GetCache()}
	for _, text := range o.ClusterRanges {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not a range of addresses: write it as 10.244.0.0/16 or fd00:10::/56", flagClusterRanges, text)
		}
		r.declared = append(r.declared, p.Masked())
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Node{}); err != nil {
		return nil, fmt.Errorf("watch the Nodes: %w", err)
	}
	_, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: networkingv1.GroupName, Kind: "ServiceCIDR"}, "v1")
	switch {
	case err == nil:
		r.services = true
		if _, err := mgr.GetCache().GetInformer(ctx, &networkingv1.ServiceCIDR{}); err != nil {
			return nil, fmt.Errorf("watch the ServiceCIDRs: %w", err)
		}
	case !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("look for ServiceCIDRs: %w", err)
	}
	return r, nil
}

// has reports whether an address is in the ranges of pods and Services. When they cannot be read, each address may be.
func (r *clusterRanges) has(ip netip.Addr) bool {
	if within(ip, r.declared) {
		return true
	}
	var nodes corev1.NodeList
	if err := r.reader.List(context.Background(), &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range nodes.Items {
		if within(ip, prefixes(nodes.Items[i].Spec.PodCIDRs)) {
			return true
		}
	}
	if !r.services {
		return false
	}
	var services networkingv1.ServiceCIDRList
	if err := r.reader.List(context.Background(), &services, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range services.Items {
		if within(ip, prefixes(services.Items[i].Spec.CIDRs)) {
			return true
		}
	}
	return false
}

// node reports whether an address is one of a node.
func (r *clusterRanges) node(ip netip.Addr) bool {
	var nodes corev1.NodeList
	if err := r.reader.List(context.Background(), &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range nodes.Items {
		for _, a := range nodes.Items[i].Status.Addresses {
			if of, err := netip.ParseAddr(a.Address); err == nil && of.Unmap() == ip {
				return true
			}
		}
	}
	return false
}

func prefixes(texts []string) (list []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func within(ip netip.Addr, ranges []netip.Prefix) bool {
	for _, p := range ranges {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
