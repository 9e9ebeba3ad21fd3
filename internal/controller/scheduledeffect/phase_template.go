package scheduledeffect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

func encodeTemplate(t *skeinv1.ThreadTemplate) json.RawMessage {
	data, err := json.Marshal(t)
	if err != nil { // it came from JSON
		panic(err)
	}
	return data
}

// release starts the oldest firing that waited for an earlier one of its thread.
func (r *Reconciler) release(ctx context.Context, d *schedule) (bool, error) {
	under := map[string]bool{}
	for _, f := range d.active {
		under[f.ThreadID] = under[f.ThreadID] || f.Status != store.FiringQueued
	}
	for _, f := range slices.Backward(d.active) { // the oldest first
		if under[f.ThreadID] {
			continue
		}
		under[f.ThreadID] = true
		to, err := r.statusAtTurn(ctx, &f)
		if err != nil {
			return true, err
		}
		if err := r.Store.ReleaseQueued(ctx, f.EffectID, f.ThreadID, to); err != nil {
			return true, fmt.Errorf("start a firing that waited: %w", err)
		}
		d.again = true
		r.Engine.WakeEffects()
	}
	return false, nil
}

// statusAtTurn returns the status of a queued firing when its turn comes. An edit may have changed what the object fires, but not what was
// recorded: a firing of a template creates its Thread, and no worker could carry it out.
func (r *Reconciler) statusAtTurn(ctx context.Context, f *store.Firing) (store.FiringStatus, error) {
	whole, err := r.Store.Firing(ctx, f.Key()) // lists have no targets
	if err != nil {
		return "", fmt.Errorf("read a firing that waited: %w", err)
	}
	var template skeinv1.ThreadTemplate
	if whole.Effect == "" && json.Unmarshal(whole.Target, &template) == nil && template.Spec.AgentRef.Name != "" {
		return store.FiringRunning, nil
	}
	return store.FiringPending, nil
}

// runThreads creates the Thread of each firing of a template, and records the end of its first run. An error with one Thread keeps no
// other from being created, unless the others would fail as well.
func (r *Reconciler) runThreads(ctx context.Context, d *schedule) (bool, error) {
	var failed threadErrors
	known := r.firstRuns.of(d.req)
	d.firstRuns = make(map[store.FiringKey]string, len(known))
	for i := range d.active {
		if id, ok := known[d.active[i].Key()]; ok {
			d.firstRuns[d.active[i].Key()] = id
		}
	}
	defer func() { r.firstRuns.set(d.req, d.firstRuns) }()
	for i := range d.active {
		if f := &d.active[i]; f.Status == store.FiringRunning {
			failed.add(r.runThread(ctx, d, f))
		}
		if failed.isHopeless(ctx) {
			return true, cmp.Or(failed.join(), ctx.Err())
		}
	}
	failed.add(r.endThreads(ctx, d))
	err := failed.join()
	return err != nil, err
}

func (r *Reconciler) runThread(ctx context.Context, d *schedule, f *store.Firing) error {
	end := store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Counts: true}
	t := &skeinv1.Thread{}
	key := client.ObjectKey{Namespace: f.Namespace, Name: effectplan.ThreadName(f.Name, f.Due)}
	err := r.Client.Get(ctx, key, t)
	if apierrors.IsNotFound(err) && f.StartedAt != 0 {
		err = r.live().Get(ctx, key, t) // the cache may lag behind another leader, or a watch that broke
	}
	switch {
	case apierrors.IsNotFound(err) && f.StartedAt != 0:
		end.Status, end.Error = store.FiringCanceled, effectplan.ThreadDeleted
		return r.end(ctx, d, f, end)
	case apierrors.IsNotFound(err):
		return r.createThread(ctx, d, f)
	case err != nil:
		return fmt.Errorf("read Thread %q: %w", effectplan.ThreadName(f.Name, f.Due), err)
	case !metav1.IsControlledBy(t, d.object):
		end.Status, end.Error = store.FiringFailed, fmt.Sprintf("a Thread %q exists already and was not made by this ScheduledEffect", t.Name)
		return r.end(ctx, d, f, end)
	}
	if f.StartedAt == 0 { // a manager was lost after it had created the Thread
		if err := r.startRunning(ctx, d, f); err != nil {
			return err
		}
	}
	run, err := r.firstRun(ctx, d, f, t)
	if err != nil {
		return err
	}
	terminated := t.Status.TerminatedAt != 0 && (run == nil || run.Outcome == "") || run != nil && run.Outcome == skeinv1.RunTerminated
	switch {
	case run != nil && run.Outcome == skeinv1.RunSucceeded:
		end.Status = store.FiringSucceeded
	case terminated && !terminatedForTimeout(t):
		end.Status, end.Error = store.FiringCanceled, fmt.Sprintf("Thread %q was terminated", t.Name)
	case terminated:
		end.Status, end.Error = store.FiringFailed, d.timeoutText()
	case run != nil && run.Reason == skeinv1.ReasonThreadDeleted: // its data is kept
		end.Status, end.Error = store.FiringCanceled, effectplan.ThreadDeleted
	case run != nil && run.Outcome != "":
		end.Status, end.Error = store.FiringFailed, fmt.Sprintf("the run of Thread %q ended: %s %s", t.Name, run.Outcome, run.Reason)
	default:
		if left, limited := d.timeLeft(f); limited && left <= 0 {
			return r.endForTimeout(ctx, d, f, t)
		}
		return r.awaitRun(ctx, d, f, t)
	}
	return r.end(ctx, d, f, end)
}

