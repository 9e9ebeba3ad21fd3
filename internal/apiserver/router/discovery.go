package router

import (
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	genericapiserver "k8s.io/apiserver/pkg/server"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// resources describes the routes for discovery: threads, their subresources and the views.
//
// The parent resource is listed because clients look up a subresource's right through it, for example kubectl auth
// can-i and tools that check an RBAC rule against discovery. It has only the verb get, although it can be patched
// too. Namespace deletion and the garbage collector process every resource that can be deleted, listed and watched,
// and they must process the objects of skein.dev instead, which have the same name. `kubectl get threads` also means
// those objects, because their group has the higher priority (config/runtimeapi).
func (rt *Router) resources() []metav1.APIResource {
	var list []metav1.APIResource
	for sub, r := range rt.Routes {
		resource := metav1.APIResource{
			Name:  runtimev1.ThreadsResource + "/" + string(sub),
			Group: runtimev1.GroupVersion.Group, Version: runtimev1.GroupVersion.Version,
			Namespaced: true, Kind: r.Kind, Verbs: r.Verbs(),
		}
		if sub == "" {
			resource.Name, resource.Verbs = runtimev1.ThreadsResource, metav1.Verbs{"get"}
		}
		list = append(list, resource)
	}
	for name, v := range rt.Views {
		list = append(list, v.resources(name)...)
	}
	slices.SortFunc(list, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Install registers the router and the discovery documents, including the aggregated form.
func (rt *Router) Install(s *genericapiserver.GenericAPIServer) error {
	gv := runtimev1.GroupVersion
	version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	group := metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
	resources := rt.resources()

	s.DiscoveryGroupManager.AddGroup(group)
	aggregated, err := endpoints.ConvertGroupVersionIntoToDiscovery(resources)
	if err != nil {
		return err
	}
	s.AggregatedDiscoveryGroupManager.AddGroupVersion(gv.Group, apidiscoveryv2.APIVersionDiscovery{
		Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: aggregated,
	})

	mux := s.Handler.NonGoRestfulMux
	groupHandler := discovery.NewAPIGroupHandler(Codecs, group)
	versionHandler := discovery.NewAPIVersionHandler(Codecs, gv, discovery.APIResourceListerFunc(func() []metav1.APIResource { return resources }))
	root := "/apis/" + gv.Group
	mux.Handle(root, groupHandler)
	mux.Handle(root+"/", groupHandler)
	mux.Handle(root+"/"+gv.Version, versionHandler)
	mux.HandlePrefix(root+"/"+gv.Version+"/", rt)
	return nil
}
