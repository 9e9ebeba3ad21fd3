package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Phases of a ScheduledEffect.
const (
	EffectPending   = "Pending"
	EffectFired     = "Fired"
	EffectSucceeded = "Succeeded"
	EffectFailed    = "Failed"
	EffectCanceled  = "Canceled"
	EffectUnknown   = "Unknown"
)

// maxHookDepth is the maximum of spec.hookDepth.
const maxHookDepth = 1000

// Effects implements ports.Effects: each pending effect is a ScheduledEffect object (EFF-01).
type Effects struct {
	client client.Client
	live   client.Reader
	store  EffectStore
	clock  clock.PassiveClock
	quota  *EffectQuota
	// limits returns the quotas of a namespace; nil means that there are none.
	limits func(namespace string) store.Quotas
}

// EffectStore is the part of the store that Effects needs.
type EffectStore interface {
	RemoveEffect(ctx context.Context, effectID string) (removed bool, err error)
	StopEffect(ctx context.Context, effectID string) error
	PutEffectArgs(ctx context.Context, a store.EffectArgs) error
	EffectArgs(ctx context.Context, threadID, id string) (json.RawMessage, error)
	StoredEffectArgs(ctx context.Context, threadID string) (ids []string, err error)
	RemoveEffectArgs(ctx context.Context, threadID, id string) error
	ClaimQuota(ctx context.Context, c store.QuotaClaim) error
	ReleaseQuota(ctx context.Context, namespace string, resource store.QuotaResource, name string) error
	Recorded(ctx context.Context, threadID, key string) (fingerprint string, result json.RawMessage, err error)
	Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error
}

var _ ports.Effects = (*Effects)(nil)

// NewEffects returns the port. The client must read its own writes, so that List includes what was just scheduled.
// live reads from the API server, past any cache.
func NewEffects(c client.Client, live client.Reader, st EffectStore, clk clock.PassiveClock, quota *EffectQuota) *Effects {
	return &Effects{client: c, live: live, store: st, clock: clk, quota: quota}
}

// Schedule implements ports.Effects. The Effect must exist, because otherwise the call would never fire. It need not
// be ready yet.
func (e *Effects) Schedule(ctx context.Context, thread *store.Thread, req ports.EffectRequest) (string, error) {
	if err := effects.CheckArgs(req.Args); err != nil {
		return "", &domain.InvalidError{Field: "args", Message: err.Error()}
	}
	if req.Delay < 0 || req.Delay > tool.MaxEffectDelay { // the doors in front of this one check too; none may be forgotten
		return "", &domain.InvalidError{Field: "delay", Message: "it must be " + tool.EffectDelay}
	}
	at := skeinv1.NewTimestamp(e.clock.Now().Add(req.Delay).Truncate(time.Microsecond))
	s := &skeinv1.ScheduledEffect{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       thread.Namespace,
			Name:            effectName(thread.Name, req.Name, thread.ID, req.Cause),
			Labels:          objects.RuntimeLabels(thread),
			Annotations:     map[string]string{skeinv1.AnnotationIdempotencyKey: req.Cause},
			OwnerReferences: []metav1.OwnerReference{objects.ThreadOwner(thread.Name, thread.OwnerUID())},
		},
		Spec: skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: thread.Name},
			Effect:    req.Name,
			At:        &at,
		},
	}
	if req.HookDepth > 0 {
		s.Spec.HookDepth = int32(min(req.HookDepth, maxHookDepth))
	}
	if id, err := e.scheduledBefore(ctx, thread, s); !errors.Is(err, store.ErrNotFound) {
		return id, err
	}
	if err := e.checkKnown(ctx, thread.Namespace, req.Name); err != nil {
		var unknown *definition.UnknownError
		if errors.As(err, &unknown) {
			if id, err := e.findExisting(ctx, s); err == nil {
				return id, nil // an earlier attempt of this call created it
			}
		}
		return "", err
	}
	undo, err := e.quota.admit(ctx, thread, s.Name, e.clock.Now())
	if err != nil {
		if id, err := e.findExisting(ctx, s); err == nil {
			return id, nil
		}
		return "", err
	}
	release, err := e.claim(ctx, s)
	if err != nil {
		undo()
		if id, err := e.findExisting(ctx, s); err == nil {
			return id, nil
		}
		return "", err
	}
	id, made, err := e.create(ctx, thread, s, req.Args)
	if !made {
		undo()
	}
	if err != nil {
		release()
		return "", err
	}
	return id, e.remember(ctx, thread, s, id)
}