// awaitRun records what the Thread of a firing waits for before its first run begins. It writes nothing for a Thread of which nothing has
// changed: thousands of others may run, and each end of one looks at all.
func (r *Reconciler) awaitRun(ctx context.Context, d *schedule, f *store.Firing, t *skeinv1.Thread) error {
	d.awaitTimeout(f)
	why := ""
	if t.Status.LastRun == nil && conditions.Ready(t.Status.Conditions).Status == metav1.ConditionFalse {
		why = notReady("Thread", t.Name, t.Status.Conditions).message
	}
	return r.setWaiting(ctx, f, why)
}

// startRunning records that the Thread of a firing exists.
func (r *Reconciler) startRunning(ctx context.Context, d *schedule, f *store.Firing) error {
	if err := r.Store.StartRunning(ctx, f.Key()); err != nil {
		return fmt.Errorf("record that the Thread of a firing exists: %w", err)
	}
	f.Waiting, f.StartedAt = "", r.Clock.Now().UnixMicro()
	d.awaitTimeout(f)
	return nil
}

func (r *Reconciler) setWaiting(ctx context.Context, f *store.Firing, why string) error {
	if f.Waiting == why {
		return nil
	}
	if err := r.Store.WaitRunning(ctx, f.Key(), f.Namespace, why); err != nil {
		return fmt.Errorf("record what a firing waits for: %w", err)
	}
	f.Waiting = why
	return nil
}

// end records the end of a firing. The store adds what its Thread has cost.
func (r *Reconciler) end(ctx context.Context, d *schedule, f *store.Firing, end store.FiringEnd) error {
	if err := r.Store.EndRunning(ctx, end); err != nil {
		return fmt.Errorf("record the end of a firing: %w", err)
	}
	d.again, d.recorded, d.ended = true, true, true
	return nil
}

// createThread creates the Thread of a firing under a name that derives from the due time, so that a repeat finds it.
func (r *Reconciler) createThread(ctx context.Context, d *schedule, f *store.Firing) error {
	if n := d.object.Spec.StartingDeadlineSeconds; n != nil && f.Origin != store.OriginBackfill {
		if deadline := time.Duration(*n) * time.Second; d.at.Sub(time.UnixMicro(f.Due).Add(d.jitter)) > deadline {
			return r.miss(ctx, d, f, effects.MissedText(deadline, f.Waiting))
		}
	}
	whole, err := r.Store.Firing(ctx, f.Key()) // lists have no targets
	if err != nil {
		return fmt.Errorf("read the template of a firing: %w", err)
	}
	var template skeinv1.ThreadTemplate
	if err := json.Unmarshal(whole.Target, &template); err != nil {
		return r.end(ctx, d, f, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Status: store.FiringFailed, Error: "the template cannot be read: " + err.Error(), Counts: true})
	}
	if p, err := r.findAgent(ctx, f.Namespace, &template); err != nil {
		return err
	} else if p != nil { // the Thread would never run
		return r.wait(ctx, d, f, p.message)
	}
	t := &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: effectplan.ThreadName(f.Name, f.Due), Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: skeinv1.GroupVersion.String(), Kind: "ScheduledEffect", Name: d.object.Name, UID: d.object.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: template.Spec,
	}
	found, err := kube.MakeOnce(ctx, r.Client, r.live(), t, &skeinv1.Thread{})
	switch {
	case found: // the next reconcile checks whether this firing made it
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return r.end(ctx, d, f, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Status: store.FiringFailed, Error: "the Thread was refused: " + err.Error(), Counts: true})
	case err != nil:
		return r.wait(ctx, d, f, fmt.Sprintf("Thread %q was refused: %v", effectplan.ThreadName(f.Name, f.Due), err)) // a quota, say, which may be raised
	}
	return r.startRunning(ctx, d, f)
}

const (
	// firstWait and longestWait bound the time until a Thread that could not be created is tried again. It grows with the time waited.
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// wait records why the Thread of a firing could not be created. The schedule goes on meanwhile: an error of the reconcile would put off
// its other due times.
func (r *Reconciler) wait(ctx context.Context, d *schedule, f *store.Firing, why string) error {
	if err := r.setWaiting(ctx, f, why); err != nil {
		return err
	}
	waited := d.at.Sub(time.UnixMicro(f.FiredAt))
	d.retry = shorter(d.retry, min(max(firstWait, waited/4), longestWait))
	return nil
}
