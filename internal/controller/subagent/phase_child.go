package subagent

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// makeChild creates the child Thread once. When a child Thread was created and is gone, a person deleted it, and it
// is not created again.
func (r *Reconciler) makeChild(ctx context.Context, s *scope) error {
	if s.refused != "" {
		s.childless = true
		return nil
	}
	name := types.NamespacedName{Namespace: s.object.Namespace, Name: kube.ChildThreadName(s.object)}
	var child skeinv1.Thread
	err := r.Client.Get(ctx, name, &child, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) && wasMade(s.object) && needsChild(s.object) {
		err = r.Live.Get(ctx, name, &child) // after a watch that was broken, the cache may not know what this controller made before
	}
	switch {
	case apierrors.IsNotFound(err) && (wasMade(s.object) || s.parentRow.TerminatedAt != 0):
		s.childless, s.leaves = true, deletesChildren(s.parent)
		return nil
	case apierrors.IsNotFound(err) && s.parentRow.Deleting:
		s.leaves = true // with the parent, or it stays without one (--cascade=orphan): a child would begin to work in between
		return nil
	case err == nil && !metav1.IsControlledBy(&child, s.object) && wasMade(s.object) && s.object.Status.Entry.ThreadID != child.ThreadID():
		s.childless = true // a person deleted the child, and made another Thread of its name
		return nil
	case apierrors.IsNotFound(err) && s.object.Spec.ThreadRef != nil:
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Thread %q does not exist in namespace %q: create it, or correct spec.threadRef in a new Subagent", name.Name, name.Namespace)}
		return nil
	case apierrors.IsNotFound(err) && !metav1.IsControlledBy(s.object, s.parent):
		s.problem = parentGoing(s.parent)
		return nil
	case apierrors.IsNotFound(err):
		if s.childless, err = r.wasPurged(ctx, s.object); s.childless || err != nil {
			return err
		}
		var have skeinv1.Thread
		var found bool
		child = *childThread(s)
		if found, err = kube.MakeOnce(ctx, r.Client, r.Live, &child, &have); found { // the cache did not have it yet
			child, err = have, nil
		}
		if kube.IsRefused(err) && byRun(s.object) {
			s.childless, s.refused = true, "the cluster refuses its Thread: "+err.Error()
			return nil
		}
		if err != nil {
			return fmt.Errorf("create Thread %q: %w", name.Name, err)
		}
	case err != nil:
		return fmt.Errorf("read Thread %q: %w", name.Name, err)
	}
	if s.object.Spec.ThreadRef != nil {
		if (!metav1.IsControlledBy(s.object, s.parent) || s.parentRow.Deleting) && !metav1.IsControlledBy(&child, s.object) {
			s.problem = parentGoing(s.parent)
			return nil
		}
		if err := r.adopt(ctx, s, &child); s.problem != nil || err != nil {
			return err
		}
	}
	if !metav1.IsControlledBy(&child, s.object) {
		if byRun(s.object) && !wasMade(s.object) && child.DeletionTimestamp.IsZero() {
			s.childless, s.refused = true, fmt.Sprintf("a Thread %q exists already and is not this Subagent's", name.Name)
			return nil
		}
		s.problem = &problem{skeinv1.ReasonInvalidSpec,
			fmt.Sprintf("a Thread %q exists already and is not this Subagent's: delete one of the two", name.Name)}
		return nil
	}
	s.child = &child
	if c := conditions.Ready(child.Status.Conditions); c.Reason == skeinv1.ReasonChildRefused {
		s.refused = c.Message
		return nil
	}
	r.notifications.Track(child.ThreadID(), s.req)
	row, err := r.Store.Thread(ctx, child.ThreadID())
	if errors.Is(err, store.ErrNotFound) || (err == nil && !row.BelongsTo(string(child.UID))) {
		s.leaves = !child.DeletionTimestamp.IsZero() // it was purged, and its object goes
		return nil                                   // or else the thread controller will store it
	}
	s.row = row
	return err
}

