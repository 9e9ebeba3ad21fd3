package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// setUpPause is the pause before a thread that was not set up is read again.
const setUpPause = time.Second

// notSetUp reports whether the server refused a request because the Thread object exists and its conversation does not.
func notSetUp(err error) bool { return apierrors.HasStatusCause(err, runtimev1.CauseNotSetUp) }

// limited returns a context that ends after a time with errTimeout as its cause. With 0 it has no limit.
func limited(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, errTimeout)
}

// setUp waits until a thread is set up, and says meanwhile what its object waits for. left is what remains of the time; 0 means no limit.
func (p *plugin) setUp(
	ctx context.Context, t *runtimeclient.Thread, name string, timeout time.Duration,
) (rec *runtimev1.ThreadRecord, left time.Duration, err error) {
	ctx, cancel := limited(ctx, timeout)
	defer cancel()
	why, stop, err := p.watchBlockers(ctx, t, name) // only the name of an object can mean a thread that is not stored
	if err != nil {
		return nil, 0, err
	}
	defer stop()
	for {
		select {
		case <-time.After(setUpPause):
		case <-ctx.Done():
		}
		rec, err := t.Get(ctx)
		switch {
		case errors.Is(context.Cause(ctx), errTimeout):
			return nil, 0, why.notSent(timeout)
		case notSetUp(err):
		default:
			if end, ok := ctx.Deadline(); ok {
				left = max(time.Until(end), time.Nanosecond)
			}
			return rec, left, err
		}
	}
}

// notSent returns the error of a wait for a thread to be set up that reached its timeout.
func (r *blockers) notSent(d time.Duration) error {
	b := r.now()
	text := fmt.Sprintf("the message was not sent: the thread was not set up within %s", d)
	if b.reason != "" {
		text += ", for it waits (" + b.text() + ")"
	}
	if b.needsPerson {
		return coded(exitWaits, errors.New(text))
	}
	return coded(exitTimeout, errors.New(text))
}
