package thread

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// describeChild adds the settings of the owning Subagent, and the parent.
func (r *Reconciler) describeChild(ctx context.Context, namespace string, owner *metav1.OwnerReference, n *thread.NewThread) error {
	var sub skeinv1.Subagent
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name}, &sub)
	if err != nil {
		if client.IgnoreNotFound(err) == nil {
			return &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf("Subagent %q, which owns this Thread, does not exist: the Thread will be deleted with it", owner.Name)}
		}
		return err
	}
	parent := metav1.GetControllerOf(&sub)
	if sub.UID != owner.UID || parent == nil || parent.Kind != "Thread" {
		return r.parentless(ctx, &sub)
	}
	if name := kube.ChildThreadName(&sub); name != n.Name || parent.Name != sub.Spec.ParentRef.Name {
		return &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"an owner reference names Subagent %q, which belongs to Thread %q and its child %q: delete this Thread, and create it without owner references", sub.Name, sub.Spec.ParentRef.Name, name)}
	}
	row, known, err := r.parentRow(ctx, &sub, parent)
	if err != nil {
		return err
	}
	n.ParentID = row.ID
	if known { // its object is in the namespace that the child is in: the API server need not be asked which that is
		n.NamespaceUID = row.NamespaceUID
	}
	n.Reference = sub.Name
	n.RegistryStatus = kube.ChildPending
	n.Child = &store.Child{
		Name:                sub.Spec.Name,
		Blocking:            sub.Spec.Blocking,
		Resumable:           sub.Spec.Resumable,
		ParentCommunication: string(sub.Spec.ParentCommunication),
		SpawnGroupID:        sub.Spec.SpawnGroupID,
		ToolCallID:          sub.Spec.ToolCallID,
	}
	if n.Attachments = sub.Spec.Attachments; sub.Spec.TaskRef != "" {
		if err := r.task(ctx, &sub, n); err != nil {
			return err
		}
	}
	if len(n.Attachments) > 0 {
		n.AttachFrom = n.ParentID
	}
	return nil
}

// parentless returns the problem of a child whose Subagent has no owner. Either the parent is not there yet or is still to become the owner, or it was deleted
// with --cascade=orphan before the child was stored. The label of the Subagent is the id of the thread that was its parent. A later Thread of the name
// has that id only if it has adopted the data. Any other one is refused as the parent once the Subagent has a task or a child.
func (r *Reconciler) parentless(ctx context.Context, sub *skeinv1.Subagent) error {
	var parent skeinv1.Thread
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: sub.Namespace, Name: sub.Spec.ParentRef.Name}, &parent, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Thread %q: %w", sub.Spec.ParentRef.Name, err)
	}
	missing, earlier := err != nil, ""
	if sub.Spec.TaskRef != "" || sub.Status.Entry != nil && sub.Status.Entry.ThreadID != "" {
		earlier = sub.Labels[skeinv1.LabelThreadID]
	}
	switch {
	case missing && earlier == "":
		return &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
			"the parent Thread %q does not exist in namespace %q: create it, or delete Subagent %q", sub.Spec.ParentRef.Name, sub.Namespace, sub.Name)}
	case missing, earlier != "" && earlier != parent.ThreadID():
		return &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
			"the parent Thread %q was deleted before this Thread was set up: delete Subagent %q. A new Thread of that name becomes the parent only if it adopts the data of the deleted one", sub.Spec.ParentRef.Name, sub.Name)}
	}
	return &problem{skeinv1.ReasonProgressing, fmt.Sprintf("Subagent %q is not tied to its parent Thread yet", sub.Name)}
}

// task adds the task that a run of the parent gave, which is in the store (K8S-07). A task of another parent or child is not
// taken, nor one with another digest.
func (r *Reconciler) task(ctx context.Context, sub *skeinv1.Subagent, n *thread.NewThread) error {
	kept, digest, err := r.Threads.Store().ChildTask(ctx, sub.Spec.TaskRef)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err != nil || kept.ParentID != n.ParentID || kept.Reference != sub.Name || digest != sub.Spec.TaskDigest {
		return &noTask{fmt.Errorf("no task %s is stored for Subagent %q: delete the Subagent", sub.Spec.TaskRef, sub.Name)}
	}
	var task kube.ChildTask
	if err := json.Unmarshal(kept.Task, &task); err != nil {
		return &noTask{fmt.Errorf("the stored task of Subagent %q cannot be read: %w", sub.Name, err)}
	}
	n.Message, n.Arguments, n.Attachments, n.Telemetry = task.Message, task.Arguments, task.Attachments, task.Telemetry
	return nil
}

// noTask says that a child has no task and can get none.
type noTask struct{ error }

