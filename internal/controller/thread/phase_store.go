package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// ensureFinalizer adds the finalizer, which holds the object until its stored data is purged, and labels the object with
// its id. Child Threads are created with the finalizer. They are found by the labels of their parent, so no write is
// spent on a label of their own.
func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (bool, error) {
	before := s.object.DeepCopy()
	if !controllerutil.AddFinalizer(s.object, skeinv1.Finalizer) {
		return false, nil
	}
	if s.object.Labels == nil {
		s.object.Labels = map[string]string{}
	}
	s.object.Labels[skeinv1.LabelThreadID] = s.object.ThreadID()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, s.object, patch); err != nil {
		if client.IgnoreNotFound(err) == nil || conditions.Unwritable(r.Recorder, s.object, err) {
			return true, nil
		}
		return false, fmt.Errorf("hold the Thread until its data is purged: %w", err)
	}
	return false, nil
}

// waitForRestore leaves a Thread alone until a restore has made its Subagents. A run that went on before would take them for lost.
func (r *Reconciler) waitForRestore(_ context.Context, s *scope) (bool, error) {
	return watches.IsRestoring(s.object), nil
}

// checkDecoded reports fields that could not be decoded as a problem. The stored thread keeps its settings, and runs wait.
func (r *Reconciler) checkDecoded(_ context.Context, s *scope) (bool, error) {
	if err := objects.CheckDecoded(s.object); err != nil {
		s.problem = &problem{err.Reason, err.Message}
	}
	return false, nil
}

// look reads the stored thread of an object that has a problem, for the status. It changes nothing.
func (r *Reconciler) look(ctx context.Context, s *scope, row *store.Thread, err error) error {
	if errors.Is(err, store.ErrNotFound) || (err == nil && !row.BelongsTo(string(s.object.UID))) {
		return nil
	}
	if err != nil {
		return err
	}
	s.row = row
	s.parent, err = r.parentName(ctx, s)
	return err
}

