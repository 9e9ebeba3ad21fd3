// Package watches holds what the controllers share about watching objects and configuring their workqueues.
package watches

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
)

// The pause after a failed reconcile doubles from firstRetry to lastRetry. lastRetry is short, because usually the
// store or the API server has failed, and a deletion must not wait long after they are back.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
	// afterConflict is the pause before an object is read again that another writer has changed. The cache has the change after about that
	// time.
	afterConflict = 20 * time.Millisecond
)

// Options returns the options of a controller with this number of workers, which namespaces share.
func Options(workers int) controller.Options {
	workers = max(workers, 1)
	return controller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			return newSharedQueue(name, workers, limiter)
		},
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}
}

// Outcome returns how a reconcile ended. An error is retried with the backoff of Options, so a time to reconcile again is left out
// beside one.
//
// Two errors are part of ordinary work, so they are no errors in the log: another write was first, and a namespace is being deleted. The
// object is reconciled again all the same.
func Outcome(result ctrl.Result, errs ...error) (ctrl.Result, error) {
	err := errors.Join(errs...)
	switch {
	case err == nil:
	case every(apierrors.IsConflict, errs):
		result.RequeueAfter = afterConflict
		return result, nil
	case every(inTerminatingNamespace, errs):
		result.RequeueAfter = lastRetry
		return result, nil
	default:
		result.RequeueAfter = 0
	}
	return result, err
}

// every reports whether all errors that are not nil are of a kind.
func every(is func(error) bool, errs []error) bool {
	return !slices.ContainsFunc(errs, func(err error) bool { return err != nil && !is(err) })
}

func inTerminatingNamespace(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// ByIndex enqueues the objects of a list whose index names the object of the event.
func ByIndex(reader client.Reader, newList func() client.ObjectList, index string) handler.EventHandler {
	return ByIndexOf(reader, newList, index, client.Object.GetName)
}

// ByIndexOf enqueues the objects of a list whose index has the value that value returns for the object of the event.
// For an update it uses the old and the new object.
func ByIndexOf(reader client.Reader, newList func() client.ObjectList, index string, value func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return Requests(ctx, reader, newList(), o.GetNamespace(), index, value(o))
	})
}

// Reaching enqueues the objects of a list whose index names the object of the event, then those whose index names one
// of these, and so on. The object itself is among them only in a cycle.
func Reaching(reader client.Reader, newList func() client.ObjectList, index string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return Reach(ctx, reader, newList(), o.GetNamespace(), index, o.GetName())
	})
}

// Reach returns the objects whose index names the given name, those whose index names one of these, and so on.
func Reach(ctx context.Context, reader client.Reader, list client.ObjectList, namespace, index, name string) []ctrl.Request {
	var all []ctrl.Request
	seen := map[string]bool{}
	for next := []string{name}; len(next) > 0; next = next[1:] {
		for _, req := range Requests(ctx, reader, list, namespace, index, next[0]) {
			if !seen[req.Name] {
				seen[req.Name] = true
				all = append(all, req)
				next = append(next, req.Name)
			}
		}
	}
	return all
}

// Namespace enqueues all objects of a list in the namespace of the event's object. If that object is a Namespace, it
// enqueues those in it.
func Namespace(reader client.Reader, newList func() client.ObjectList) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = o.GetName()
		}
		return requests(ctx, reader, newList(), client.InNamespace(namespace))
	})
}

// Requests returns a request for each object whose index has a value. It logs an error of the list, because a cache
// fails only when it has not started.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, namespace, index, value string) []ctrl.Request {
	return requests(ctx, reader, list, client.InNamespace(namespace), client.MatchingFields{index: value})
}

func requests(ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) []ctrl.Request {
	err := reader.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the objects that depend on a changed one", "options", options)
		return nil
	}
	var reqs []ctrl.Request
	err = meta.EachListItem(list, func(o runtime.Object) error {
		reqs = append(reqs, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list objects", "options", options)
	}
	return reqs
}

// ReadyTurned passes creations, deletions and changes of the Ready condition of a definition or a Thread.
func ReadyTurned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return conditions.ReadyChanged(conditionsOf(e.ObjectOld), conditionsOf(e.ObjectNew))
	}}
}

// TerminatedTurned passes creations and deletions of Threads, and updates by which one ends for good.
func TerminatedTurned() predicate.Predicate {
	ended := func(o client.Object) bool {
		return meta.IsStatusConditionTrue(conditionsOf(o), skeinv1.ConditionTerminated)
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return ended(e.ObjectOld) != ended(e.ObjectNew) }}
}

// doubter is a client that may have read states of objects that its own writes had changed already (package ownwrites).
type doubter interface {
	Doubtful(o client.Object) bool
}

// handover is how long a new leader takes changes of the status for those of the leader before it. Its cache may show them late: by more than
// this only while its watch is broken, and then most of its own reads go without what it writes, too.
const handover = 2 * time.Minute

// SpecChanged passes creations, deletions and changes of the spec of the objects that a controller reconciles. It drops changes of the
// status, which the controller makes itself. It passes them when the controller may have decided by an earlier state that there is nothing
// to write: while it is new, and while c may have read such a state of the object.
func SpecChanged(c client.Client) predicate.Predicate {
	spec := predicate.GenerationChangedPredicate{}
	doubts, ok := c.(doubter)
	if !ok {
		return spec
	}
	began := time.Now()
	return predicate.Or[client.Object](spec, predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return time.Since(began) < handover || doubts.Doubtful(e.ObjectNew) },
	})
}

// RestoreEnded passes updates by which a restore lets the controllers act on an object.
func RestoreEnded() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return IsRestoring(e.ObjectOld) && !IsRestoring(e.ObjectNew) },
	}
}

// IsRestoring reports whether an object belongs to a restore that has not made all objects yet. Until then its owners, or those that it
// owns, may be missing.
func IsRestoring(o client.Object) bool { return o.GetAnnotations()[skeinv1.AnnotationRestoring] != "" }

// Existence passes creations and deletions.
func Existence() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// conditionsOf returns the conditions of a kind that others depend on, and nil for other kinds.
func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *skeinv1.Agent:
		return o.Status.Conditions
	case *skeinv1.Prompt:
		return o.Status.Conditions
	case *skeinv1.Model:
		return o.Status.Conditions
	case *skeinv1.Tool:
		return o.Status.Conditions
	case *skeinv1.Effect:
		return o.Status.Conditions
	case *skeinv1.ThreadEndpoint:
		return o.Status.Conditions
	case *skeinv1.ThreadGateway:
		return o.Status.Conditions
	case *skeinv1.Webhook:
		return o.Status.Conditions
	case *skeinv1.WebhookReceiver:
		return o.Status.Conditions
	case *skeinv1.Thread:
		return o.Status.Conditions
	}
	return nil
}
