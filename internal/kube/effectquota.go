package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
)

// Default quotas of ScheduledEffects that have not ended.
const (
	DefaultThreadEffects    = 10_000
	DefaultNamespaceEffects = 100_000
)

// unseenFor is how long a created object counts that the cache has not shown. It may have been deleted before the cache saw
// it, so that it never will.
const unseenFor = time.Minute

// EffectQuota counts the ScheduledEffects that have not ended, by thread and by namespace, as the cache reports them, so
// that a call costs the same however many there are. Objects that this process is creating count at once: of calls at the
// same time, no more are admitted than have room. Calls to other replicas count when the cache shows their objects, so that
// replicas together exceed a quota by at most the calls that the others admit meanwhile. EffectQuota is safe for concurrent use.
type EffectQuota struct {
	// PerThread and PerNamespace are the quotas; 0 means without limit.
	PerThread, PerNamespace int

	synced func() bool // whether the cache has reported all objects; nil means yes

	mu     sync.Mutex
	counts map[client.ObjectKey]int                  // by namespace and thread; of a whole namespace with the name ""
	known  map[string]map[string]struct{}            // by namespace: the names of all objects that the cache has shown
	unseen map[client.ObjectKey]map[string]time.Time // by namespace and thread: created objects that the cache has not shown
}

// NewEffectQuota returns a quota for a thread and for a namespace.
func NewEffectQuota(perThread, perNamespace int) *EffectQuota {
	return &EffectQuota{PerThread: perThread, PerNamespace: perNamespace, counts: map[client.ObjectKey]int{}, known: map[string]map[string]struct{}{}, unseen: map[client.ObjectKey]map[string]time.Time{}}
}

// Watch counts the ScheduledEffects of a cache.
func (q *EffectQuota) Watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &skeinv1.ScheduledEffect{})
	if err != nil {
		return fmt.Errorf("count ScheduledEffects: %w", err)
	}
	registration, err := informer.AddEventHandler(q)
	if err != nil {
		return fmt.Errorf("count ScheduledEffects: %w", err)
	}
	q.synced = registration.HasSynced
	return nil
}

// OnAdd implements cache.ResourceEventHandler.
func (q *EffectQuota) OnAdd(o any, _ bool) { q.change(nil, o) }

// OnUpdate implements cache.ResourceEventHandler.
func (q *EffectQuota) OnUpdate(before, after any) { q.change(before, after) }

// OnDelete implements cache.ResourceEventHandler.
func (q *EffectQuota) OnDelete(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	q.change(o, nil)
}

// change counts that an object changed. It is nil before it exists, and afterwards.
func (q *EffectQuota) change(before, after any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, ok := before.(*skeinv1.ScheduledEffect); ok && s.Status.CompletionTime == nil {
		q.count(s, -1)
	}
	s, ok := after.(*skeinv1.ScheduledEffect)
	if !ok {
		if s, ok = before.(*skeinv1.ScheduledEffect); ok {
			delete(q.known[s.Namespace], s.Name)
		}
		return
	}
	if q.known[s.Namespace] == nil {
		q.known[s.Namespace] = map[string]struct{}{}
	}
	q.known[s.Namespace][s.Name] = struct{}{}
	q.see(client.ObjectKey{Namespace: s.Namespace}, s.Name)
	q.see(quotaKey(s), s.Name)
	if s.Status.CompletionTime == nil {
		q.count(s, 1)
	}
}

func (q *EffectQuota) count(s *skeinv1.ScheduledEffect, n int) {
	q.add(client.ObjectKey{Namespace: s.Namespace}, n)
	if key := quotaKey(s); key.Name != "" {
		q.add(key, n)
	}
}

func (q *EffectQuota) add(key client.ObjectKey, n int) {
	if q.counts[key] += n; q.counts[key] == 0 {
		delete(q.counts, key)
	}
}

func (q *EffectQuota) see(key client.ObjectKey, name string) {
	if of := q.unseen[key]; of != nil {
		if delete(of, name); len(of) == 0 {
			delete(q.unseen, key)
		}
	}
}

// quotaKey returns the thread of an object. Its name is "" when there is none.
func quotaKey(s *skeinv1.ScheduledEffect) client.ObjectKey {
	key := client.ObjectKey{Namespace: s.Namespace}
	if s.Spec.ThreadRef != nil {
		key.Name = s.Spec.ThreadRef.Name
	}
	return key
}

// countUnended returns how many objects of a namespace have not ended: those that the cache has shown, and those of claimed that it has not.
func (q *EffectQuota) countUnended(ctx context.Context, namespace string, claimed []string) (int64, error) {
	if err := q.wait(ctx); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int64(q.counts[client.ObjectKey{Namespace: namespace}])
	for _, name := range claimed {
		if _, ok := q.known[namespace][name]; !ok {
			n++
		}
	}
	return n, nil
}

// wait returns when the cache has reported all objects.
func (q *EffectQuota) wait(ctx context.Context) error {
	if q.synced != nil && !toolscache.WaitForCacheSync(ctx.Done(), q.synced) {
		return fmt.Errorf("count ScheduledEffects: %w", context.Cause(ctx))
	}
	return nil
}

// admit counts an object that is about to be created, or returns a *ports.EffectQuotaError. undo is for an object that was
// not created.
func (q *EffectQuota) admit(ctx context.Context, thread *store.Thread, name string, now time.Time) (undo func(), err error) {
	if err := q.wait(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	levels := []struct {
		key        client.ObjectKey
		what, flag string
		most       int
	}{
		{client.ObjectKey{Namespace: thread.Namespace, Name: thread.Name}, fmt.Sprintf("thread %q", thread.Name), "--thread-effects", q.PerThread},
		{client.ObjectKey{Namespace: thread.Namespace}, fmt.Sprintf("namespace %q", thread.Namespace), "--namespace-effects", q.PerNamespace},
	}
	if _, there := q.unseen[levels[0].key][name]; there {
		return func() {}, nil // an earlier attempt of the call counts
	}
	for _, l := range levels {
		if l.most <= 0 || q.counts[l.key]+len(q.unseen[l.key]) < l.most {
			continue
		}
		for other, at := range q.unseen[l.key] {
			if now.Sub(at) > unseenFor {
				q.see(l.key, other)
			}
		}
		if n := q.counts[l.key] + len(q.unseen[l.key]); n >= l.most {
			return nil, &ports.EffectQuotaError{Message: fmt.Sprintf(
				"the %s has %d ScheduledEffects that have not ended, and its quota is %d: remove some with removeScheduledEffect, wait until they have ended, or raise %s of the manager",
				l.what, n, l.most, l.flag)}
		}
	}
	for _, l := range levels {
		if q.unseen[l.key] == nil {
			q.unseen[l.key] = map[string]time.Time{}
		}
		q.unseen[l.key][name] = now
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, l := range levels {
			q.see(l.key, name)
		}
	}, nil
}
