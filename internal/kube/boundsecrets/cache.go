// Package boundsecrets caches Secrets of single namespaces, for a manager without the right to those of all. It opens a cache of a
// namespace when something reads a Secret there and a RoleBinding allows it. It checks namespaces without such a binding again from
// time to time.
package boundsecrets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/objects"
)

const (
	// lookAgain is how often the manager checks a namespace again whose Secrets it may not read, even if nothing reads them.
	lookAgain = 15 * time.Second
	// askAgain is how soon a read makes the manager check again.
	askAgain = time.Second
	// patience bounds how long a caller waits until a namespace is known.
	patience = 10 * time.Second
)

// Options are the options of a cache.
type Options struct {
	// Others caches everything but Secrets.
	Others cache.Cache
	// Open returns a cache of one namespace, which calls failed with the errors of its watches.
	Open func(namespace string, failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error)
	// Object and List are the form in which Secrets are cached: their metadata, or all of them.
	Object func() client.Object
	List   func() client.ObjectList
	// Allowed reports whether the manager may read the Secrets of a namespace.
	Allowed func(ctx context.Context, namespace string) (bool, error)
	// Namespaces reads the metadata of Namespaces.
	Namespaces client.Reader
	Clock      clock.WithTicker
	Logger     logr.Logger
}

// Cache is a cache whose Secrets are those of the namespaces where the manager may read them. A read in another namespace is
// forbidden.
type Cache struct {
	cache.Cache
	opts     Options
	informer *informer

	mu         sync.Mutex
	running    context.Context // ends with the cache; nil until that starts
	work       sync.WaitGroup
	namespaces map[string]*namespace
}

// namespace is what is known of the Secrets of a namespace. It does not change once done is closed.
type namespace struct {
	done   chan struct{}
	asked  time.Time
	end    context.CancelFunc
	secret cache.Cache    // nil when they cannot be read
	events cache.Informer // of secret
	err    error          // why they cannot be read
}

// New returns a cache that is not started.
func New(o Options) *Cache {
	c := &Cache{Cache: o.Others, opts: o, namespaces: map[string]*namespace{}}
	c.informer = &informer{cache: c}
	return c
}

// Start implements cache.Informers.
func (c *Cache) Start(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	c.mu.Lock()
	c.running = ctx
	c.work.Go(func() { c.keepLooking(ctx) })
	c.mu.Unlock()
	err := c.Cache.Start(ctx)
	c.mu.Lock() // after this, look opens no more namespaces
	end()
	c.mu.Unlock()
	c.work.Wait()
	return err
}

// GetInformer implements cache.Informers. That of Secrets has the events of each namespace whose Secrets can be read.
func (c *Cache) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if isSecret(o) {
		return c.informer, nil
	}
	return c.Cache.GetInformer(ctx, o, opts...)
}

// GetInformerForKind implements cache.Informers.
func (c *Cache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if kind == corev1.SchemeGroupVersion.WithKind("Secret") {
		return c.informer, nil
	}
	return c.Cache.GetInformerForKind(ctx, kind, opts...)
}

// Get implements client.Reader.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if !isSecret(o) {
		return c.Cache.Get(ctx, key, o, opts...)
	}
	secrets, err := c.cacheOf(ctx, key.Namespace)
	if err != nil {
		return err
	}
	return secrets.Get(ctx, key, o, opts...)
}

// List implements client.Reader. It lists Secrets of one namespace only.
func (c *Cache) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if !isSecretList(l) {
		return c.Cache.List(ctx, l, opts...)
	}
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	if namespace == "" {
		return errors.New("the manager does not list the Secrets of all namespaces")
	}
	secrets, err := c.cacheOf(ctx, namespace)
	if err != nil {
		return err
	}
	return secrets.List(ctx, l, opts...)
}

func isSecret(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.Secret:
		return true
	case *metav1.PartialObjectMetadata:
		return o.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Secret")
	}
	return false
}

func isSecretList(l client.ObjectList) bool {
	switch l := l.(type) {
	case *corev1.SecretList:
		return true
	case *metav1.PartialObjectMetadataList:
		return l.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("SecretList")
	}
	return false
}

// cacheOf returns the cache of a namespace, and opens it if need be.
func (c *Cache) cacheOf(ctx context.Context, name string) (cache.Cache, error) {
	n, err := c.look(name, askAgain)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-n.done:
		return n.secret, n.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the Secrets of namespace %q: %w", name, ctx.Err())
	}
}

