// Package router dispatches the requests of the runtime API to the handlers of its routes, and describes the routes for
// discovery. It applies to every write the expected version, the lease and the idempotency key.
package router

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
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/thread/life"
)

// Route is one subresource: its kind in discovery and the handlers of its verbs. These are the verbs that were
// authorized, so discovery, RBAC and the choice of the handler always agree.
type Route struct {
	Kind string
	// Plain handles verbs without a path below the subresource, Nested those with one.
	Plain  call.Verbs
	Nested call.Verbs
	// LongRunning requests have no deadline, and limits of their own.
	LongRunning bool
	// Secret means that the bodies of its writes hold secrets. Then only the URL identifies a repeat under an
	// idempotency key.
	Secret bool
	// Keyed means that the path below the subresource is a key, which runtimev1.KeyParameter may have instead.
	Keyed bool
	// Foreign means that the query and the headers of the answer belong to an endpoint's code.
	Foreign bool
}

// Verbs returns the verbs that the route has, sorted.
func (r Route) Verbs() metav1.Verbs { return verbsOf(r.Plain, r.Nested) }

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

// Router dispatches requests below the group and version.
type Router struct {
	Find   *lookup.Finder // finds the thread of a call
	Routes map[runtimev1.Subresource]Route
	Views  map[runtimev1.View]View
	// Actions says what each call does to a thread. Its keys are those of ActionKey.
	Actions map[string]life.Action
	// Secrets are removed from every answer. It may be nil.
	Secrets *redact.Registry
	// Draining reports whether the replica is stopping. Then requests that may take long are refused, because they would be cut off. It may
	// be nil.
	Draining func() bool

	// Memory is what requests draw bodies, pages and answers from; nil is without limit.
	Memory *membudget.Budget

	repeats repeats
}

// LongRunning implements apirequest.LongRunningRequestCheck.
func (rt *Router) LongRunning(_ *http.Request, info *apirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.APIGroup != runtimev1.GroupVersion.Group {
		return false
	}
	if info.Resource != runtimev1.ThreadsResource {
		return rt.Views[runtimev1.View(info.Resource)].LongRunning
	}
	return rt.Routes[runtimev1.Subresource(info.Subresource)].LongRunning
}

// ServeHTTP implements http.Handler.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var namespace string
	if info, ok := apirequest.RequestInfoFrom(r.Context()); ok {
		namespace = info.Namespace
	}
	ctx, done := rt.Memory.Begin(r.Context(), namespace)
	defer done()
	r = r.WithContext(ctx)
	c := &call.Call{Response: w, Request: r, Secrets: rt.Secrets}
	if err := rt.serve(c); err != nil {
		failed := status.Of(r.Context(), c.Name, err)
		c.Secrets.Value(c.Namespace, &failed.ErrStatus)
		WriteStatus(w, r, failed)
	}
}

func (rt *Router) serve(c *call.Call) error {
	ctx := c.Context()
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest {
		return status.NoSuchPath(c.Request)
	}
	if info.APIGroup != runtimev1.GroupVersion.Group || info.APIVersion != runtimev1.GroupVersion.Version {
		return status.NoSuchPath(c.Request)
	}
	c.Namespace, c.Name, c.Verb = info.Namespace, info.Name, info.Verb
	if rt.Draining != nil && rt.Draining() && rt.LongRunning(c.Request, info) {
		return status.Stopping(c.Name)
	}
	if len(info.Parts) > 3 {
		c.Path = info.Parts[3:]
	}
	if v, ok := rt.Views[runtimev1.View(info.Resource)]; ok {
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
	rte, ok := rt.Routes[runtimev1.Subresource(info.Subresource)]
	if !ok {
		return status.NoSuchPath(c.Request)
	}
	if err := rte.takeKey(c); err != nil {
		return err
	}
	h, err := handlerOf(c, rte.handlersFor(c), info)
	if err != nil {
		return err
	}
	if c.Thread, c.Row, err = rt.Find.Open(ctx, c.Namespace, c.Name); err != nil {
		return err
	}
	c.Subresource = runtimev1.Subresource(info.Subresource)
	return rt.serveThread(c, rte, h)
}

// handlersFor returns the handlers of the route for a call.
func (r Route) handlersFor(c *call.Call) call.Verbs {
	if len(c.Path) > 0 {
		return r.Nested
	}
	return r.Plain
}

// takeKey makes a key in the query the path of the call.
func (r Route) takeKey(c *call.Call) error {
	keys := c.Request.URL.Query()[runtimev1.KeyParameter]
	switch {
	case !r.Keyed || len(keys) == 0:
		return nil
	case len(c.Path) > 0 || len(keys) > 1:
		return apierrors.NewBadRequest("the request has more than one key: name one, in the path or in the parameter " + runtimev1.KeyParameter)
	}
	c.Path, c.KeyInQuery = keys, true
	return nil
}

// handlerOf chooses the handler by the authorized verb.
func handlerOf(c *call.Call, by call.Verbs, info *apirequest.RequestInfo) (call.Handler, error) {
	if h, ok := by[c.Verb]; ok {
		return h, nil
	}
	if len(by) == 0 {
		return nil, status.NoSuchPath(c.Request)
	}
	return nil, status.NoMethod(strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/"), c.Verb, verbsOf(by))
}

// WriteStatus answers with an error as JSON.
func WriteStatus(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	responsewriters.ErrorNegotiated(err, Codecs, schema.GroupVersion{}, w, r)
}
