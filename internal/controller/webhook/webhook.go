// Package webhook keeps the store's list of Webhooks as the objects are. The transactions that end runs read the list, and
// write what each Webhook is told.
package webhook

import (
	"context"
	"fmt"
	"reflect"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/store"
)

// Reconciler writes the whole list whenever a Webhook changes, so that one that was deleted while no manager ran goes too.
type Reconciler struct {
	Webhooks *definitions.Webhooks
	Store    store.WebhookStore

	known []store.Webhook
	wrote bool
}

// all is the one request of the controller.
var all = reconcile.Request{NamespacedName: client.ObjectKey{Name: "all"}}

// Setup adds the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{all} })
	start := make(chan event.GenericEvent, 1) // there may be none, and still some to remove
	start <- event.GenericEvent{Object: &skeinv1.Webhook{}}
	err := ctrl.NewControllerManagedBy(mgr).Named("webhook-list").
		Watches(&skeinv1.Webhook{}, enqueue, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(start, enqueue)).
		WithOptions(watches.Options(1)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of the list of Webhooks: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. One worker calls it.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	want, err := r.Webhooks.All(ctx)
	if err != nil || r.wrote && reflect.DeepEqual(want, r.known) {
		return reconcile.Result{}, err
	}
	r.wrote = false
	if err := r.Store.SetWebhooks(ctx, want); err != nil {
		return reconcile.Result{}, err
	}
	r.known, r.wrote = want, true
	return reconcile.Result{}, nil
}
