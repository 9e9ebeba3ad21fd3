package kube

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// FlagNamespaceQuota is the flag of the manager with the quotas of namespaces whose ThreadQuotas do not name a resource.
const FlagNamespaceQuota = "namespace-quota"

// Quotas returns the quotas of namespaces: what their ThreadQuotas say, as the cache reports them, and else the manager's
// flag. It is safe for concurrent use, and never waits.
type Quotas struct {
	defaults store.Quotas

	mu sync.RWMutex
	of map[string]map[string]store.Quotas // by namespace and name of the ThreadQuota
}

// NewQuotas returns quotas with the limits of the flag.
func NewQuotas(defaults store.Quotas) *Quotas {
	return &Quotas{defaults: defaults, of: map[string]map[string]store.Quotas{}}
}

// Watch follows the ThreadQuotas of a cache.
func (q *Quotas) Watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &skeinv1.ThreadQuota{})
	if err == nil {
		_, err = informer.AddEventHandler(q)
	}
	if err != nil {
		return fmt.Errorf("follow ThreadQuotas: %w", err)
	}
	return nil
}

// Limits returns the quotas of a namespace: the lowest of each limit. The caller must not change them.
func (q *Quotas) Limits(namespace string) store.Quotas {
	q.mu.RLock()
	defer q.mu.RUnlock()
	declared := q.of[namespace]
	if len(declared) == 0 {
		return q.defaults
	}
	lowest := store.Quotas{}
	for _, limits := range declared {
		for r, l := range limits {
			if have, ok := lowest[r]; !ok || l.Hard < have.Hard || l.Hard == have.Hard && l.By < have.By {
				lowest[r] = l
			}
		}
	}
	for r, l := range q.defaults {
		if _, ok := lowest[r]; !ok {
			lowest[r] = l
		}
	}
	return lowest
}

// OnAdd implements cache.ResourceEventHandler.
func (q *Quotas) OnAdd(o any, _ bool) { q.set(o) }

// OnUpdate implements cache.ResourceEventHandler.
func (q *Quotas) OnUpdate(_, after any) { q.set(after) }

// OnDelete implements cache.ResourceEventHandler.
func (q *Quotas) OnDelete(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	t, ok := o.(*skeinv1.ThreadQuota)
	if !ok {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if delete(q.of[t.Namespace], t.Name); len(q.of[t.Namespace]) == 0 {
		delete(q.of, t.Namespace)
	}
}

// set takes over the limits of an object. Limits that could not be decoded stay as they were.
func (q *Quotas) set(o any) {
	t, ok := o.(*skeinv1.ThreadQuota)
	if !ok || t.Undecodable != "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[t.Namespace] == nil {
		q.of[t.Namespace] = map[string]store.Quotas{}
	}
	q.of[t.Namespace][t.Name] = DeclaredQuotas(t)
}

// DeclaredQuotas returns the limits of a ThreadQuota.
func DeclaredQuotas(t *skeinv1.ThreadQuota) store.Quotas {
	by := fmt.Sprintf("ThreadQuota %q", t.Name)
	out := store.Quotas{}
	for r, n := range quotaFields(&t.Spec.Hard) {
		if *n != nil {
			out[r] = store.QuotaLimit{Hard: **n, By: by}
		}
	}
	if b := t.Spec.Hard.Bytes; b != nil {
		out[store.QuotaBytes] = store.QuotaLimit{Hard: b.Value(), By: by}
	}
	if b := t.Spec.Hard.MessageBytes; b != nil {
		out[store.QuotaMessageBytes] = store.QuotaLimit{Hard: b.Value(), By: by}
	}
	if c := t.Spec.Hard.CostPerDay; c != nil {
		out[store.QuotaCost] = store.QuotaLimit{Hard: c.ScaledValue(resource.Nano), By: by}
	}
	return out
}

// QuotaAmounts returns amounts in the form of the API.
func QuotaAmounts(of map[store.QuotaResource]int64) *skeinv1.QuotaAmounts {
	out := &skeinv1.QuotaAmounts{}
	for r, field := range quotaFields(out) {
		if n, ok := of[r]; ok {
			*field = &n
		}
	}
	if n, ok := of[store.QuotaBytes]; ok {
		out.Bytes = resource.NewQuantity(n, resource.BinarySI)
	}
	if n, ok := of[store.QuotaMessageBytes]; ok {
		out.MessageBytes = resource.NewQuantity(n, resource.BinarySI)
	}
	if n, ok := of[store.QuotaCost]; ok {
		cost := resource.MustParse(store.QuotaAmount(store.QuotaCost, n))
		out.CostPerDay = &cost
	}
	return out
}

func quotaFields(a *skeinv1.QuotaAmounts) map[store.QuotaResource]**int64 {
	return map[store.QuotaResource]**int64{
		store.QuotaThreads: &a.Threads, store.QuotaRunningThreads: &a.RunningThreads, store.QuotaTokens: &a.TokensPerDay, store.QuotaEffects: &a.PendingEffects,
	}
}

// ParseQuotas reads the values of the flag.
func ParseQuotas(values map[string]string) (store.Quotas, error) {
	out := store.Quotas{}
	known := map[store.QuotaResource]resource.Scale{
		store.QuotaThreads: 0, store.QuotaRunningThreads: 0, store.QuotaBytes: 0, store.QuotaMessageBytes: 0, store.QuotaTokens: 0, store.QuotaCost: resource.Nano, store.QuotaEffects: 0,
	}
	for name, value := range values {
		scale, ok := known[store.QuotaResource(name)]
		if !ok {
			return nil, fmt.Errorf("--%s: there is no quota %q: name threads, runningThreads, bytes, messageBytes, tokensPerDay, costPerDay or pendingEffects", FlagNamespaceQuota, name)
		}
		n, err := resource.ParseQuantity(value)
		if err != nil || n.Sign() < 0 {
			return nil, fmt.Errorf("--%s=%s=%s: give an amount of 0 or more, such as 100, 10Gi or 2.50", FlagNamespaceQuota, name, value)
		}
		out[store.QuotaResource(name)] = store.QuotaLimit{Hard: n.ScaledValue(scale), By: "--" + FlagNamespaceQuota + " of the manager"}
	}
	return out, nil
}
