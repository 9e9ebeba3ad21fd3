// Package threadquota shows in each ThreadQuota what its namespace uses (K8S-11). The store and the engine hold the
// namespace to it.
package threadquota

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// +kubebuilder:rbac:groups=skein.dev,resources=threadquotas,verbs=list;watch
// +kubebuilder:rbac:groups=skein.dev,resources=threadquotas/status,verbs=patch

// lookEvery is how often the status follows what the namespace uses.
const lookEvery = 10 * time.Second

// Effects counts the ScheduledEffects of a namespace.
type Effects interface {
	CountPending(ctx context.Context, namespace string) (int64, error)
}

// Options are the options of the controller.
type Options struct {
	// Client reads from the cache and writes statuses.
	Client  client.Client
	Store   store.QuotaStore
	Effects Effects
	// Limits returns the quotas of a namespace.
	Limits   func(namespace string) store.Quotas
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Workers  int
}

// Reconciler reconciles ThreadQuotas.
type Reconciler struct{ Options }

// New returns a reconciler.
func New(o Options) *Reconciler { return &Reconciler{o} }

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("threadquota").
		For(&skeinv1.ThreadQuota{}, builder.WithPredicates(watches.SpecChanged(mgr.GetClient()))).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the threadquota controller: %w", err)
	}
	return nil
}

// Reconcile writes the status of a ThreadQuota, when it has changed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var q skeinv1.ThreadQuota
	if err := r.Client.Get(ctx, req.NamespacedName, &q); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.setGauges(req.Namespace, req.Name, nil, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := q.DeepCopy()
	if err := r.compute(ctx, &q); err != nil {
		return ctrl.Result{}, err
	}
	again := ctrl.Result{RequeueAfter: lookEvery}
	if equality.Semantic.DeepEqual(before.Status, q.Status) {
		return again, nil
	}
	if written, err := conditions.WriteStatus(ctx, r.Client, r.Recorder, &q, client.MergeFrom(before)); !written {
		return ctrl.Result{}, err
	}
	conditions.RecordInvalid(r.Recorder, &q, before.Status.Conditions, q.Status.Conditions)
	return again, nil
}

// compute is the only function that makes the status.
func (r *Reconciler) compute(ctx context.Context, q *skeinv1.ThreadQuota) error {
	w := conditions.Writer{List: &q.Status.Conditions, Generation: q.Generation, Now: r.Clock.Now()}
	q.Status.ObservedGeneration = q.Generation
	if problem := objects.CheckDecoded(q); problem != nil {
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, problem.Reason, problem.Message)
		return nil
	}
	hard := kube.DeclaredQuotas(q)
	use, err := r.Store.QuotaUse(ctx, q.Namespace)
	if err != nil {
		return err
	}
	if _, ok := hard[store.QuotaEffects]; ok {
		if use[store.QuotaEffects], err = r.Effects.CountPending(ctx, q.Namespace); err != nil {
			return err
		}
	}
	limits, used := map[store.QuotaResource]int64{}, map[store.QuotaResource]int64{}
	var summary, full []string
	for resource, limit := range hard {
		limits[resource], used[resource] = limit.Hard, use[resource]
		summary = append(summary, fmt.Sprintf("%s: %s/%s", resource, store.QuotaAmount(resource, use[resource]), store.QuotaAmount(resource, limit.Hard)))
		if use[resource] >= limit.Hard {
			full = append(full, string(resource))
		}
	}
	slices.Sort(summary)
	slices.Sort(full)
	q.Status.Hard, q.Status.Used, q.Status.Summary = kube.QuotaAmounts(limits), kube.QuotaAmounts(used), strings.Join(summary, ", ")
	r.setGauges(q.Namespace, q.Name, limits, used)
	w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	if len(full) == 0 {
		w.Set(skeinv1.ConditionFull, metav1.ConditionFalse, skeinv1.ReasonQuotaHasRoom, "")
		return nil
	}
	w.Set(skeinv1.ConditionFull, metav1.ConditionTrue, skeinv1.ReasonQuotaExceeded, "the namespace has used up: "+strings.Join(full, ", "))
	return nil
}
