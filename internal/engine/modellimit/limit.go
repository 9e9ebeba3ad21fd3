// Package modellimit holds the calls of a Model to its limits, over all replicas (AGT-06). The store says who may call;
// of each replica only the first in its own line asks it, so that a thousand waiting calls cost no more than one.
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
	// term of a permit: after it the permits of a lost replica come back. It is that of the lease of a thread, so that
	// whoever takes over its runs finds the permits free that these had.
	term = 15 * time.Second
	// askAgain is how long the first in the line waits at most until it asks again: another replica may have given a
	// permit back.
	askAgain = time.Second
	// giveBack bounds what is done for a call that has ended.
	giveBack = 5 * time.Second
)

// Permits is the part of the store that is needed.
type Permits interface {
	TakePermit(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error)
	RenewPermit(ctx context.Context, namespace, model, id string, ttl time.Duration) error
	ReturnPermit(ctx context.Context, namespace, model, id string, tokens int64) error
}

// Limiter of all Models. It is safe for concurrent use.
type Limiter struct {
	permits Permits
	clock   clock.WithTicker
	longest int

	mu    sync.Mutex
	lines map[key]*line
}

type key struct{ namespace, model string }

// New makes a limiter.
func New(permits Permits, clk clock.WithTicker) *Limiter {
	return &Limiter{permits: permits, clock: clk, longest: longest, lines: map[key]*line{}}
}

// WithLines changes how many calls of a Model wait here before those that may come later are turned away: 32. Call it
// before the first client is made.
func (l *Limiter) WithLines(longest int) *Limiter {
	l.longest = longest
	return l
}

// Wrap holds the calls of a client to limits. Without any it gives the client as it is.
func (l *Limiter) Wrap(c model.Client, namespace, name string, limits *skeinv1.ModelLimits) model.Client {
	if !limits.Any() {
		return c
	}
	return &limited{client: c, limiter: l, key: key{namespace, name}, limits: *limits}
}

func (l *Limiter) line(k key) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines[k] == nil {
		l.lines[k] = newLine()
	}
	return l.lines[k]
}

type limited struct {
	client  model.Client
	limiter *Limiter
	key     key
	limits  skeinv1.ModelLimits
}

// Stream implements model.Client.
func (c *limited) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	later := model.LaterOf(ctx)
	if req.Try > 0 {
		later = nil // something was asked before
	}
	leave, err := c.enter(ctx, later)
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

// Embed implements model.Embedder, where the client does.
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

// enter waits for the permit to make one call. Call leave when it is over. The error is model.ErrLater where the call was
// turned away.
func (c *limited) enter(ctx context.Context, later *model.Later) (leave func(*model.Usage), err error) {
	l := c.limiter.line(c.key)
	if !l.enter(later, c.limiter.longest) {
		return nil, model.ErrLater
	}
	defer l.leave(c.limiter.longest)
	select {
	case l.door <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil { // it ended in the line
		<-l.door
		return nil, context.Cause(ctx)
	}
	id := uuid.NewString()
	err = c.wait(ctx, l, id)
	<-l.door
	if err != nil {
		c.end(ctx, l, id, 0)
		return nil, err
	}
	stop := c.renew(ctx, id)
	return func(u *model.Usage) {
		stop()
		var tokens int64
		if u != nil {
			tokens = u.Tokens()
		}
		c.end(ctx, l, id, tokens)
	}, nil
}

// wait asks until the permit is granted.
func (c *limited) wait(ctx context.Context, l *line, id string) error {
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
			pause = min(answer.Wait, term/2) // its place in the line must not run out
		}
		timer := c.limiter.clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-l.freed:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// renew keeps the permit while the call is under way.
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
				return // it has run out while the store could not be reached: the call goes on, and counts no more
			}
		}
	}()
	return cancel
}

// end gives back what a call has, whatever has become of its context. What cannot be given back runs out.
func (c *limited) end(ctx context.Context, l *line, id string, tokens int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	_ = c.limiter.permits.ReturnPermit(ctx, c.key.namespace, c.key.model, id, tokens)
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
