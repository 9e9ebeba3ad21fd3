package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// expire deletes a finished effect after its TTL.
func (r *Reconciler) expire(ctx context.Context, s *scope) (bool, error) {
	o := s.object
	if o.Status.CompletionTime == nil {
		return false, nil
	}
	r.notifications.Forget(s.req)
	if rest := o.Status.CompletionTime.Add(ttl(o)).Sub(s.at); rest > 0 {
		s.next = rest
		return true, nil
	}
	s.gone = true
	err := r.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID})
	return true, client.IgnoreNotFound(err)
}

// ttl returns how long a finished effect is kept.
func ttl(o *skeinv1.ScheduledEffect) time.Duration {
	if t := o.Spec.TTLSecondsAfterFinished; t != nil {
		return time.Duration(*t) * time.Second
	}
	return 5 * time.Minute
}

// observe watches a firing that this reconcile or an earlier one recorded, perhaps before a crash.
func (r *Reconciler) observe(ctx context.Context, s *scope) (bool, error) {
	if !isPlanned(s.object) {
		return false, nil
	}
	s.due = kube.DueTime(s.object)
	if s.object.Status.FiredAt == 0 && s.at.Before(s.due) {
		return false, nil
	}
	// It is tracked before it is read, so that no end of the handler is missed.
	r.notifications.Track(string(s.object.UID), s.req)
	// It has one firing, whatever has become of its thread meanwhile. Those by hand are others: an object may have lost the status that
	// tells of them.
	all, err := r.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.object.UID), Limit: recentFirings, Brief: true})
	if err != nil {
		return true, fmt.Errorf("read the firing: %w", err)
	}
	own := slices.IndexFunc(all, func(f store.Firing) bool { return f.Origin != store.OriginManual })
	switch {
	case own >= 0:
		s.sawFiring(&all[own])
	case s.object.Status.FiredAt != 0: // the firing was purged with the thread that it was for
		s.lost, s.next = true, ttl(s.object)
	default:
		return false, nil
	}
	return true, nil
}

// sawFiring notes the firing as it is stored.
func (s *scope) sawFiring(f *store.Firing) {
	s.firing, s.due = f, time.UnixMicro(f.Due)
	if f.Status != store.FiringPending {
		s.next = ttl(s.object)
	}
}

// isPlanned reports whether the due time is fixed. A restart must not move it, because the effect might then fire
// twice.
func isPlanned(o *skeinv1.ScheduledEffect) bool { return o.Spec.At != nil || o.Status.ScheduledAt != 0 }

// plan fixes the due time. A delay runs from the creation of the object, which the API server records in whole
// seconds. plan counts from now if that is within that second, else from the end of that second.
func (r *Reconciler) plan(_ context.Context, s *scope) (bool, error) {
	if isPlanned(s.object) {
		s.due = kube.DueTime(s.object)
		return false, nil
	}
	s.due = kube.DueTime(s.object)
	if early := s.at.Add(s.object.Spec.After.Duration).Truncate(time.Microsecond); early.Before(s.due) {
		s.due = early
	}
	// The status must hold the due time before the effect fires.
	s.again = true
	return true, nil
}

// fire records the firing when it is due (EFF-04) and wakes the engine, which runs the handler.
func (r *Reconciler) fire(ctx context.Context, s *scope) (bool, error) {
	if s.problem != nil {
		return true, nil // a watch causes another reconcile
	}
	if rest := s.due.Sub(s.at); rest > 0 {
		s.next, s.fires = rest, true
		return true, nil
	}
	o := s.object
	f := store.Firing{
		EffectID:  string(o.UID),
		Due:       s.due.UnixMicro(),
		ThreadID:  s.row.ID,
		Namespace: o.Namespace,
		Name:      o.Name,
		Effect:    o.Spec.Effect,
		Status:    store.FiringPending,
		HookDepth: int(o.Spec.HookDepth),
		FiredAt:   r.Clock.Now().UnixMicro(),
	}
	if o.Spec.Args != nil {
		f.Args = o.Spec.Args.Raw
	}
	if ref := o.Spec.ArgsRef; ref != "" {
		if !kube.HasArgs(o, s.row.ID) {
			s.problem = notItsArgs(&o.Spec)
			return true, nil
		}
		args, err := r.Store.EffectArgs(ctx, s.row.ID, ref)
		if err != nil {
			return true, fmt.Errorf("read the arguments: %w", err)
		}
		f.Args, f.TakesArgs = args, ref
	}
	r.notifications.Track(f.EffectID, s.req)
	recorded, err := r.Store.RecordFiring(ctx, f)
	if err != nil {
		return true, fmt.Errorf("record the firing: %w", err)
	}
	if recorded {
		r.Engine.WakeEffects()
		lateness.Observe(r.Clock.Since(s.due).Seconds())
		s.sawFiring(&f)
		return true, nil
	}
	was, err := r.Store.Firing(ctx, f.Key())
	if errors.Is(err, store.ErrNotFound) {
		if s.removed, err = r.wasRemoved(ctx, f.EffectID); s.removed || err != nil {
			s.canceled = s.removed
			return true, err
		}
		return true, fmt.Errorf("record the firing: the store has refused it for thread %q", f.ThreadID)
	}
	if err != nil {
		return true, fmt.Errorf("read the firing: %w", err)
	}
	s.sawFiring(was)
	return true, nil
}

// wasRemoved reports whether an effect was removed, although its object is still there: the removal ended between the two.
func (r *Reconciler) wasRemoved(ctx context.Context, id string) (bool, error) {
	stored, err := r.Store.EffectSchedule(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether the effect was removed: %w", err)
	}
	return stored.Removed, nil
}

// notItsArgs is the problem of an effect that names arguments of another one.
func notItsArgs(spec *skeinv1.ScheduledEffectSpec) *problem {
	of := "this effect"
	if spec.ThreadRef != nil {
		of += fmt.Sprintf(" of Thread %q", spec.ThreadRef.Name)
	}
	return &problem{skeinv1.ReasonInvalidSpec, "spec.argsRef names arguments that were not stored for " + of + ": delete this ScheduledEffect, and create it with spec.args"}
}
