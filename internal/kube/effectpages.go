package kube

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// Page returns a page of List, and whether more effects follow. It reads no arguments but those of the page.
func (e *Effects) Page(ctx context.Context, thread *store.Thread, q ports.EffectPage) (page []ports.ScheduledEffect, more bool, err error) {
	waiting, err := e.waitingEffects(ctx, thread, q.Name)
	if err != nil {
		return nil, false, err
	}
	page = []ports.ScheduledEffect{}
	rest, left := waiting[min(q.Offset, len(waiting)):], q.MaxBytes
	for len(rest) > 0 && len(page) < q.Limit && left > 0 {
		next := rest[0]
		rest = rest[1:]
		args, err := e.args(ctx, thread, next.object)
		if errors.Is(err, store.ErrNotFound) {
			continue // it has fired meanwhile
		}
		if err != nil {
			return nil, false, err
		}
		left -= int64(len(args))
		page = append(page, ports.ScheduledEffect{
			ID:          string(next.object.UID),
			Name:        next.object.Spec.Effect,
			Args:        args,
			ScheduledAt: next.due,
			CreatedAt:   next.object.CreationTimestamp.UnixMicro(),
		})
	}
	return page, len(rest) > 0, nil
}

// waitingEffect is a ScheduledEffect, shared with the cache, and its due time in microseconds.
type waitingEffect struct {
	object *skeinv1.ScheduledEffect
	due    int64
}

// waitingEffects returns the effects that List shows, in order. Whether their arguments are stored is known before those are read, so that all
// pages of a list count the same effects.
func (e *Effects) waitingEffects(ctx context.Context, thread *store.Thread, name string) ([]waitingEffect, error) {
	pending, err := e.pendingEffects(ctx, thread, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	stored, err := e.store.StoredEffectArgs(ctx, thread.ID) // after the objects, which are made after their arguments are stored
	if err != nil {
		return nil, err
	}
	slices.Sort(stored)
	var out []waitingEffect
	for _, s := range pending {
		if name != "" && objects.EffectName(s.Spec.Effect) != objects.EffectName(name) {
			continue
		}
		if s.Spec.ArgsRef != "" {
			if _, found := slices.BinarySearch(stored, s.Spec.ArgsRef); !found || !HasArgs(s, thread.ID) {
				continue // it has fired, or its thread is being purged
			}
		}
		if due := e.next(s); !due.IsZero() {
			out = append(out, waitingEffect{s, due.UnixMicro()})
		}
	}
	slices.SortFunc(out, func(a, b waitingEffect) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.object.UID, b.object.UID))
	})
	return out, nil
}