// parentGoing returns the problem of a Subagent without a child whose parent is being deleted before it owned the Subagent. A child
// would stay behind when the parent is gone.
func parentGoing(parent *skeinv1.Thread) *problem {
	return &problem{skeinv1.ReasonReferenceNotFound,
		fmt.Sprintf("Thread %q is being deleted: create it again when it is gone, or delete this Subagent", parent.Name)}
}

// byRun reports whether a run of the parent made the Subagent. A call may wait for its child, so a refusal is final.
// What a person declared heals when the reason for the refusal is gone.
func byRun(o *skeinv1.Subagent) bool { return o.Spec.ToolCallID != "" }

// deletesChildren reports whether a parent is being deleted together with its children.
func deletesChildren(parent *skeinv1.Thread) bool {
	return !parent.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(parent, metav1.FinalizerOrphanDependents)
}

// wasPurged reports whether the child Thread existed and its data was purged, with the task that it was given. A person may
// delete it before the status of the Subagent says that it existed.
func (r *Reconciler) wasPurged(ctx context.Context, o *skeinv1.Subagent) (bool, error) {
	if marked, err := r.Store.MarkedDeleted(ctx, string(o.UID)); marked || err != nil || o.Spec.TaskRef == "" {
		return marked, err
	}
	_, _, err := r.Store.ChildTask(ctx, o.Spec.TaskRef)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// needsChild reports whether to ask the API server for a child Thread that the cache does not have: until the child has ended, and
// afterwards if its conversation is to be kept.
func needsChild(o *skeinv1.Subagent) bool {
	return !meta.IsStatusConditionTrue(o.Status.Conditions, skeinv1.ConditionTerminated) || o.Spec.Retain == skeinv1.ChildKeep
}

// wasMade reports whether the child Thread existed once.
func wasMade(o *skeinv1.Subagent) bool { return o.Status.Entry != nil && o.Status.Entry.ThreadID != "" }

// childThread returns the child Thread to create. It has its finalizer already, which saves a write.
func childThread(s *scope) *skeinv1.Thread {
	o := s.object
	labels := objects.RuntimeLabels(s.parentRow)
	// A Thread's own id is its UID, which is unknown before the Thread exists.
	delete(labels, skeinv1.LabelThreadID)
	return &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  o.Namespace,
			Name:       kube.ChildThreadName(o),
			Labels:     labels,
			Finalizers: []string{skeinv1.Finalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         skeinv1.GroupVersion.String(),
				Kind:               "Subagent",
				Name:               o.Name,
				UID:                o.UID,
				Controller:         ptr.To(true),
				BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: skeinv1.ThreadSpec{
			AgentRef:  o.Spec.AgentRef,
			Title:     o.Spec.Title,
			UserID:    s.parentRow.UserID,
			TaskID:    s.parentRow.TaskID,
			Arguments: o.Spec.Arguments, // declared by a person; what a run gave is in the store (K8S-07)
			Message:   o.Spec.Message,
		},
	}
}

// endChild terminates the child of a terminated parent (SUB-08). The engine terminates the children that it finds;
// this handles a child that was being created at that moment.
func (r *Reconciler) endChild(ctx context.Context, s *scope) error {
	if s.row == nil || s.parentRow.TerminatedAt == 0 || s.row.TerminatedAt != 0 {
		return nil
	}
	if s.parentRow.TerminatedReason == store.ReasonPurged {
		return nil // the parent is being deleted: the child is deleted through its owner reference, or stays (--cascade=orphan)
	}
	if err := r.Engine.Terminate(ctx, s.row.ID, skeinv1.ReasonParentTerminated); err != nil {
		return fmt.Errorf("terminate the child with its parent: %w", err)
	}
	row, err := r.Store.Thread(ctx, s.row.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // purged: its object is being deleted
	}
	s.row = row
	return err
}

// observe reads the newest run of the child.
func (r *Reconciler) observe(ctx context.Context, s *scope) (err error) {
	if s.row == nil {
		return nil
	}
	s.run, err = r.Store.Run(ctx, s.row.ID, "")
	return store.IgnoreNotFound(err)
}
