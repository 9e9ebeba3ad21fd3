package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ ports.ThreadObjects = (*Threads)(nil)

// Name implements ports.ThreadObjects.
func (*Threads) Name(origin *store.Thread, cause string) string {
	return objects.DerivedName(origin.Name+"-handoff", origin.ID, cause)
}

// Declare implements ports.ThreadObjects. The thread of a context handoff is a Thread object that adopts what is stored
// already (REL-03), so the object has nothing of what was said.
func (k *Threads) Declare(ctx context.Context, t *store.Thread, cause string) error {
	o := &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   t.Namespace,
			Name:        t.Name,
			Labels:      map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue, skeinv1.LabelThreadID: t.ID},
			Annotations: map[string]string{skeinv1.AnnotationIdempotencyKey: cause},
			Finalizers:  []string{skeinv1.Finalizer},
		},
		Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: t.Agent}, UserID: t.UserID, TaskID: t.TaskID, ThreadID: t.ID},
	}
	var have skeinv1.Thread
	found, err := MakeOnce(ctx, k.client, k.live, o, &have)
	switch {
	case err == nil, found && have.Spec.ThreadID == t.ID:
		return nil
	case IsRefused(err):
		return &thread.InvalidError{Field: "thread", Message: fmt.Sprintf("the cluster refuses the Thread %q: %v", o.Name, err)}
	case found:
		return &thread.InvalidError{Field: "thread", Message: fmt.Sprintf("a Thread %q exists already and was not made by this handoff: delete or rename it", o.Name)}
	}
	return fmt.Errorf("create Thread %q: %w", o.Name, err)
}
