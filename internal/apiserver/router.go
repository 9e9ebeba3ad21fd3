package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/redact"
)

// route is one subresource: its kind in discovery and the handlers of its verbs. These are the verbs that were
// authorized, so discovery, RBAC and the choice of the handler always agree.
type route struct {
	kind string
	// plain handles verbs without a path below the subresource, nested those with one.
	plain  map[string]call.Handler
	nested map[string]call.Handler
	// longRunning requests have no deadline and do not count against the in-flight limit.
	longRunning bool
	// secret means that the bodies of its writes hold secrets. Then only the URL identifies a repeat under an
	// idempotency key.
	secret bool
	// foreign means that the query and the headers of the answer belong to an endpoint's code.
	foreign bool
}

func (r route) verbs() metav1.Verbs { return verbsOf(r.plain, r.nested) }

func verbsOf(tables ...call.Verbs) metav1.Verbs {
	v := []string{}
	for _, m := range tables {
		for verb := range m {
			if !slices.Contains(v, verb) {
				v = append(v, verb)
			}
		}
	}
	slices.Sort(v)
	return v
}

// router dispatches requests below the group and version.
type router struct {
	lookup *lookup.Finder
	routes map[runtimev1.Subresource]route
	views  map[runtimev1.View]view
	// secrets are removed from every answer. It may be nil.
	secrets *redact.Registry

	repeats repeats
}

// longRunning implements apirequest.LongRunningRequestCheck.
func (rt *router) longRunning(_ *http.Request, info *apirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.APIGroup != runtimev1.GroupVersion.Group {
		return false
	}
	if info.Resource != runtimev1.ThreadsResource {
		return rt.views[runtimev1.View(info.Resource)].longRunning
	}
	return rt.routes[runtimev1.Subresource(info.Subresource)].longRunning
}

// ServeHTTP implements http.Handler.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call.Call{Response: w, Request: r, Secrets: rt.secrets}
	if err := rt.serve(c); err != nil {
		failed := status.Of(r.Context(), c.Name, err)
		c.Secrets.Value(c.Namespace, &failed.ErrStatus)
		writeStatus(w, r, failed)
	}
}

func (rt *router) serve(c *call.Call) error {
	ctx := c.Context()
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest {
		return status.NoSuchPath(c.Request)
	}
	if info.APIGroup != runtimev1.GroupVersion.Group || info.APIVersion != runtimev1.GroupVersion.Version {
		return status.NoSuchPath(c.Request)
	}
	c.Namespace, c.Name, c.Verb = info.Namespace, info.Name, info.Verb
	if len(info.Parts) > 3 {
		c.Path = info.Parts[3:]
	}
	if v, ok := rt.views[runtimev1.View(info.Resource)]; ok {
		return rt.serveView(c, v, info)
	}
	if info.Resource != runtimev1.ThreadsResource {
		return status.NoSuchPath(c.Request)
	}
	if info.Name == "" {
		return status.NoLists(c.Verb)
	}
	if info.Namespace == "" {
		return status.NoSuchPath(c.Request)
	}
	rte, ok := rt.routes[runtimev1.Subresource(info.Subresource)]
	if !ok {
		return status.NoSuchPath(c.Request)
	}
	h, err := handlerOf(c, rte.of(c), info)
	if err != nil {
		return err
	}
	if c.Thread, c.Row, err = rt.lookup.Open(ctx, c.Namespace, c.Name); err != nil {
		return err
	}
	c.Subresource = runtimev1.Subresource(info.Subresource)
	return rt.serveThread(c, rte, h)
}

// of returns the handlers of the route for a call.
func (r route) of(c *call.Call) call.Verbs {
	if len(c.Path) > 0 {
		return r.nested
	}
	return r.plain
}

// handlerOf chooses the handler by the authorized verb.
func handlerOf(c *call.Call, by call.Verbs, info *apirequest.RequestInfo) (call.Handler, error) {
	if h, ok := by[c.Verb]; ok {
		return h, nil
	}
	if len(by) == 0 {
		return nil, status.NoSuchPath(c.Request)
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{
		Group: status.ThreadsResource.Group, Resource: strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/"),
	}, c.Verb)
}

// writeStatus answers with an error as JSON.
func writeStatus(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{}, w, r)
}