// create stores the arguments and creates the object. It returns the id of the object, and whether this call made it or an earlier attempt.
func (e *Effects) create(ctx context.Context, thread *store.Thread, s *skeinv1.ScheduledEffect, args json.RawMessage) (id string, made bool, err error) {
	if len(args) > 0 && string(args) != "null" {
		// What code or a model said stays out of etcd (K8S-07). The arguments are stored before the object that names them.
		s.Spec.ArgsRef = argsRef(s, thread.ID)
		if err := e.store.PutEffectArgs(ctx, store.EffectArgs{ID: s.Spec.ArgsRef, Namespace: thread.Namespace, ThreadID: thread.ID, Args: args}); err != nil {
			return "", false, fmt.Errorf("store the arguments: %w", err)
		}
	}
	var have skeinv1.ScheduledEffect
	found, err := MakeOnce(ctx, e.client, e.live, s, &have)
	switch {
	case err == nil:
		return string(s.UID), true, nil
	case found && sameEffect(&have, s):
		return string(have.UID), false, nil
	}
	if s.Spec.ArgsRef != "" && (found || IsRefused(err)) {
		_ = e.store.RemoveEffectArgs(ctx, thread.ID, s.Spec.ArgsRef) // no object refers to them; if this fails, the purge of the thread removes them
	}
	switch {
	case IsRefused(err):
		return "", false, fmt.Errorf("the cluster refuses the ScheduledEffect: %w", err)
	case found:
		return "", false, fmt.Errorf("a ScheduledEffect %q exists already and was not made by this call: delete or rename it", s.Name)
	}
	return "", false, fmt.Errorf("create ScheduledEffect %q: %w", s.Name, err)
}

// shownNames bounds how many names an error lists.
const shownNames = 20

// checkKnown returns an *definition.UnknownError unless the namespace has an Effect of this name.
func (e *Effects) checkKnown(ctx context.Context, namespace, name string) error {
	key := client.ObjectKey{Namespace: namespace, Name: objects.EffectName(name)}
	err := e.client.Get(ctx, key, &skeinv1.Effect{})
	if apierrors.IsNotFound(err) {
		err = e.live.Get(ctx, key, &skeinv1.Effect{}) // the cache may not have a new Effect yet
	}
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return fmt.Errorf("read Effect %q: %w", key.Name, err)
	}
	text := fmt.Sprintf("there is no Effect %q in namespace %q: create it first", key.Name, namespace)
	var list skeinv1.EffectList
	if err := e.client.List(ctx, &list, client.InNamespace(namespace)); err == nil {
		text += listNames("Effects", list.Items, func(o *skeinv1.Effect) string { return o.Name })
	}
	return &definition.UnknownError{Message: text}
}

// listNames lists the names of objects, for an error about one that does not exist; "" if there are none.
func listNames[T any](kind string, items []T, name func(*T) string) string {
	if len(items) == 0 {
		return ""
	}
	var names []string
	for i := range items {
		names = append(names, name(&items[i]))
	}
	slices.Sort(names)
	return "; existing " + kind + ": " + strings.Join(names[:min(len(names), shownNames)], ", ")
}

// findExisting returns the id of the effect that an earlier attempt of the same call scheduled, or store.ErrNotFound.
func (e *Effects) findExisting(ctx context.Context, want *skeinv1.ScheduledEffect) (string, error) {
	var have skeinv1.ScheduledEffect
	err := e.client.Get(ctx, client.ObjectKeyFromObject(want), &have)
	if apierrors.IsNotFound(err) {
		err = e.live.Get(ctx, client.ObjectKeyFromObject(want), &have) // the earlier attempt may have been another replica's
	}
	if err != nil {
		return "", fmt.Errorf("read ScheduledEffect %q: %w", want.Name, err)
	}
	if !sameEffect(&have, want) {
		return "", store.ErrNotFound
	}
	return string(have.UID), nil
}

