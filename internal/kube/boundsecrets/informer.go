package boundsecrets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informer has the events of the Secrets of all namespaces where they can be read, also of those that are opened later.
type informer struct {
	cache *Cache

	mu       sync.Mutex
	handlers []*registration
	joined   []cache.Informer
}

// registration is one handler. It counts as synced at once, because further namespaces may always follow.
type registration struct {
	handler toolscache.ResourceEventHandler
	options toolscache.HandlerOptions
	at      map[cache.Informer]toolscache.ResourceEventHandlerRegistration
}

// synced is a DoneChecker that is done.
type synced struct{ done chan struct{} }

// Name implements toolscache.DoneChecker.
func (synced) Name() string { return "Secrets by namespace" }

// Done implements toolscache.DoneChecker.
func (s synced) Done() <-chan struct{} { return s.done }

func alreadySynced() toolscache.DoneChecker {
	s := synced{make(chan struct{})}
	close(s.done)
	return s
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (*registration) HasSynced() bool { return true }

// HasSyncedChecker implements toolscache.ResourceEventHandlerRegistration.
func (*registration) HasSyncedChecker() toolscache.DoneChecker { return alreadySynced() }

// join adds the handlers to the informer of a namespace.
func (i *informer) join(one cache.Informer) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.joined = slices.DeleteFunc(i.joined, cache.Informer.IsStopped)
	for _, r := range i.handlers {
		maps.DeleteFunc(r.at, func(old cache.Informer, _ toolscache.ResourceEventHandlerRegistration) bool { return old.IsStopped() })
		if err := r.add(one); err != nil {
			return err
		}
	}
	i.joined = append(i.joined, one)
	return nil
}

func (r *registration) add(one cache.Informer) error {
	at, err := one.AddEventHandlerWithOptions(r.handler, r.options)
	if err == nil {
		r.at[one] = at
	}
	return err
}

// leave tells the handlers that the Secrets of a namespace are gone, because they cannot be read any more.
func (i *informer) leave(name string, n *namespace) {
	list := i.cache.opts.List()
	if err := n.secret.List(context.Background(), list, client.InNamespace(name)); err != nil {
		i.cache.opts.Logger.Error(err, "cannot tell which Secrets cannot be read any more", "namespace", name)
	}
	i.mu.Lock()
	i.joined = slices.DeleteFunc(i.joined, func(one cache.Informer) bool { return one == n.events })
	handlers := slices.Clone(i.handlers)
	for _, r := range handlers {
		delete(r.at, n.events)
	}
	i.mu.Unlock()
	_ = meta.EachListItem(list, func(o runtime.Object) error { // the function never fails
		for _, r := range handlers {
			r.handler.OnDelete(o)
		}
		return nil
	})
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &registration{handler: h, options: o, at: map[cache.Informer]toolscache.ResourceEventHandlerRegistration{}}
	for _, one := range i.joined {
		if one.IsStopped() {
			continue
		}
		if err := r.add(one); err != nil {
			return nil, err
		}
	}
	i.handlers = append(i.handlers, r)
	return r, nil
}

// RemoveEventHandler implements cache.Informer.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	r, ok := handle.(*registration)
	if !ok {
		return errors.New("the handler is of another informer")
	}
	i.handlers = slices.DeleteFunc(i.handlers, func(other *registration) bool { return other == r })
	var errs []error
	for one, at := range r.at {
		errs = append(errs, one.RemoveEventHandler(at))
	}
	clear(r.at)
	return errors.Join(errs...)
}

// AddIndexers implements cache.Informer. Secrets are found by name and label only.
func (i *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("there are no indexes of Secrets by namespace")
}

// HasSynced implements cache.Informer.
func (i *informer) HasSynced() bool { return true }

// HasSyncedChecker implements cache.Informer.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return alreadySynced() }

// IsStopped implements cache.Informer.
func (i *informer) IsStopped() bool {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	return i.cache.running != nil && i.cache.running.Err() != nil
}
