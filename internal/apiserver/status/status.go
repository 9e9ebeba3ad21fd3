// Package status turns errors into the Status objects that answer requests of the runtime API.
package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/executions"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Of turns any error into a Kubernetes Status. name is the thread as the caller wrote it. The text of an
// unknown error goes to the log only, because it may name what the API does not show.
func Of(ctx context.Context, name string, err error) *apierrors.StatusError {
	var status *apierrors.StatusError
	var bad *thread.InvalidError
	var notReady *definition.NotReadyError
	var noSandbox *ports.NoSandboxError
	var unknown *definition.UnknownError
	var endpoint *endpoints.Error
	var method *definition.MethodError
	var tooLarge *http.MaxBytesError
	var unreadable *thread.EnvUnreadableError
	var version *store.VersionError
	var quota *store.QuotaError
	var namespaceQuota *store.NamespaceQuotaError
	var effects *ports.EffectQuotaError
	var busy *membudget.BusyError
	var large *membudget.TooLargeError
	switch {
	case errors.As(err, &status):
		return status
	case errors.As(err, &bad):
		return Invalid(name, metav1.CauseTypeFieldValueInvalid, bad.Field, bad.Message)
	case errors.As(err, &busy):
		return noMemory(name, busy)
	case errors.As(err, &large):
		return TooMuch(name, large.Error())
	case errors.As(err, &tooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
	case errors.As(err, &unreadable):
		return apierrors.NewServiceUnavailable(unreadable.Error())
	case errors.Is(err, envkeys.ErrNoKeys):
		return apierrors.NewServiceUnavailable(envkeys.ErrNoKeys.Error())
	case errors.Is(err, thread.ErrEnvUnknown):
		return NotFound(name, "%s", err.Error())
	case errors.As(err, &notReady):
		e := apierrors.NewServiceUnavailable(fmt.Sprintf("the thread cannot do this yet: %s (%s)", notReady.Message, notReady.Reason))
		e.ErrStatus.Details = details(name, RetrySoon)
		return e
	case errors.As(err, &noSandbox): // without Retry-After: clients would retry by themselves, and each retry may cost a pod
		e := apierrors.NewServiceUnavailable("the thread can have no sandbox at present, and nothing has run: " + noSandbox.Message)
		e.ErrStatus.Details = details(name, 0)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseNoSandbox, Message: noSandbox.Message}}
		return e
	case errors.As(err, &unknown):
		return NotFound(name, "%s", unknown.Message)
	case errors.As(err, &endpoint):
		return endpointStatus(name, endpoint)
	case errors.As(err, &method):
		return methodStatus(name, method)
	case errors.Is(err, executions.ErrParentTerminated):
		return terminated(name, "the parent of this thread is terminated or deleted, and takes no more messages")
	case errors.Is(err, store.ErrQueueFull):
		what := "the queue is full of user messages: send the message again once the thread has taken one"
		if errors.Is(err, store.ErrInboxFull) {
			what = "so much waits for the thread that it takes no more: send this again once a run has taken some of it in"
		}
		e := apierrors.NewTooManyRequests(what, RetrySoon)
		e.ErrStatus.Details = details(name, RetrySoon)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQueueFull, Message: store.ErrQueueFull.Error()}}
		return e
	case errors.Is(err, store.ErrRetained):
		return Conflict(name, "the Thread object was deleted and the data is retained: create a Thread whose spec.threadID is this id, then try again")
	case errors.Is(err, store.ErrNotRetained):
		return Conflict(name, "the thread has a Thread object: delete the object, which also deletes the data")
	case errors.Is(err, store.ErrObjectDeleted):
		return Conflict(name, "the Thread object is being deleted: the thread takes no more work")
	case errors.Is(err, store.ErrTerminated):
		return terminated(name, "the thread is terminated and takes no new work: reading still works; create a new Thread to continue")
	case errors.Is(err, store.ErrNotFound):
		return noThread(name)
	case errors.Is(err, store.ErrRunning):
		return apierrors.NewConflict(ThreadsResource, name, errors.New("a run is under way: stop it, or wait until it has ended, and try again"))
	case errors.Is(err, store.ErrKeyReused):
		return keyReused(name)
	case errors.As(err, &version):
		return versionConflict(name, version)
	case errors.Is(err, store.ErrFenced):
		return apierrors.NewConflict(ThreadsResource, name, errors.New("the lease of this write has ended or passed to another holder, and nothing was written: acquire the thread again"))
	case errors.Is(err, store.ErrLeaseHeld):
		return leaseHeld(name)
	case errors.Is(err, store.ErrConflict):
		return apierrors.NewConflict(ThreadsResource, name, errors.New("it has changed since it was read: read it again and repeat the change"))
	case errors.As(err, &quota):
		return overQuota(name, quota)
	case errors.As(err, &namespaceQuota):
		return overNamespace(name, namespaceQuota)
	case errors.As(err, &effects):
		return overEffects(name, effects)
	case errors.Is(err, store.ErrNoSpace):
		e := apierrors.NewServiceUnavailable("the disk of file contents is full, nothing was stored: try again once there is space")
		e.ErrStatus.Details = details(name, RetrySoon)
		return e
	case errors.Is(err, store.ErrUnavailable):
		e := apierrors.NewServiceUnavailable("the store cannot be reached or cannot write: try again")
		e.ErrStatus.Details = details(name, RetrySoon)
		return e
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the request ended before its work was done: try again", RetrySoon)
	}
	id := audit.GetAuditIDTruncated(ctx)
	klog.FromContext(ctx).Error(err, "A request of the runtime API failed")
	e := apierrors.NewInternalError(fmt.Errorf("the manager's log has the cause under audit id %q", id))
	return e
}
