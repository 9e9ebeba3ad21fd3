package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

// The policy of config/admission asks whether the one who creates a fork may read its origin. The runtime API creates forks
// for callers whose rights it has checked, as the manager (docs/adr/0050-who-may-fork.md).
// +kubebuilder:rbac:groups=runtime.skein.dev,resources=threads/messages;threads/files,verbs=get

// Threads creates Thread objects: forks for the runtime API, and the threads of context handoffs for the engine.
type Threads struct {
	client client.Client
	live   client.Reader
}

// NewThreads returns the port. live reads from the API server, past any cache.
func NewThreads(c client.Client, live client.Reader) *Threads { return &Threads{client: c, live: live} }

// CreateFork creates a Thread that is forked from another. When t has no name, it gets one that derives from the origin and
// the cause. A repeat with the same cause returns the object that exists.
func (k *Threads) CreateFork(ctx context.Context, origin *store.Thread, t *skeinv1.Thread, cause string) (*skeinv1.Thread, error) {
	t = t.DeepCopy()
	if t.Name == "" {
		t.Name = objects.DerivedName(origin.Name+"-fork", origin.ID, cause)
	}
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	t.Annotations[skeinv1.AnnotationIdempotencyKey] = cause
	// A fork with the agent of its origin is always made. Another agent, which the caller has named, must exist.
	var unknown, err error
	if name := t.Spec.AgentRef.Name; name != origin.Agent {
		if unknown, err = k.unknownAgent(ctx, t.Namespace, name); err != nil {
			return nil, err
		}
	}
	if unknown != nil {
		var have skeinv1.Thread
		if err := k.live.Get(ctx, client.ObjectKeyFromObject(t), &have); err == nil && isFork(&have, t) {
			return &have, nil // the agent was deleted since
		}
		return nil, unknown
	}
	var have skeinv1.Thread
	found, err := MakeOnce(ctx, k.client, k.live, t, &have)
	switch {
	case err == nil:
		return t, nil
	case found && isFork(&have, t):
		return &have, nil
	}
	return nil, err // the cluster refuses it, or the name is taken
}

// isFork reports whether a Thread is the fork that an earlier attempt with the same cause made.
func isFork(have, want *skeinv1.Thread) bool {
	from := have.Spec.ForkFrom
	return sameCause(have, want) && from != nil && from.ThreadRef == want.Spec.ForkFrom.ThreadRef && have.DeletionTimestamp.IsZero()
}

// unknownAgent returns what is wrong with the name of an Agent that the namespace does not have; nil if it has one.
func (k *Threads) unknownAgent(ctx context.Context, namespace, name string) (unknown, err error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err = k.client.Get(ctx, key, &skeinv1.Agent{})
	if apierrors.IsNotFound(err) {
		err = k.live.Get(ctx, key, &skeinv1.Agent{}) // the cache may not have a new Agent yet
	}
	if err == nil {
		return nil, nil
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil, fmt.Errorf("read Agent %q: %w", name, err)
	}
	text := fmt.Sprintf("there is no Agent %q in namespace %q: create it first", name, namespace)
	var list skeinv1.AgentList
	if err := k.client.List(ctx, &list, client.InNamespace(namespace)); err == nil {
		text += listNames("Agents", list.Items, func(a *skeinv1.Agent) string { return a.Name })
	}
	return &domain.InvalidError{Field: "agentId", Message: text}, nil
}

// RemoveRefused deletes the object of a Thread that is not stored, when the request for the Thread is refused. The error is a
// Conflict when the object has changed since it was read: its thread may be stored now.
func (k *Threads) RemoveRefused(ctx context.Context, t *skeinv1.Thread) error {
	return client.IgnoreNotFound(k.client.Delete(ctx, t, client.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion}))
}
