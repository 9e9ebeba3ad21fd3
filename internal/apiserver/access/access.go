// Package access decides what a caller may do besides what the request was authorized for.
//
// Views return data of namespaces that their URL does not name. What the caller may see of them is decided by the
// same authorizer that admits requests. It caches its answers for a few seconds.
package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/thread"
)

// reviewsAtOnce bounds the concurrent access reviews of one request.
const reviewsAtOnce = 8

// Reviews asks the authorizer about rights of the caller.
type Reviews struct {
	Authorizer authorizer.Authorizer
	Threads    *thread.Service // knows the namespaces that have threads
}

// May reports whether the caller has a right on threads, or on one of their subresources. An empty name means all
// threads of the namespace; an empty namespace means all namespaces.
func (r *Reviews) May(ctx context.Context, verb string, sub runtimev1.Subresource, namespace, name string) (bool, error) {
	return r.ask(ctx, authorizer.AttributesRecord{
		Verb: verb, Namespace: namespace, Name: name,
		APIGroup: runtimev1.GroupVersion.Group, APIVersion: runtimev1.GroupVersion.Version,
		Resource: runtimev1.ThreadsResource, Subresource: string(sub),
	})
}

// MayCreateThreads reports whether the caller may create Thread objects in a namespace.
func (r *Reviews) MayCreateThreads(ctx context.Context, namespace string) (bool, error) {
	return r.ask(ctx, authorizer.AttributesRecord{
		Verb: "create", Namespace: namespace, APIGroup: skeinv1.GroupVersion.Group, APIVersion: skeinv1.GroupVersion.Version, Resource: "threads",
	})
}

func (r *Reviews) ask(ctx context.Context, a authorizer.AttributesRecord) (bool, error) {
	user, ok := apirequest.UserFrom(ctx)
	if !ok {
		return false, errors.New("the request has no user")
	}
	a.User, a.ResourceRequest = user, true
	decision, _, err := r.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	return false, err
}

// Right is a right that a request needs besides the one that it was authorized for.
type Right struct {
	Verb, Group, Resource string
	Subresource           runtimev1.Subresource
	Namespace, Name       string
}

// Require returns an error that is Forbidden unless the caller has all rights. name is the thread as the caller wrote it.
func (r *Reviews) Require(ctx context.Context, name string, rights ...Right) error {
	user, ok := apirequest.UserFrom(ctx)
	if !ok {
		return errors.New("the request has no user")
	}
	for _, one := range rights {
		decision, _, err := r.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: user, Verb: one.Verb, Namespace: one.Namespace, Name: one.Name, ResourceRequest: true,
			APIGroup: one.Group, APIVersion: runtimev1.GroupVersion.Version, Resource: one.Resource, Subresource: string(one.Subresource),
		})
		if decision == authorizer.DecisionAllow {
			continue
		}
		if err != nil {
			return err
		}
		resource := strings.TrimSuffix(one.Resource+"/"+string(one.Subresource), "/")
		return apierrors.NewForbidden(threadsResource, name, fmt.Errorf("the user %q cannot %s resource %q in API group %q in the namespace %q",
			user.GetName(), one.Verb, resource, one.Group, one.Namespace))
	}
	return nil
}

// threadsResource is the resource that errors name.
var threadsResource = runtimev1.GroupVersion.WithResource(runtimev1.ThreadsResource).GroupResource()

// Namespaces returns, sorted, the namespaces with threads in which the caller has a right on threads, or on
// one of their subresources. When the caller has the right in all namespaces, all is true and the list is empty.
// Answers over many namespaces are limited to this result.
func (r *Reviews) Namespaces(ctx context.Context, verb string, sub runtimev1.Subresource) (namespaces []string, all bool, err error) {
	if all, err = r.May(ctx, verb, sub, "", ""); all || err != nil {
		return nil, all, err
	}
	candidates, err := r.Threads.Store().Namespaces(ctx)
	if err != nil {
		return nil, false, err
	}
	allowed := make([]bool, len(candidates))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, ns := range candidates {
		group.Go(func() (err error) {
			allowed[i], err = r.May(ctx, verb, sub, ns, "")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	namespaces = candidates[:0]
	for i, ns := range candidates {
		if allowed[i] {
			namespaces = append(namespaces, ns)
		}
	}
	return slices.Clip(namespaces), false, nil
}