// parentRow returns the stored parent, and whether the object that holds it is there. Its id differs from the object's UID when that has
// adopted its data.
//
// People can write any owner into the metadata of a Subagent, with the UID of a Thread in another namespace, and any id into
// spec.threadID of a Thread. So the owner must be a Thread of this namespace that holds the data, or be gone while its data
// waits for its children to be deleted.
func (r *Reconciler) parentRow(ctx context.Context, sub *skeinv1.Subagent, owner *metav1.OwnerReference) (row *store.Thread, known bool, err error) {
	var parent skeinv1.Thread
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: sub.Namespace, Name: owner.Name}, &parent, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("read Thread %q: %w", owner.Name, err)
	}
	known = err == nil && parent.UID == owner.UID
	id := string(owner.UID)
	if known {
		id = parent.ThreadID()
	}
	row, err = r.Threads.Store().Thread(ctx, id)
	switch {
	case err == nil && row.Namespace == sub.Namespace && row.BelongsTo(string(owner.UID)):
		return row, known, nil
	case store.IgnoreNotFound(err) != nil:
		return nil, false, err
	case known:
		return nil, false, &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf("the parent Thread %q is not stored: it is being made, or it was deleted", owner.Name)}
	}
	return nil, false, &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
		"Subagent %q has an owner reference to a Thread %q that namespace %q does not have: delete the Subagent. Create one without owner references, and name a Thread of this namespace in its spec.parentRef",
		sub.Name, owner.Name, sub.Namespace)}
}

// refuse answers a parent whose child cannot be created. The status is the record of the refusal: it is written before the
// parent is told, and after a crash the parent is told again, which changes nothing.
func (r *Reconciler) refuse(ctx context.Context, s *scope) error {
	n := s.refused
	if n == nil || n.ParentID == "" || n.Child == nil {
		return nil
	}
	if err := r.Threads.Store().ReleaseChild(ctx, n.ParentID, n.Reference); err != nil {
		return fmt.Errorf("release the place of the child: %w", err)
	}
	return r.applyToParent(ctx, n.ParentID, thread.ChildLostOps(&n.Thread, kube.ChildFailed, "the child thread could not be created: "+cmp.Or(s.why, s.problem.message), thread.FirstReplies(n.Child)))
}

// wasRefused reports whether the status has on record that the thread cannot be created.
func wasRefused(o *skeinv1.Thread) bool {
	return conditions.Ready(o.Status.Conditions).Reason == skeinv1.ReasonChildRefused
}

// reportLost answers a parent that waits for this child, because the child will not return a result any more.
func (r *Reconciler) reportLost(ctx context.Context, row *store.Thread) error {
	if row.ParentID == "" || row.Child == nil || row.TerminatedAt != 0 {
		return nil // the parent knows already
	}
	// A resumable child that has completed may have a message that the parent waits for.
	calls, err := r.Engine.OpenReplies(ctx, row)
	if err != nil {
		return fmt.Errorf("find the calls of the parent that wait: %w", err)
	}
	return r.applyToParent(ctx, row.ParentID, thread.ChildLostOps(row, kube.ChildTerminated, "the child thread was deleted before it returned a result", calls))
}

// applyToParent applies ops to a parent. A parent that is gone needs to know nothing.
func (r *Reconciler) applyToParent(ctx context.Context, parentID string, ops []store.Op) error {
	if len(ops) == 0 {
		return nil
	}
	err := r.Threads.Store().Apply(ctx, parentID, nil, ops...)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRetained) {
		return nil
	}
	return err
}

// endWithParent terminates a child whose parent was terminated while the child was being created. The termination may
// have looked for children before this one was stored (SUB-08). A parent that is purged deletes its children through their objects, or
// leaves them (--cascade=orphan).
func (r *Reconciler) endWithParent(ctx context.Context, s *scope) error {
	if s.row.ParentID == "" {
		return nil
	}
	parent, err := r.Threads.Store().Thread(ctx, s.row.ParentID)
	if errors.Is(err, store.ErrNotFound) || (err == nil && (parent.TerminatedAt == 0 || parent.TerminatedReason == store.ReasonPurged)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.Engine.Terminate(ctx, s.row.ID, skeinv1.ReasonParentTerminated); err != nil {
		return fmt.Errorf("terminate with the parent: %w", err)
	}
	return r.reload(ctx, s)
}

// expires reports whether a child has ended for good and is removed at this moment: its Subagent is gone, or is about to be, because
// spec.ttlAfterFinished is over.
func (r *Reconciler) expires(ctx context.Context, s *scope, at time.Time) (bool, error) {
	owner := metav1.GetControllerOf(s.object)
	if s.row == nil || s.row.TerminatedAt == 0 || s.problem != nil || owner == nil || owner.Kind != "Subagent" {
		return false, nil
	}
	var sub skeinv1.Subagent
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: owner.Name}, &sub, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Subagent %q: %w", owner.Name, err)
	}
	if err != nil || sub.UID != owner.UID {
		return true, nil // the garbage collector deletes the Thread
	}
	ttl := sub.Spec.TTLAfterFinished
	return ttl != nil && !time.UnixMicro(s.row.TerminatedAt).Add(ttl.Duration).After(at), nil
}
