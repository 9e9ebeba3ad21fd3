package definitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/endpoint"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// maxPathsShown bounds how many paths an error lists.
const maxPathsShown = 20

// Endpoints finds and resolves ThreadEndpoints.
type Endpoints struct {
	reader reader
	code   *Code
}

// Endpoint implements ports.Definitions.
func (d *Resolver) Endpoint(ctx context.Context, q definition.EndpointQuery) (*definition.Endpoint, error) {
	return d.Endpoints.find(ctx, q)
}

// find returns the ThreadEndpoint that answers a request to a thread.
func (es *Endpoints) find(ctx context.Context, q definition.EndpointQuery) (*definition.Endpoint, error) {
	var list skeinv1.ThreadEndpointList
	if err := es.reader.List(ctx, &list, client.InNamespace(q.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ThreadEndpoints: %w", err)
	}
	var best *candidate
	var others, there []string
	for i := range list.Items {
		o := &list.Items[i]
		if endpointAgent(o) != "" && endpointAgent(o) != q.Agent || !o.DeletionTimestamp.IsZero() ||
			q.Only != nil && !slices.Contains(q.Only, o.Name) {
			continue
		}
		pattern, err := endpoint.Parse(o.Spec.Path)
		if err != nil {
			continue // its condition reports the mistake
		}
		there = append(there, o.Spec.Path)
		params, ok := pattern.Match(q.Path)
		if !ok {
			continue
		}
		if !endpoint.Serves(o.Spec.MethodNames(), q.Method) {
			others = append(others, o.Spec.MethodNames()...)
			continue
		}
		c := &candidate{object: o, pattern: pattern, params: params, exact: slices.Contains(o.Spec.MethodNames(), q.Method)}
		if best == nil || c.precedes(best) {
			best = c
		}
	}
	switch {
	case best == nil && len(others) > 0:
		return nil, &definition.MethodError{Method: q.Method, Allow: endpoint.Allow(others)}
	case best == nil:
		return nil, &definition.UnknownError{Message: noEndpoint(q.Namespace, q.Path, there)}
	}
	resolved, err := es.Resolve(ctx, best.object)
	if err != nil {
		return nil, objects.Within("ThreadEndpoint", best.object.Name, err)
	}
	resolved.Params = best.params
	return resolved, nil
}

// candidate is an endpoint that matches a request.
type candidate struct {
	object  *skeinv1.ThreadEndpoint
	pattern endpoint.Pattern
	params  map[string]string
	exact   bool // whether it lists the method itself; otherwise it answers HEAD with GET
}

// precedes reports whether c takes precedence over o: by path, then by method, then an endpoint of the agent before one
// of all agents, then the older one.
func (c *candidate) precedes(o *candidate) bool {
	if by := endpoint.Compare(c.pattern, o.pattern); by != 0 {
		return by < 0
	}
	if c.exact != o.exact {
		return c.exact
	}
	if own := endpointAgent(c.object) != ""; own != (endpointAgent(o.object) != "") {
		return own
	}
	return isOlder(c.object, o.object)
}

// isOlder reports whether a was created before b. The name decides between two of the same time.
func isOlder(a, b *skeinv1.ThreadEndpoint) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) < 0
}

func noEndpoint(namespace string, path, there []string) string {
	message := fmt.Sprintf("no ThreadEndpoint in namespace %q has the path /%s", namespace, strings.Join(path, "/"))
	if len(there) == 0 {
		return message + ", because the namespace has none: create one"
	}
	slices.Sort(there)
	there = slices.Compact(there)
	more := ""
	if len(there) > maxPathsShown {
		there, more = there[:maxPathsShown], " and others"
	}
	return message + "; existing paths: " + strings.Join(there, ", ") + more
}

// Resolve compiles the code of a ThreadEndpoint and checks its path.
func (es *Endpoints) Resolve(ctx context.Context, e *skeinv1.ThreadEndpoint) (*definition.Endpoint, error) {
	if _, err := endpoint.Parse(e.Spec.Path); err != nil {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.path: %v", err)
	}
	if t := e.Spec.Timeout; t != nil && t.Duration <= 0 {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.timeout must be above zero: leave it out for 30s")
	}
	c, err := es.code.compile(ctx, codeOwner{"ThreadEndpoint", e.Namespace, e.Name, string(e.UID), e.Generation, "spec.code"}, e.Spec.Code, inspect.Endpoint)
	if err != nil {
		return nil, err
	}
	return &definition.Endpoint{ObjectName: e.Name, Spec: e.Spec, Module: c.module, Digest: c.digest}, nil
}

// CheckPath returns a *definition.NotReadyError when an older ThreadEndpoint answers the same path and methods.
func (es *Endpoints) CheckPath(ctx context.Context, e *skeinv1.ThreadEndpoint) error {
	var list skeinv1.ThreadEndpointList
	err := es.reader.List(ctx, &list, client.InNamespace(e.Namespace), client.MatchingFields{objects.IndexShape: objects.EndpointShape(e)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list ThreadEndpoints: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b skeinv1.ThreadEndpoint) int {
		if isOlder(&a, &b) {
			return -1
		}
		return 1
	})
	for i := range list.Items {
		o := &list.Items[i]
		if o.Name == e.Name || !isOlder(o, e) || endpointAgent(o) != endpointAgent(e) || !o.DeletionTimestamp.IsZero() {
			continue
		}
		if both := endpoint.Shared(e.Spec.MethodNames(), o.Spec.MethodNames()); len(both) > 0 {
			why := "is older"
			if o.CreationTimestamp.Equal(&e.CreationTimestamp) {
				why = "was created in the same second and precedes this one by name"
			}
			return objects.NotReady(skeinv1.ReasonPathTaken, "ThreadEndpoint %q %s. It also has the path %s and answers %s: change spec.path or spec.methods of one of them, or delete one",
				o.Name, why, o.Spec.Path, strings.Join(both, ", "))
		}
	}
	return nil
}

// endpointAgent returns the agent to whose threads an endpoint is limited, or "" when it serves all threads.
func endpointAgent(e *skeinv1.ThreadEndpoint) string {
	if e.Spec.AgentRef == nil {
		return ""
	}
	return e.Spec.AgentRef.Name
}
