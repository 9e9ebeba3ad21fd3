package apiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
)

// view is a resource beside threads that covers many threads. Its calls have no thread.
type view struct {
	kind string
	// namespaced views are below namespaces/{namespace}, the others at the top.
	namespaced bool
	// collection handles requests without a name, named those with one.
	collection call.Verbs
	named      call.Verbs
	// across handles the collection of a namespaced view over all namespaces, for callers with the right in all of
	// them.
	across call.Verbs
	// below holds the subresources of a name: {name}/{subresource}[/{path}].
	below map[string]route
	// longRunning requests have no deadline and do not count against the in-flight limit.
	longRunning bool
}

func (rt *router) serveView(c *call.Call, v view, info *apirequest.RequestInfo) error {
	h, err := handlerOf(c, v.of(c, info), info)
	if err != nil {
		return err
	}
	return h(c)
}

// of returns the handlers of the view for a call.
func (v view) of(c *call.Call, info *apirequest.RequestInfo) call.Verbs {
	switch {
	case v.namespaced && c.Namespace == "":
		if info.Name == "" && info.Subresource == "" {
			return v.across
		}
		return nil
	case !v.namespaced && c.Namespace != "":
		return nil
	case info.Subresource != "":
		return v.below[info.Subresource].of(c)
	case info.Name != "":
		return v.named
	}
	return v.collection
}

// resources describes the view for discovery.
func (v view) resources(name runtimev1.View) []metav1.APIResource {
	describe := func(name, kind string, verbs metav1.Verbs) metav1.APIResource {
		return metav1.APIResource{
			Name: name, Group: runtimev1.GroupVersion.Group, Version: runtimev1.GroupVersion.Version, Namespaced: v.namespaced, Kind: kind, Verbs: verbs,
		}
	}
	list := []metav1.APIResource{describe(string(name), v.kind, verbsOf(v.collection, v.named, v.across))}
	for sub, r := range v.below {
		list = append(list, describe(string(name)+"/"+sub, r.kind, r.verbs()))
	}
	return list
}
