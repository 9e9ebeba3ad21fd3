package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// Endpoint says where a sandbox is dialled, and with which identity.
type Endpoint struct {
	Address        string // host:port
	ServerName     string // the name in the sandbox's certificate
	ConnectionName string // the name under which Connections may hold one
	ThreadID       string
	MaxWallTime    time.Duration // the pool's cap; 0 means none
	DialTimeout    time.Duration // bounds connecting, without the handshake; 0 means the default
	Answered       func()        // called when the sandbox has returned its first result
}

// Dial connects to a sandbox over mTLS. It returns once the sandbox has answered, so that an unreachable sandbox is
// known before it is used. An error that wraps sandbox.ErrNotTrusted or sandbox.ErrIncompatible is final. Dialling claims nothing: a sandbox
// becomes a thread's with the first code that it is asked to run.
type Dial func(ctx context.Context, e Endpoint) (sandbox.Sandbox, error)

// Connections keeps connections that were dialled ahead of time, for the thread that claims their sandbox. No method
// waits for the network.
type Connections interface {
	// Keep starts connecting ahead of time, unless there is such a connection.
	Keep(name, address, serverName string)
	// Drop closes the connection of this name, if there is one.
	Drop(name string)
	Close() error
}

// PodsOptions are the options of NewPods.
type PodsOptions struct {
	// Client reads pods and pools from the cache, including its own writes.
	Client      client.Client
	Dial        Dial
	Connections Connections // to warm pods, by pod UID; nil means none
	Settings    sandboxpod.Settings
	Clock       clock.WithDelayedExecution
	Logger      logr.Logger
	// StartTimeout bounds the start of a pod that is created for a claim. 0 means 2 minutes.
	StartTimeout time.Duration
	// PlaceTimeout bounds how long a thread waits for a place in a pool that is full. 0 means 30 seconds.
	PlaceTimeout time.Duration
}

// Pods implements the engine's port with pods (COD-08, COD-09). Each thread claims a pod of its own from a
// SandboxPool in its namespace, and keeps it until the pod has been idle for the pool's timeout.
type Pods struct {
	PodsOptions

	tracker  *podTracker
	failures *failures
	warm     *warmConnections

	capacity poolLocks // held while the capacity of a pool is checked and a pod is created

	mu     sync.Mutex
	held   map[string]*heldPod             // by thread id; mu guards this and all fields below
	byPod  map[types.NamespacedName]string // thread ids
	closed bool
}

var _ Port = (*Pods)(nil)

// heldPod is the pod that a thread holds, from the moment that the thread asks for one.
type heldPod struct {
	threadID string
	turn     chan struct{} // a semaphore, held while the pod is claimed, dialled or given up

	// Pods.mu guards the fields below.
	pod         types.NamespacedName
	pool        types.NamespacedName // empty until a pod is bound
	uid         types.UID
	conn        sandbox.Sandbox
	users       int
	idleTimeout time.Duration
	idle        clock.Timer // runs while users is 0
}

// NewPods returns the port.
func NewPods(o PodsOptions) *Pods {
	if o.StartTimeout == 0 {
		o.StartTimeout = 2 * time.Minute
	}
	if o.PlaceTimeout == 0 {
		o.PlaceTimeout = 30 * time.Second
	}
	return &Pods{
		PodsOptions: o,
		held:        map[string]*heldPod{},
		byPod:       map[types.NamespacedName]string{},
		tracker:     newPodTracker(),
		failures:    &failures{clock: o.Clock, at: map[string]time.Time{}},
		warm: &warmConnections{
			client: o.Client, connections: o.Connections, timeout: o.StartTimeout, logger: o.Logger,
			pools: map[types.UID]types.NamespacedName{},
		},
	}
}

// errPodsClosed stops callers that lost their sandbox because of Close from starting another pod.
var errPodsClosed = errors.New("the manager is shutting down and starts no more sandboxes")

// Acquire implements ports.Sandboxes.
func (s *Pods) Acquire(ctx context.Context, thread *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	if pool == "" {
		pool = skeinv1.DefaultPoolName
	}
	h, conn, err := s.turnOf(ctx, thread.ID)
	if err != nil {
		return nil, nil, err
	}
	defer func() { <-h.turn }()
	if conn == nil {
		if conn, err = s.connect(ctx, h, thread, pool); err != nil {
			s.drop(h)
			go s.leave(context.WithoutCancel(ctx), thread.Namespace, thread.ID)
			return nil, nil, err
		}
	}
	return conn, sync.OnceFunc(func() { s.release(h) }), nil
}