// sameEffect reports whether a ScheduledEffect is the one that an earlier attempt of the same call scheduled.
func sameEffect(have, want *skeinv1.ScheduledEffect) bool {
	return sameCause(have, want) && have.Spec.Effect == want.Spec.Effect && have.Spec.ThreadRef != nil && *have.Spec.ThreadRef == *want.Spec.ThreadRef
}

// List implements ports.Effects.
func (e *Effects) List(ctx context.Context, thread *store.Thread, name string) ([]ports.ScheduledEffect, error) {
	all, _, err := e.Page(ctx, thread, ports.EffectPage{Name: name, Limit: math.MaxInt, MaxBytes: math.MaxInt64})
	return all, err
}

// Remove implements ports.Effects. A one-time effect that has fired cannot be removed. A schedule can, and fires no more.
func (e *Effects) Remove(ctx context.Context, thread *store.Thread, id string) (bool, error) {
	pending, err := e.pendingEffects(ctx, thread)
	if err != nil {
		return false, err
	}
	for _, s := range pending {
		if string(s.UID) != id {
			continue
		}
		if removed, err := e.stop(ctx, s); err != nil || !removed {
			return false, err
		}
		err := e.client.Delete(ctx, s, client.Preconditions{UID: &s.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return false, fmt.Errorf("delete ScheduledEffect %q: %w", s.Name, err)
		}
		if HasArgs(s, thread.ID) {
			// The effect is removed even if this fails. What is left is removed with the thread.
			_ = e.store.RemoveEffectArgs(ctx, thread.ID, s.Spec.ArgsRef)
		}
		return true, nil
	}
	return false, nil
}

// stop keeps an effect from firing before its object is deleted, because the controller may see the deletion later. For a
// one-time effect the store decides: either nothing was claimed and nothing will be, or the effect is not removed
// (EFF-01).
func (e *Effects) stop(ctx context.Context, s *skeinv1.ScheduledEffect) (bool, error) {
	if len(s.Spec.Schedules) == 0 {
		return e.store.RemoveEffect(ctx, string(s.UID))
	}
	err := e.store.StopEffect(ctx, string(s.UID))
	return err == nil, err
}

// ID implements ports.Effects.
func (e *Effects) ID(ctx context.Context, namespace, name string) (string, error) {
	var s skeinv1.ScheduledEffect
	err := e.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return "", &definition.UnknownError{Message: fmt.Sprintf("there is no ScheduledEffect %q in namespace %q: kubectl get scheduledeffects lists those that exist", name, namespace)}
	}
	if err != nil {
		return "", fmt.Errorf("read ScheduledEffect %q: %w", name, err)
	}
	return string(s.UID), nil
}

// Next implements the runtime API's Effects.
func (e *Effects) Next(ctx context.Context, namespace, name string, n int) ([]int64, error) {
	var s skeinv1.ScheduledEffect
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read ScheduledEffect %q: %w", name, client.IgnoreNotFound(err))
	}
	if objects.CheckDecoded(&s) != nil || !isWaiting(&s) {
		return nil, nil
	}
	times, err := effectplan.Next(&s, e.clock.Now(), n)
	if err != nil { // its status says what is wrong with it
		return nil, nil
	}
	next := make([]int64, len(times))
	for i, t := range times {
		next[i] = t.UnixMicro()
	}
	return next, nil
}

// isWaiting reports whether a ScheduledEffect has not fired yet. One of a single time with policies of its own, or that was run by hand, has a
// next time until then, whatever is under way. One with schedules waits for its next time, until there is none.
func isWaiting(s *skeinv1.ScheduledEffect) bool {
	switch s.Status.Phase {
	case "", EffectPending:
		return true
	case "Active", "Suspended", "Paused", "LimitReached":
		return len(s.Spec.Schedules) > 0 || s.Status.NextTime != nil
	}
	return false
}

