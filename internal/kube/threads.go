package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
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
	err := k.client.Create(ctx, t)
	if !apierrors.IsAlreadyExists(err) {
		return t, err
	}
	var have skeinv1.Thread
	if err := k.live.Get(ctx, client.ObjectKeyFromObject(t), &have); err != nil {
		return nil, fmt.Errorf("read Thread %q: %w", t.Name, err)
	}
	from := have.Spec.ForkFrom
	if have.Annotations[skeinv1.AnnotationIdempotencyKey] != cause || from == nil || from.ThreadRef != t.Spec.ForkFrom.ThreadRef || !have.DeletionTimestamp.IsZero() {
		return nil, err // the name is taken
	}
	return &have, nil
}

// RemoveRefused deletes the object of a Thread that is not stored, when the request for the Thread is refused. The error is a
// Conflict when the object has changed since it was read: its thread may be stored now.
func (k *Threads) RemoveRefused(ctx context.Context, t *skeinv1.Thread) error {
	return client.IgnoreNotFound(k.client.Delete(ctx, t, client.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion}))
}
