// Package modellimit applies the limits of a Model to its calls on all replicas together (AGT-06). The store grants permits.
// On each replica only the first call that waits asks the store, so that a thousand waiting calls cost no more than one.
package modellimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// term is how long a permit lasts unless it is renewed. After it the permits of a lost replica are free again. It equals
	// the default term of a thread's lease, so that the permits are free when another replica takes over the runs.
	term = 15 * time.Second
	// askAgain is how long the first waiting call waits until it asks again, because another replica may have returned a
	// permit.
	askAgain = time.Second
	// giveBack bounds the return of the permit of a call that has ended.
	giveBack = 5 * time.Second
)

// Permits is the part of the store that a Limiter uses.
type Permits interface {
	TakePermit(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error)
	RenewPermit(ctx context.Context, namespace, model, id string, ttl time.Duration) error
	ReturnPermit(ctx context.Context, namespace, model, id string, tokens int64) error
}

// Limiter applies the limits of all Models. It is safe for concurrent use.
type Limiter struct {
	permits    Permits
	clock      clock.WithTicker
	maxWaiting int // see WithMaxWaiting

	mu     sync.Mutex
	queues map[key]*waitQueue
}

type key struct{ namespace, model string }

// New returns a limiter.
func New(permits Permits, clk clock.WithTicker) *Limiter {
	return &Limiter{permits: permits, clock: clk, maxWaiting: maxWaiting, queues: map[key]*waitQueue{}}
}

// WithMaxWaiting changes how many calls of a Model wait in this process before further calls that have a Deferral are deferred. The
// default is 32. Call it before the first client is made.
func (l *Limiter) WithMaxWaiting(n int) *Limiter {
	l.maxWaiting = n
	return l
}

// Wrap returns a client that applies limits to its calls. It returns c itself if there are no limits.
func (l *Limiter) Wrap(c model.Client, namespace, name string, limits *skeinv1.ModelLimits) model.Client {
	if !limits.Any() {
		return c
	}
	return &limited{client: c, limiter: l, key: key{namespace, name}, limits: *limits}
}

// queue returns the waiting calls of a Model.
func (l *Limiter) queue(k key) *waitQueue {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queues[k] == nil {
		l.queues[k] = newWaitQueue()
	}
	return l.queues[k]
}

// limited is a client whose calls need permits.
type limited struct {
	client  model.Client
	limiter *Limiter
	key     key
	limits  skeinv1.ModelLimits
}

// Stream implements model.Client.
func (c *limited) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	deferral := req.Deferral
	if req.Try > 0 {
		deferral = nil // the call has been tried before, so it is not deferred
	}
	leave, err := c.enter(ctx, deferral)
	if err != nil {
		return nil, err
	}
	var used *model.Usage
	defer func() { leave(used) }()
	res, err := c.client.Stream(ctx, req, emit)
	if err != nil {
		return nil, err
	}
	used = res.Usage
	return res, nil
}

// Embed implements model.Embedder, if the client does.
func (c *limited) Embed(ctx context.Context, texts []string) (*model.Embeddings, error) {
	e, err := model.EmbedderOf(c.client, c.key.model)
	if err != nil {
		return nil, err
	}
	leave, err := c.enter(ctx, nil)
	if err != nil {
		return nil, err
	}
	var used *model.Usage
	defer func() { leave(used) }()
	out, err := e.Embed(ctx, texts)
	if err != nil {
		return nil, err
	}
	used = out.Usage
	return out, nil
}

// enter waits for the permit to make one call. Call leave when the call has ended. The error is model.ErrDeferred if the call
// was deferred.
func (c *limited) enter(ctx context.Context, deferral *model.Deferral) (leave func(*model.Usage), err error) {
	q := c.limiter.queue(c.key)
	if !q.enter(deferral, c.limiter.maxWaiting) {
		return nil, model.ErrDeferred
	}
	defer q.leave(c.limiter.maxWaiting)
	select {
	case q.first <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil { // ctx ended while the call waited in the queue
		<-q.first
		return nil, context.Cause(ctx)
	}
	id := uuid.NewString()
	err = c.wait(ctx, q, id)
	<-q.first
	if err != nil {
		c.end(ctx, q, id, 0)
		return nil, err
	}
	stop := c.renew(ctx, id)
	return func(u *model.Usage) {
		stop()
		var tokens int64
		if u != nil {
			tokens = u.Tokens()
		}
		c.end(ctx, q, id, tokens)
	}, nil
}

// wait asks the store until it grants the permit.
func (c *limited) wait(ctx context.Context, q *waitQueue, id string) error {
	for {
		answer, err := c.limiter.permits.TakePermit(ctx, store.PermitRequest{
			Namespace: c.key.namespace, Model: c.key.model, ID: id, TTL: term,
			Concurrent: int64(c.limits.MaxConcurrent), Requests: int64(c.limits.RequestsPerMinute), Tokens: c.limits.TokensPerMinute,
		})
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || answer.Granted {
			return err
		}
		pause := askAgain
		if answer.Wait > pause {
			pause = min(answer.Wait, term/2) // ask before the call's place in the store's queue expires
		}
		timer := c.limiter.clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-q.freed:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// renew renews the permit until stop is called, on a goroutine of its own.
func (c *limited) renew(ctx context.Context, id string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ticker := c.limiter.clock.NewTicker(term / 3)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			}
			err := c.limiter.permits.RenewPermit(ctx, c.key.namespace, c.key.model, id, term)
			if errors.Is(err, store.ErrNotFound) {
				return // the permit expired while the store could not be reached: the call continues and no longer counts
			}
		}
	}()
	return cancel
}

// end returns the permit of a call, even if the call's context has ended. A permit that cannot be returned expires.
func (c *limited) end(ctx context.Context, q *waitQueue, id string, tokens int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	_ = c.limiter.permits.ReturnPermit(ctx, c.key.namespace, c.key.model, id, tokens)
	select {
	case q.freed <- struct{}{}:
	default:
	}
}
