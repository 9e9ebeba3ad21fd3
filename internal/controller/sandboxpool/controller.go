// Package sandboxpool reconciles SandboxPools (COD-08, COD-09). It keeps as many sandboxes warm as the pool requests,
// with certificates and a NetworkPolicy of their own. Package internal/kube claims them.
package sandboxpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/statuslimit"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// +kubebuilder:rbac:groups=skein.dev,resources=sandboxpools,verbs=list;watch
// +kubebuilder:rbac:groups=skein.dev,resources=sandboxpools/status,verbs=patch
// +kubebuilder:rbac:groups=skein.dev,resources=sandboxpools/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",roleName=skein-sandbox-certificates,resources=secrets,verbs=get;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch;create;patch

// Authority issues the certificates of sandboxes.
type Authority interface {
	// Keep renews the authority when that is due, and returns when to call it again.
	Keep(ctx context.Context) (next time.Time, err error)
	// Fingerprint changes when all certificates must be issued again.
	Fingerprint() string
	// Server returns the data of a pool's Secret, and when to replace it.
	Server(pool, namespace string) (data map[string][]byte, renewAt time.Time, err error)
}

// Options are the options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	// ProcessMode means that the manager runs sandboxes as local processes, so that pools create no pods.
	ProcessMode bool
	Settings    sandboxpod.Settings
	Authority   Authority
	// ManagerNamespace is the namespace of the manager's pods. It is empty when the manager runs outside the cluster.
	ManagerNamespace string
	// Account is the manager's name at the API server.
	Account  objects.Account
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Workers  int
}

// Reconciler reconciles SandboxPools.
type Reconciler struct {
	Options
	statusLimit *statuslimit.Limiter

	mu       sync.Mutex
	memories map[ctrl.Request]*memory
}

// New returns a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, statusLimit: statuslimit.New(), memories: map[ctrl.Request]*memory{}}
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("sandboxpool").
		For(&skeinv1.SandboxPool{}, builder.WithPredicates(watches.SpecChanged(mgr.GetClient()))).
		WithOptions(watches.Options(r.Workers))
	if !r.ProcessMode {
		b = b.Watches(&corev1.Pod{}, podEvents(), builder.WithPredicates(podTurned())).
			Owns(&networkingv1.NetworkPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Watches(objects.MetadataOf("Secret"), handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &skeinv1.SandboxPool{}, handler.OnlyControllerOwner()))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up the sandboxpool controller: %w", err)
	}
	return nil
}

// scope holds what the phases of one reconcile share.
type scope struct {
	req    ctrl.Request
	object *skeinv1.SandboxPool
	at     time.Time
	pods   inventory
	want   int // how many pods should be warm
	// trouble is why pods do not start; the zero value means that they do.
	trouble sandboxpod.Trouble
	next    time.Duration // until the next reconcile; 0 means only on an event
}

// look schedules a reconcile of the pool after a time, unless an earlier one is scheduled.
func (s *scope) look(after time.Duration) {
	if after > 0 && (s.next == 0 || after < s.next) {
		s.next = after
	}
}

// phase is one step of a reconcile.
type phase func(ctx context.Context, s *scope) error

// Reconcile brings a pool to its number of warm sandboxes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope{req: req, object: &skeinv1.SandboxPool{}, at: r.Clock.Now()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // warm pods are deleted through their owner reference, claimed ones with their threads
	}
	var failed error
	invalid := objects.CheckDecoded(s.object)
	if invalid != nil { // create nothing from a spec that could not be decoded, and keep what exists
		s.trouble = sandboxpod.Trouble{Reason: invalid.Reason, Text: invalid.Message}
	} else if !r.ProcessMode {
		for _, step := range []phase{
			r.isolate,           // before anything that lets a pod start: neither pods nor their certificate exist without it
			r.ensureCertificate, // pods cannot start without it
			r.count,             // what exists, and how many are wanted
			r.clean,             // remove pods that have ended, are too many or too old
			r.fill,              // create what is missing
		} {
			if failed = step(ctx, s); failed != nil {
				break
			}
		}
	}
	if apierrors.IsConflict(failed) {
		return watches.Outcome(ctrl.Result{}, failed) // a concurrent write of the object: reconcile again, and report nothing
	}
	result, err := r.writeStatus(ctx, s, failed)
	return watches.Outcome(result, failed, err)
}
