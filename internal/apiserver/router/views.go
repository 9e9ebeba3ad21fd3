package router

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
)

// View is a resource beside threads that covers many threads. Its calls have no thread.
type View struct {
	Kind string
	// Namespaced views are below namespaces/{namespace}, the others at the top.
	Namespaced bool
	// Collection handles requests without a name, Named those with one.
	Collection call.Verbs
	Named      call.Verbs
	// Across handles the collection of a namespaced view over all namespaces, for callers with the right in all of
	// them.
	Across call.Verbs
	// Below holds the subresources of a name: {name}/{subresource}[/{path}].
	Below map[string]Route
	// LongRunning requests have no deadline, and limits of their own.
	LongRunning bool
}

// serveView answers a call on a view.
func (rt *Router) serveView(c *call.Call, v View, info *apirequest.RequestInfo) error {
	if err := v.Below[info.Subresource].takeKey(c); err != nil {
		return err
	}
	h, err := handlerOf(c, v.handlersFor(c, info), info)
	if err != nil {
		return err
	}
	return h(c)
}

// handlersFor returns the handlers of the view for a call.
func (v View) handlersFor(c *call.Call, info *apirequest.RequestInfo) call.Verbs {
	switch {
	case v.Namespaced && c.Namespace == "":
		if info.Name == "" && info.Subresource == "" {
			return v.Across
		}
		return nil
	case !v.Namespaced && c.Namespace != "":
		return nil
	case info.Subresource != "":
		return v.Below[info.Subresource].handlersFor(c)
	case info.Name != "":
		return v.Named
	}
	return v.Collection
}

// resources describes the view for discovery.
func (v View) resources(name runtimev1.View) []metav1.APIResource {
	describe := func(name, kind string, verbs metav1.Verbs) metav1.APIResource {
		return metav1.APIResource{
			Name: name, Group: runtimev1.GroupVersion.Group, Version: runtimev1.GroupVersion.Version, Namespaced: v.Namespaced, Kind: kind, Verbs: verbs,
		}
	}
	list := []metav1.APIResource{describe(string(name), v.Kind, verbsOf(v.Collection, v.Named, v.Across))}
	for sub, r := range v.Below {
		list = append(list, describe(string(name)+"/"+sub, r.Kind, r.Verbs()))
	}
	return list
}
