package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultRetries is how often a passing failure is retried when the Model does not say.
	DefaultRetries = 2
	firstBackoff   = 500 * time.Millisecond
	maxBackoff     = 30 * time.Second
)

// WithRetries returns a client that retries a call, up to retries times, after a passing failure: after as long as the
// provider asked, or else with exponential backoff. A Delta with Reset discards the pieces of a failed attempt.
func WithRetries(c Client, retries int, clk clock.Clock) Client {
	if retries <= 0 {
		return c
	}
	return &retrying{client: c, retries: retries, clock: clk}
}

type retrying struct {
	client  Client
	retries int
	clock   clock.Clock
}

// Stream implements Client.
func (r *retrying) Stream(ctx context.Context, req Request, emit func(Delta)) (res *Response, err error) {
	sent := false
	err = r.try(ctx, func(try int) error {
		if sent {
			emit(Delta{Reset: true})
			sent = false
		}
		req.Try = try
		res, err = r.client.Stream(ctx, req, func(d Delta) {
			sent = true
			emit(d)
		})
		return err
	})
	return res, err
}

// Embed implements Embedder if the client does.
func (r *retrying) Embed(ctx context.Context, texts []string) (out *Embeddings, err error) {
	e, err := EmbedderOf(r.client, "")
	if err != nil {
		return nil, err
	}
	err = r.try(ctx, func(int) error {
		out, err = e.Embed(ctx, texts)
		return err
	})
	return out, err
}

// try calls fn until it succeeds, fails permanently, or has failed too often.
func (r *retrying) try(ctx context.Context, fn func(try int) error) error {
	for try := 0; ; try++ {
		err := fn(try)
		var failure *Error
		if err == nil || try == r.retries || !errors.As(err, &failure) || !failure.Passing {
			return err
		}
		if err := r.sleep(ctx, backoff(try, failure.RetryAfter)); err != nil {
			return err
		}
	}
}

func (r *retrying) sleep(ctx context.Context, d time.Duration) error {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// backoff returns the wait before attempt try+1: what the provider asked for, or else half a second doubled each time,
// with a fifth of jitter, so that calls that failed together do not return together.
func backoff(try int, asked time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	d := min(firstBackoff<<min(try, 10), maxBackoff)
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}
