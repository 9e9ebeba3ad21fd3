package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/store"
)

// acquisition gets one thread its sandbox, from the request to a connection.
type acquisition struct {
	port   *Pods
	thread *store.Thread
	pool   *skeinv1.SandboxPool
	began  time.Time
	// anew means that a sandbox of this thread has just failed, perhaps because its node is lost. An existing
	// connection to another pod there may not have noticed yet, so only a pod that answers a new dial is used.
	anew bool
}

// sandbox returns the thread's pod and a connection to it. It tries the pod that the thread has, then a warm pod,
// then one that is about to be warm, then a new one, for which it waits while the pool is full. A pod that comes with an error belongs to the thread, but cannot
// be used.
func (a *acquisition) sandbox(ctx context.Context) (*corev1.Pod, sandbox.Sandbox, error) {
	pod, err := a.findOwn(ctx)
	if err != nil || pod != nil {
		had, conn, err := a.await(ctx, pod, err, foundOwn)
		if !errors.Is(err, errPodGone) {
			return had, conn, err
		}
		// The cache did not know yet that the pod was given up.
	}
	pod, conn, found, err := a.claimPooled(ctx)
	if err == nil && pod == nil {
		pod, conn, found, err = a.place(ctx)
	}
	if err != nil || conn != nil {
		return pod, conn, err
	}
	return a.await(ctx, pod, nil, found)
}

// claimPooled claims a pod of the pool that is warm or about to be. A connection comes with a warm one. It returns no pod
// when there is none.
func (a *acquisition) claimPooled(ctx context.Context) (*corev1.Pod, sandbox.Sandbox, string, error) {
	pod, conn, err := a.claimWarm(ctx)
	if err != nil || pod != nil {
		return pod, conn, foundWarm, err
	}
	pod, err = a.claimStarting(ctx)
	return pod, nil, foundStarting, err
}

// errPodGone means that the pod that was waited for does not exist any more.
var errPodGone = errors.New("it is gone")

// findOwn finds the pod that the thread already has, for example from before a restart of the manager.
func (a *acquisition) findOwn(ctx context.Context) (*corev1.Pod, error) {
	var list corev1.PodList
	err := a.port.Client.List(ctx, &list, client.InNamespace(a.pool.Namespace),
		client.MatchingFields{objects.IndexSandboxThread: a.thread.ID}, quick, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the sandbox pods of the thread: %w", err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Labels[skeinv1.LabelPool] == a.pool.Name && p.Labels[skeinv1.LabelSandboxState] == sandboxpod.Claimed && !sandboxpod.IsOver(p) && !a.port.tracker.isGone(p.UID) {
			return p, nil
		}
	}
	return nil, nil
}

// dial connects to a pod that has an address. It gives up when the pod does not accept the connection within timeout;
// 0 means the default.
func (a *acquisition) dial(ctx context.Context, p *corev1.Pod, found string, timeout time.Duration) (sandbox.Sandbox, error) {
	name := string(p.UID)
	if a.anew {
		name = ""
	}
	return a.port.Dial(ctx, Endpoint{
		Address:        sandboxpod.Address(p),
		ServerName:     pki.ServerName(a.pool.Name, a.pool.Namespace),
		ConnectionName: name,
		ThreadID:       a.thread.ID,
		DialTimeout:    timeout,
		MaxWallTime:    wallTime(a.pool),
		Answered:       func() { observeAnswered(found, a.began) },
	})
}

// await connects to the thread's pod as soon as it answers. It removes a pod that does not start in time, so that
// another one can take its place.
func (a *acquisition) await(ctx context.Context, pod *corev1.Pod, err error, found string) (*corev1.Pod, sandbox.Sandbox, error) {
	if err != nil {
		return nil, nil, err
	}
	key, uid := client.ObjectKeyFromObject(pod), pod.UID
	ready, conn, err := a.awaitAnswer(ctx, key, found)
	switch {
	case err == nil:
		observeAcquired(found, a.began)
	case ready == nil && ctx.Err() == nil:
		a.port.remove(ctx, key, uid)
	}
	return ready, conn, err
}

// The kubelet checks only once a second whether a pod is ready, so a caller that waits for a pod also dials it
// directly, with growing pauses. Most pods listen a moment after they have an address; others must not be dialled
// without end. A pod that accepted the connection exists, and gets the time that its processor needs for the
// handshake: starting another handshake would only add work.
const knockFor = 250 * time.Millisecond

// dialBackoff returns the waiting times between attempts to dial a pod that does not answer yet.
func dialBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.25, Jitter: 0.1, Steps: 100, Cap: 500 * time.Millisecond}
}

// awaitAnswer waits until a pod answers. Its error says what delays the pod. An error together with a pod means that
// the pod is ready but cannot be connected to.
func (a *acquisition) awaitAnswer(ctx context.Context, key client.ObjectKey, found string) (*corev1.Pod, sandbox.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, a.port.StartTimeout)
	defer cancel()
	trouble := sandboxpod.Trouble{Text: "it is still starting"}
	pause := dialBackoff()
	for {
		next := a.port.tracker.await(key)
		pod := &corev1.Pod{}
		var again <-chan time.Time
		err := a.port.Client.Get(ctx, key, pod)
		switch {
		case apierrors.IsNotFound(err):
			a.port.tracker.signal(key) // no change comes any more that would end the wait
			return nil, nil, noSandbox("sandbox pod %q was deleted while it started: %w", key.Name, errPodGone)
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return nil, nil, fmt.Errorf("read sandbox pod %q: %w", key.Name, err)
		case err != nil: // the deadline has passed; reported below
		case sandboxpod.IsOver(pod):
			return nil, nil, noSandbox("sandbox pod %q did not start: %s", key.Name, sandboxpod.TroubleOf(pod))
		case sandboxpod.IsReady(pod):
			conn, err := a.dial(ctx, pod, found, 0)
			return pod, conn, err
		case pod.Status.PodIP != "":
			conn, err := a.dial(ctx, pod, found, knockFor)
			if err == nil || errors.Is(err, sandbox.ErrNotTrusted) || errors.Is(err, sandbox.ErrIncompatible) {
				return pod, conn, err
			}
			again = time.After(pause.Step())
		}
		if t := sandboxpod.TroubleOf(pod); t.Text != "" {
			trouble = t
		}
		if trouble.Final {
			return nil, nil, noSandbox("sandbox pod %q does not start: %s", key.Name, trouble)
		}
		ports.ReportWait(ctx, noSandbox("sandbox pod %q is not ready: %s", key.Name, trouble))
		select {
		case <-next:
		case <-again:
		case <-ctx.Done():
			return nil, nil, noSandbox("sandbox pod %q is not ready: %s: %w", key.Name, trouble, ctx.Err())
		}
	}
}

// noSandbox returns an error that says why a thread gets no sandbox. Its text is for the caller: it names pods and
// repeats what Kubernetes says about them.
func noSandbox(format string, args ...any) *ports.NoSandboxError {
	err := fmt.Errorf(format, args...)
	return &ports.NoSandboxError{Message: err.Error(), Err: errors.Unwrap(err)}
}