// next returns the due time of an effect, or the next one of its schedules. It is zero when a schedule never fires.
func (e *Effects) next(s *skeinv1.ScheduledEffect) time.Time {
	if len(s.Spec.Schedules) == 0 || s.Status.ScheduledAt != 0 {
		return DueTime(s)
	}
	plan, err := effectplan.Of(&s.Spec, time.Time{}) // the controller has not seen it yet
	if err != nil {
		return time.Time{} // its Ready condition says what is wrong
	}
	next := plan.Next(e.clock.Now())
	if !next.IsZero() {
		next = next.Add(effectplan.Jitter(s))
	}
	return next
}

func (e *Effects) pendingEffects(ctx context.Context, thread *store.Thread, opts ...client.ListOption) ([]*skeinv1.ScheduledEffect, error) {
	var list skeinv1.ScheduledEffectList
	opts = append(opts, client.InNamespace(thread.Namespace), client.MatchingFields{objects.IndexThread: thread.Name})
	if err := e.client.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list the ScheduledEffects of Thread %q: %w", thread.Name, err)
	}
	var out []*skeinv1.ScheduledEffect
	for i := range list.Items {
		s := &list.Items[i]
		if s.DeletionTimestamp.IsZero() && isWaiting(s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// HasArgs reports whether spec.argsRef names the arguments that were stored for this effect of a thread. People can write any name
// there: the name of arguments that another effect has, in another thread or namespace, is not theirs to read.
func HasArgs(s *skeinv1.ScheduledEffect, threadID string) bool {
	return s.Spec.ArgsRef != "" && s.Spec.ArgsRef == argsRef(s, threadID) && s.Spec.ThreadRef != nil &&
		s.Name == effectName(s.Spec.ThreadRef.Name, s.Spec.Effect, threadID, s.Annotations[skeinv1.AnnotationIdempotencyKey])
}

// argsRef returns the name of the arguments that are stored for an effect of a thread.
func argsRef(s *skeinv1.ScheduledEffect, threadID string) string {
	return objects.Hash([]byte(threadID), []byte(s.Annotations[skeinv1.AnnotationIdempotencyKey]))
}

// effectName returns the name of the object for an effect that a call schedules.
func effectName(thread, effect, threadID, cause string) string {
	return objects.DerivedName(thread+"-"+effect, threadID, cause)
}

// args returns the arguments of an effect, {} when it has none, and store.ErrNotFound when they are not stored for it.
func (e *Effects) args(ctx context.Context, thread *store.Thread, s *skeinv1.ScheduledEffect) (json.RawMessage, error) {
	switch {
	case HasArgs(s, thread.ID):
		return e.store.EffectArgs(ctx, thread.ID, s.Spec.ArgsRef)
	case s.Spec.ArgsRef != "":
		return nil, store.ErrNotFound
	case s.Spec.Args == nil || len(s.Spec.Args.Raw) == 0:
		return json.RawMessage("{}"), nil
	}
	return s.Spec.Args.Raw, nil
}

// DueTime returns when a ScheduledEffect fires. For spec.delay, the API server records the time of creation only in
// whole seconds. So the delay runs from the time at which the controller first saw the object, which is in the
// status, or until then from the end of that second. The effect is never early, and late by less than a second.
func DueTime(s *skeinv1.ScheduledEffect) time.Time {
	switch {
	case s.Spec.At != nil && s.Spec.At.IsZero(): // the zero time stands for none everywhere else
		return s.Spec.At.Add(time.Microsecond)
	case s.Spec.At != nil:
		return s.Spec.At.Time
	case s.Status.ScheduledAt != 0:
		return time.UnixMicro(s.Status.ScheduledAt)
	case s.Spec.After != nil:
		return s.CreationTimestamp.Add(time.Second + s.Spec.After.Duration)
	default: // admission refuses this
		return s.CreationTimestamp.Time
	}
}