// store creates the stored thread through the one code path for new threads (THR-03), or updates its row to the
// fields of the spec that may change.
func (r *Reconciler) store(ctx context.Context, s *scope) (bool, error) {
	id := s.object.ThreadID()
	r.notifications.Track(id, s.req)
	row, err := r.Threads.Store().Thread(ctx, id)
	if s.problem != nil {
		return false, r.look(ctx, s, row, err)
	}
	switch {
	case err == nil:
		if held, err := r.ensureOwned(ctx, s, row); err != nil || !held {
			return false, err
		}
		if s.parent, err = r.parentName(ctx, s); err != nil {
			return false, err
		}
		return false, r.updateRow(ctx, s)
	case !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	if s.object.Spec.ThreadID != "" {
		s.problem = notRetained(s.object)
		return false, nil
	}
	n, err := r.describe(ctx, s.object)
	if wasRefused(s.object) { // that is final, because the parent knows it
		if isInconclusive(err) {
			return false, err // it may not know it yet
		}
		s.problem, s.refused = &problem{skeinv1.ReasonChildRefused, conditions.Ready(s.object.Status.Conditions).Message}, n
		return false, r.refuse(ctx, s)
	}
	var missing *noTask
	if errors.As(err, &missing) {
		s.problem, s.refused, s.why = &problem{skeinv1.ReasonChildRefused, err.Error()}, n, err.Error()
		return false, nil
	}
	if err != nil {
		return false, recordProblem(s, err)
	}
	if n.NamespaceUID == "" {
		if n.NamespaceUID, err = r.namespaces.UID(ctx, n.Namespace); err != nil {
			return false, recordProblem(s, fmt.Errorf("read namespace %s: %w", n.Namespace, err))
		}
	}
	if err := r.firstEnv(ctx, s, n); err != nil {
		return false, recordProblem(s, err)
	}
	if n.Child == nil || n.Child.ToolCallID == "" { // the names that runs give to children are never used again
		if err := r.takeName(ctx, s.object); err != nil {
			return false, recordProblem(s, err)
		}
	}
	n.FirstItems = r.Engine.ThreadCreated(ctx, n.Namespace, n.Agent)
	if s.object.Spec.ForkFrom != nil {
		row, err = r.fork(ctx, s.object, n)
	} else {
		row, _, err = r.Threads.Create(ctx, *n)
	}
	var invalid *thread.InvalidError
	if errors.As(err, &invalid) || (n.AttachFrom != "" && errors.Is(err, store.ErrNotFound)) {
		s.problem = &problem{skeinv1.ReasonInvalidSpec, err.Error()}
		if n.Child != nil && n.Child.ToolCallID != "" {
			// The error may quote what a model gave: the parent is told all of it, the object shows that it was refused.
			s.problem = &problem{skeinv1.ReasonChildRefused, "the child cannot use what its parent passed to it: the parent's conversation says why"}
			s.refused, s.why = n, err.Error()
		}
		return false, nil
	}
	var full *store.NamespaceQuotaError
	if errors.As(err, &full) {
		r.noRoom(s, n, full)
		return false, nil
	}
	if err != nil {
		return false, recordProblem(s, fmt.Errorf("store the thread: %w", err))
	}
	s.row = row
	if s.parent, err = r.parentName(ctx, s); err != nil {
		return false, err
	}
	return false, r.endWithParent(ctx, s)
}

// isInconclusive reports whether an error of describe says nothing about the object.
func isInconclusive(err error) bool {
	var p *problem
	var missing *noTask
	return err != nil && !errors.As(err, &p) && !errors.As(err, &missing)
}

// parentName returns the name of a child's parent. It uses the status where that has it.
func (r *Reconciler) parentName(ctx context.Context, s *scope) (string, error) {
	if s.row.ParentID == "" || s.object.Status.Parent != "" {
		return s.object.Status.Parent, nil
	}
	parent, err := r.Threads.Store().Thread(ctx, s.row.ParentID)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return parent.Name, nil
}

// describe returns the initial state of a new thread.
func (r *Reconciler) describe(ctx context.Context, o *skeinv1.Thread) (*thread.NewThread, error) {
	n := &thread.NewThread{
		Thread: store.Thread{
			ID:        o.ThreadID(),
			Namespace: o.Namespace,
			Name:      o.Name,
			Agent:     o.Spec.AgentRef.Name,
			UserID:    o.Spec.UserID,
			TaskID:    o.Spec.TaskID,
			Title:     o.Spec.Title,
		},
		Message: o.Spec.Message,
	}
	n.MaxFileBytes, n.MaxFiles = fileQuota(&o.Spec)
	if d := o.Spec.IdleExpiry; d != nil {
		n.IdleExpiry = d.Microseconds()
	}
	if a := o.Spec.Arguments; a != nil && len(a.Raw) > 0 {
		n.Arguments = json.RawMessage(a.Raw)
	}
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "Subagent" || owner.APIVersion != skeinv1.GroupVersion.String() {
		return n, nil
	}
	return n, r.describeChild(ctx, o.Namespace, owner, n)
}

// updateRow updates the row to a spec that has changed since the last reconcile. phase_handoff.go handles its agent.
func (r *Reconciler) updateRow(ctx context.Context, s *scope) error {
	if s.specApplied() {
		return nil
	}
	if err := r.updateQuota(ctx, s); err != nil {
		return err
	}
	var u store.UpdateThread
	if title := s.object.Spec.Title; title != "" && title != s.row.Title {
		u.Title = &title
	}
	if u.Title == nil {
		return nil
	}
	if err := r.Threads.Store().Apply(ctx, s.row.ID, nil, &u); err != nil {
		return fmt.Errorf("update the stored thread to the spec: %w", err)
	}
	return r.reload(ctx, s)
}

// specApplied reports whether an earlier reconcile has brought the stored thread up with the spec. A thread that the object has adopted
// since its status was written still has the settings of another object.
func (s *scope) specApplied() bool {
	return s.object.Status.ObservedGeneration == s.object.Generation && s.object.Status.ThreadID != ""
}

func (r *Reconciler) reload(ctx context.Context, s *scope) error {
	row, err := r.Threads.Store().Thread(ctx, s.row.ID)
	if err != nil {
		return err
	}
	s.row = row
	return nil
}

// secretRetry is how often a thread is tried again that needs a Secret which the manager may not read.
const secretRetry = 15 * time.Second

// recordProblem turns a problem into the state of the thread and returns other errors.
func recordProblem(s *scope, err error) error {
	var p *problem
	if errors.As(err, &p) {
		s.problem = p
		if p.reason == skeinv1.ReasonSecretForbidden {
			s.retry = secretRetry // no watched object says that a right was given
		}
		return nil
	}
	return err
}

// Error implements error, so that phases can return a problem.
func (p *problem) Error() string { return p.message }
