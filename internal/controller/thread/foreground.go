package thread

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// awaitObjects is when a thread looks again for the objects that it waits for. The deletion of a Subagent lets it look at once.
const awaitObjects = time.Second

// awaitsObjects reports whether a Thread that is deleted in the foreground has to wait for objects of its children. The garbage
// collector alone waits only for those that it has seen, and it may not have seen one that was created a moment ago. A Thread whose name is too
// long for a label has the garbage collector alone.
func (r *Reconciler) awaitsObjects(ctx context.Context, s *scope) (bool, error) {
	if !controllerutil.ContainsFinalizer(s.object, metav1.FinalizerDeleteDependents) || len(s.object.Name) > validation.LabelValueMaxLength {
		return false, nil
	}
	for _, kind := range []string{"Thread", "Subagent"} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(kind + "List"))
		if err := r.Live.List(ctx, &list, client.InNamespace(s.object.Namespace), client.MatchingLabels{skeinv1.LabelThread: s.object.Name}); err != nil {
			return false, fmt.Errorf("list the objects of the thread's children: %w", err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; !o.DeletionTimestamp.IsZero() && isOfChild(o, s.object) {
				s.again = awaitObjects
				return true, nil
			}
		}
	}
	return false, nil
}

// isOfChild reports whether an object with a Thread's label is a Subagent of that Thread, or the Thread of one.
func isOfChild(o metav1.Object, parent *skeinv1.Thread) bool {
	owner := metav1.GetControllerOfNoCopy(o)
	return owner != nil && (owner.UID == parent.UID || owner.Kind == "Subagent")
}
