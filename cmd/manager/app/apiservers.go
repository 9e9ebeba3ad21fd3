package app

import (
	"context"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=default,resources=endpointslices,verbs=list;watch

// The Service of the API servers is kubernetes in this namespace. They keep its EndpointSlices up to date themselves.
const apiServersNamespace = metav1.NamespaceDefault

func apiServersLabel() client.MatchingLabels {
	return client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}
}

// apiServerSlices makes the cache hold the EndpointSlices of the API servers and no others.
func apiServerSlices() cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		apiServersNamespace: {LabelSelector: labels.SelectorFromSet(labels.Set(apiServersLabel()))},
	}}
}

// apiServers returns a function that reports whether an API server of the cluster has an address at present. A cluster
// with several API servers has an address for each of them. reader is a cache of their EndpointSlices.
func apiServers(reader client.Reader) func(netip.AddrPort) bool {
	return func(at netip.AddrPort) bool {
		var list discoveryv1.EndpointSliceList
		if err := reader.List(context.Background(), &list, client.InNamespace(apiServersNamespace), apiServersLabel(), client.UnsafeDisableDeepCopy); err != nil {
			return true // when the addresses are unknown, each may be one of them
		}
		for i := range list.Items {
			if serves(&list.Items[i], at) {
				return true
			}
		}
		return false
	}
}

// serves reports whether an EndpointSlice has an address, whether its endpoint is ready or not.
func serves(s *discoveryv1.EndpointSlice, at netip.AddrPort) bool {
	port := len(s.Ports) == 0
	for _, p := range s.Ports {
		port = port || p.Port == nil || *p.Port == int32(at.Port())
	}
	if !port {
		return false
	}
	for i := range s.Endpoints {
		for _, text := range s.Endpoints[i].Addresses {
			if ip, err := netip.ParseAddr(text); err == nil && ip.Unmap() == at.Addr() {
				return true
			}
		}
	}
	return false
}