// turnOf waits for the turn of the thread's pod. If the pod is connected, turnOf counts a user and returns the
// connection. If the pod was dropped meanwhile, turnOf continues with its successor: using both would give the
// thread two pods.
func (s *Pods) turnOf(ctx context.Context, threadID string) (*heldPod, sandbox.Sandbox, error) {
	for {
		h := s.heldPodOf(threadID)
		if h == nil {
			return nil, nil, errPodsClosed
		}
		select {
		case h.turn <- struct{}{}: // a new record always takes this case; otherwise no caller would own it
		default:
			select {
			case h.turn <- struct{}{}:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		if conn, ok := s.use(h); ok {
			return h, conn, nil
		}
		<-h.turn
	}
}

func (s *Pods) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// heldPodOf returns the record of the thread's pod, and makes one if necessary. It returns nil once the port is closed.
func (s *Pods) heldPodOf(threadID string) *heldPod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	h := s.held[threadID]
	if h == nil {
		h = &heldPod{threadID: threadID, turn: make(chan struct{}, 1)}
		s.held[threadID] = h
	}
	return h
}

// use counts a user of a pod's connection and returns the connection, if there is one. ok is false when the pod
// has been dropped.
func (s *Pods) use(h *heldPod) (conn sandbox.Sandbox, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[h.threadID] != h {
		return nil, false
	}
	if h.conn != nil {
		s.countUser(h)
	}
	return h.conn, true
}

func (s *Pods) countUser(h *heldPod) {
	h.users++
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
}

// poolField returns the field that names the pool of a thread, or of an object whose code runs without one.
func poolField(thread *store.Thread) string {
	switch kind := thread.OwnedBy(); kind {
	case "Thread":
		return "spec.sandboxPoolRef of the agent"
	case "ScheduledEffect":
		return "spec.sandboxPool of the ScheduledEffect"
	default: // a ThreadGateway
		return "spec.idProvider.code.sandboxPoolRef of the " + kind
	}
}

// maxTries bounds how many pods that turn out to be dead connect tries.
const maxTries = 3

// connect finds the thread's pod or claims one, and dials it.
func (s *Pods) connect(ctx context.Context, h *heldPod, thread *store.Thread, poolName string) (sandbox.Sandbox, error) {
	pool := &skeinv1.SandboxPool{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: thread.Namespace, Name: poolName}, pool, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, objects.Missing("SandboxPool", thread.Namespace, poolName, poolField(thread))
		}
		return nil, fmt.Errorf("read SandboxPool %q: %w", poolName, err)
	}
	if err := objects.CheckDecoded(pool); err != nil {
		return nil, objects.Within("SandboxPool", poolName, err)
	}
	if err := s.awaitIsolation(ctx, pool); err != nil {
		return nil, err
	}
	a := &acquisition{port: s, thread: thread, pool: pool, began: time.Now(), anew: s.failures.isRecent(thread.ID)}
	var last error
	for range maxTries {
		pod, conn, err := a.sandbox(ctx)
		if err == nil {
			if !s.bind(h, pod, conn, pool) {
				_ = conn.Close() // no caller has seen it yet
				return nil, errPodsClosed
			}
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if pod == nil {
			return nil, err
		}
		last = noSandbox("connect to sandbox pod %q: %w", pod.Name, err)
		a.anew = true
		s.remove(ctx, client.ObjectKeyFromObject(pod), pod.UID)
	}
	return nil, last
}

func wallTime(pool *skeinv1.SandboxPool) time.Duration {
	if t := pool.Spec.MaxWallTime; t != nil {
		return t.Duration
	}
	return 0
}

// bind records the pod that a thread holds, its connection and its first user. It returns false once the port is closed.
func (s *Pods) bind(h *heldPod, pod *corev1.Pod, conn sandbox.Sandbox, pool *skeinv1.SandboxPool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.byPod[h.pod] == h.threadID {
		delete(s.byPod, h.pod)
	}
	h.pod, h.uid, h.conn = client.ObjectKeyFromObject(pod), pod.UID, conn
	h.pool, h.idleTimeout = client.ObjectKeyFromObject(pool), idleTimeout(pool)
	s.held[h.threadID] = h
	s.byPod[h.pod] = h.threadID
	s.failures.forget(h.threadID)
	s.countUser(h)
	return true
}

func (s *Pods) release(h *heldPod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.users--; h.users <= 0 {
		s.startIdle(h)
		s.capacity.wake(h.pool)
	}
}

// drop forgets a held pod and closes its connection. The pod itself stays.
func (s *Pods) drop(h *heldPod) { s.dropIf(h, func() bool { return true }) }

// dropIf drops a held pod if still returns true. It calls still with mu held.
func (s *Pods) dropIf(h *heldPod, still func() bool) {
	s.mu.Lock()
	if !still() {
		s.mu.Unlock()
		return
	}
	conn := h.conn
	if s.held[h.threadID] == h {
		delete(s.held, h.threadID)
	}
	if s.byPod[h.pod] == h.threadID {
		delete(s.byPod, h.pod)
	}
	if h.idle != nil {
		h.idle.Stop()
	}
	h.conn, h.idle, h.pod = nil, nil, types.NamespacedName{}
	s.mu.Unlock()
	if conn != nil {
		if err := conn.Close(); err != nil {
			s.Logger.V(1).Info("closing the connection to a sandbox", "thread", h.threadID, "error", err.Error())
		}
	}
}

// Discard implements ports.Sandboxes.
func (s *Pods) Discard(ctx context.Context, thread *store.Thread, sbx sandbox.Sandbox) {
	s.mu.Lock()
	h := s.held[thread.ID]
	if h == nil || h.conn != sbx { // another caller has discarded it already
		s.mu.Unlock()
		return
	}
	pod, uid := h.pod, h.uid
	s.failures.record(thread.ID)
	s.mu.Unlock()
	s.drop(h)
	s.remove(context.WithoutCancel(ctx), pod, uid)
}

// Forget implements Port. The pod is deleted with its owner, the Thread.
func (s *Pods) Forget(threadID string) {
	s.mu.Lock()
	h := s.held[threadID]
	s.failures.forget(threadID)
	s.mu.Unlock()
	if h != nil {
		s.drop(h)
	}
}

// Close closes every connection and refuses new ones. The pods still belong to their threads, and the next manager
// takes them over.
func (s *Pods) Close() error {
	s.mu.Lock()
	s.closed = true
	held := make([]*heldPod, 0, len(s.held))
	for _, h := range s.held {
		held = append(held, h)
	}
	s.mu.Unlock()
	for _, h := range held {
		s.drop(h)
	}
	if s.Connections != nil {
		return s.Connections.Close()
	}
	return nil
}
