package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
)

// A thread that waits for a place in a full pool looks again when a sandbox of the pool becomes idle in this process. It
// looks once more after idleDelay, because a sandbox that is asked at once may not count as idle yet. Otherwise it looks
// after placePoll: nothing wakes it when a pod ends, when the limit changes, or when a sandbox is idle in another
// replica.
const (
	idleDelay = 20 * time.Millisecond
	placePoll = time.Second
)

// place gets a pod for a thread that found no warm one: a new pod if the pool may have another one. In a full pool it
// waits until a sandbox is idle or until PlaceTimeout has passed. Threads of one pool wait in the order in which they came,
// because the first one holds the lock of the pool. Each tells its caller what it waits for. A connection comes with a pod that was warm
// already.
func (a *acquisition) place(ctx context.Context) (*corev1.Pod, sandbox.Sandbox, string, error) {
	patience := time.After(a.port.PlaceTimeout)
	waits := func() { ports.ReportWait(ctx, a.full()) }
	idled, unlock, err := a.port.capacity.lock(ctx, client.ObjectKeyFromObject(a.pool), waits)
	if err != nil {
		return nil, nil, "", err
	}
	defer unlock()
	adopted, pause := true, placePoll
	for {
		pod, err := a.port.createCold(ctx, a.thread, a.pool, adopted)
		if !errors.Is(err, errPoolFull) {
			return pod, nil, foundCold, err
		}
		waits()
		select {
		case <-idled:
			adopted, pause = false, idleDelay
		case <-time.After(pause):
			adopted, pause = pause == placePoll, placePoll
		case <-patience:
			return nil, nil, "", a.full()
		case <-ctx.Done():
			return nil, nil, "", context.Cause(ctx)
		}
		if err := a.refresh(ctx); err != nil {
			return nil, nil, "", err
		}
		// The pool may have replaced a pod that has ended.
		if pod, conn, found, err := a.claimPooled(ctx); err != nil || pod != nil {
			return pod, conn, found, err
		}
	}
}

// full says that the pool has no place. The text does not change while a caller waits, and asks again and again.
func (a *acquisition) full() error {
	return noSandbox("SandboxPool %q is full: each of its %d sandboxes is in use; try again later, or raise spec.max", a.pool.Name, a.pool.Spec.Max)
}

// refresh reads the pool again, whose limit may have changed.
func (a *acquisition) refresh(ctx context.Context) error {
	pool := a.pool.DeepCopy()
	if err := a.port.Client.Get(ctx, client.ObjectKeyFromObject(a.pool), pool); err != nil {
		return fmt.Errorf("read SandboxPool %q: %w", a.pool.Name, err)
	}
	a.pool = pool
	return nil
}
