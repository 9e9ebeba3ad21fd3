package kube

import (
	"cmp"
	"context"
	"errors"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
)

// WithQuotas sets what returns the quotas of a namespace, and returns e.
func (e *Effects) WithQuotas(limits func(namespace string) store.Quotas) *Effects {
	e.limits = limits
	return e
}

// CountPending returns how many ScheduledEffects of a namespace have not ended, as the cache shows them.
func (e *Effects) CountPending(ctx context.Context, namespace string) (int64, error) {
	return e.quota.countUnended(ctx, namespace, nil)
}

// claim reserves room for an effect in the quota of its namespace, over all replicas (K8S-11). release is for an object that
// could not be created.
func (e *Effects) claim(ctx context.Context, s *skeinv1.ScheduledEffect) (release func(), err error) {
	release = func() {}
	if e.limits == nil {
		return release, nil
	}
	limit, ok := e.limits(s.Namespace)[store.QuotaEffects]
	if !ok {
		return release, nil
	}
	var failed error
	err = e.store.ClaimQuota(ctx, store.QuotaClaim{
		Namespace: s.Namespace, Resource: store.QuotaEffects, Name: s.Name, Limit: limit, TTL: unseenFor,
		Count: func(claimed []string) (n int64) {
			n, failed = e.quota.countUnended(ctx, s.Namespace, claimed)
			return n
		},
	})
	var full *store.NamespaceQuotaError
	if failed == nil && errors.As(err, &full) {
		return nil, &ports.EffectQuotaError{Message: full.Error()}
	}
	if err := cmp.Or(failed, err); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = e.store.ReleaseQuota(ctx, s.Namespace, store.QuotaEffects, s.Name) // otherwise it ends by itself
	}, nil
}

// releaseTimeout bounds giving up a claim.
const releaseTimeout = 5 * time.Second