// look returns what is known of a namespace. It looks at one that is new, and again at one whose Secrets could not be read some
// time ago.
func (c *Cache) look(name string, after time.Duration) (*namespace, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return nil, &cache.ErrCacheNotStarted{}
	}
	if err := c.running.Err(); err != nil {
		return nil, err
	}
	if n := c.namespaces[name]; n != nil && (!n.isRefused() || c.opts.Clock.Since(n.asked) < after) {
		return n, nil
	}
	refused := c.namespaces[name]
	n := &namespace{done: make(chan struct{}), asked: c.opts.Clock.Now()}
	ctx, end := context.WithCancelCause(c.running)
	n.end = func() { end(nil) }
	c.namespaces[name] = n
	c.work.Go(func() {
		defer close(n.done)
		if n.err = c.open(ctx, end, name, n); n.err != nil {
			n.secret = nil
			end(nil)
			if refused != nil && apierrors.IsForbidden(refused.err) && errors.Is(n.err, errNotAsked) {
				n.err = refused.err // while the API server is away, its last answer holds
			}
		}
	})
	return n, nil
}

// isRefused reports whether it is known that the Secrets of a namespace cannot be read.
func (n *namespace) isRefused() bool {
	select {
	case <-n.done:
		return n.err != nil
	default:
		return false
	}
}

// open fills the cache of a namespace. Without the right to do so it opens no watch, which would only fail again and again.
func (c *Cache) open(ctx context.Context, end context.CancelCauseFunc, name string, n *namespace) error {
	asking, done := context.WithTimeout(ctx, patience)
	allowed, err := c.opts.Allowed(asking, name)
	done()
	if err != nil {
		return fmt.Errorf("%w of namespace %q may be read: %w", errNotAsked, name, err)
	}
	if !allowed {
		return forbidden(name)
	}
	n.secret, err = c.opts.Open(name, func(ctx context.Context, r *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			end(forbidden(name))
			c.work.Go(func() { c.withdraw(name, n) })
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return err
	}
	if n.events, err = n.secret.GetInformer(ctx, c.opts.Object(), cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	if err := c.informer.join(n.events); err != nil {
		return err
	}
	secrets := n.secret // look sets the field to nil when this fails
	c.work.Go(func() {
		if err := secrets.Start(ctx); err != nil && ctx.Err() == nil {
			c.opts.Logger.Error(err, "the cache of the Secrets of a namespace has ended", "namespace", name)
		}
	})
	if !secrets.WaitForCacheSync(ctx) {
		return fmt.Errorf("read the Secrets of namespace %q: %w", name, context.Cause(ctx))
	}
	c.opts.Logger.Info("reads the Secrets of a namespace", "namespace", name)
	return nil
}

// withdraw handles the loss of the right to read the Secrets of a namespace. Watchers see these Secrets as deleted.
func (c *Cache) withdraw(name string, n *namespace) {
	<-n.done
	if n.err != nil {
		return // it was never readable
	}
	gone := &namespace{done: make(chan struct{}), asked: c.opts.Clock.Now(), end: func() {}, err: forbidden(name)}
	close(gone.done)
	c.mu.Lock()
	current := c.namespaces[name] == n
	if current {
		c.namespaces[name] = gone
	}
	c.mu.Unlock()
	if current {
		c.opts.Logger.Info("may not read the Secrets of a namespace any more", "namespace", name)
		c.informer.leave(name, n)
	}
}

// errNotAsked is the error when the API server could not be asked for the right.
var errNotAsked = errors.New("ask whether the Secrets")

// forbidden returns the error of a read in a namespace without a binding.
func forbidden(name string) error {
	return apierrors.NewForbidden(corev1.Resource("secrets"), "", fmt.Errorf("no RoleBinding lets the manager read those of namespace %q", name))
}

// keepLooking looks again at the namespaces whose Secrets cannot be read, and forgets those that are gone, until ctx ends.
func (c *Cache) keepLooking(ctx context.Context) {
	ticker := c.opts.Clock.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, name := range c.namespaceNames() {
			err := c.opts.Namespaces.Get(ctx, client.ObjectKey{Name: name}, objects.MetadataOf("Namespace"))
			if apierrors.IsNotFound(err) {
				c.forget(name)
			} else if _, err := c.look(name, askAgain); err != nil {
				c.opts.Logger.Error(err, "cannot look at the Secrets of a namespace", "namespace", name)
			}
		}
	}
}

func (c *Cache) namespaceNames() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.namespaces {
		names = append(names, name)
	}
	return names
}

// forget ends the cache of a namespace that does not exist any more.
func (c *Cache) forget(name string) {
	c.mu.Lock()
	n := c.namespaces[name]
	delete(c.namespaces, name)
	c.mu.Unlock()
	if n != nil {
		n.end()
	}
}
