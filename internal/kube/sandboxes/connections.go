package sandboxes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// warmConnections keeps a connection to each warm pod of the pools that it knows.
type warmConnections struct {
	client      client.Client
	connections Connections // nil: there are none
	timeout     time.Duration
	logger      logr.Logger

	// mu is held while connections is told to keep or drop one, so that the latest event wins.
	mu    sync.Mutex
	pools map[types.UID]types.NamespacedName // mu guards it
}

// watchPools follows the pools whose pods are connected ahead of time.
func (w *warmConnections) watchPools(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &skeinv1.SandboxPool{})
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { w.setPool(ctx, o, true) },
			UpdateFunc: func(old, o any) { // the pool may have been deleted and created again between two events
				if was, ok := old.(*skeinv1.SandboxPool); ok && was.UID != o.(*skeinv1.SandboxPool).UID {
					w.setPool(ctx, old, false)
					w.setPool(ctx, o, true)
				}
			},
			DeleteFunc: func(o any) {
				if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = d.Obj
				}
				w.setPool(ctx, o, false)
			},
		})
	}
	if err != nil {
		return fmt.Errorf("watch sandbox pools: %w", err)
	}
	return nil
}

// setPool records that a pool exists or is gone.
func (w *warmConnections) setPool(ctx context.Context, o any, there bool) {
	pool, ok := o.(*skeinv1.SandboxPool)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !there {
		delete(w.pools, pool.UID)
		return
	}
	w.pools[pool.UID] = client.ObjectKeyFromObject(pool)
	go w.connect(ctx, pool) // for pods that were seen before their pool; a separate goroutine, because the informer must not wait for the cache
}

// connect connects to the warm pods of a pool.
func (w *warmConnections) connect(ctx context.Context, pool *skeinv1.SandboxPool) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	pods, err := podsOf(ctx, w.client, pool, sandboxpod.Warm, quick)
	if err != nil {
		w.logger.V(1).Info("cannot connect to the pods of a pool ahead of time", "namespace", pool.Namespace, "pool", pool.Name, "error", err.Error())
		return
	}
	for i := range pods {
		w.mu.Lock()
		var now corev1.Pod // read again: an event may have changed it since the list
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(&pods[i]), &now, quick, client.UnsafeDisableDeepCopy); err == nil {
			w.keep(&now)
		}
		w.mu.Unlock()
	}
}

// update keeps a connection to a warm pod, and drops the connection to any other pod.
func (w *warmConnections) update(p *corev1.Pod) {
	if w.connections == nil || p.Labels[skeinv1.LabelPool] == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Labels[skeinv1.LabelSandboxState] != sandboxpod.Warm || !sandboxpod.IsReady(p) {
		w.connections.Drop(string(p.UID))
		return
	}
	w.keep(p)
}

// drop drops the connection to a pod that is gone.
func (w *warmConnections) drop(p *corev1.Pod) {
	if w.connections != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.connections.Drop(string(p.UID))
	}
}

// keep keeps a connection to a pod that a known pool owns. Users who may create pods may copy our labels, and the
// number of connections is limited, so the owner reference decides. mu is held.
func (w *warmConnections) keep(p *corev1.Pod) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || p.Labels[skeinv1.LabelSandboxState] != sandboxpod.Warm || !sandboxpod.IsReady(p) {
		return
	}
	pool := types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[skeinv1.LabelPool]}
	if w.pools[owner.UID] == pool {
		w.connections.Keep(string(p.UID), sandboxpod.Address(p), pki.ServerName(pool.Name, pool.Namespace))
	}
}
