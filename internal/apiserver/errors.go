package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var (
	threadsResource = schema.GroupResource{Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource}
	threadKind      = schema.GroupKind{Group: runtimev1.GroupVersion.Group, Kind: "Thread"}
)

// retrySoon is the Retry-After, in seconds, for conditions that last only a moment.
const retrySoon = 1

// statusOf turns any error into a Kubernetes Status. name is the thread as the caller wrote it. The text of an
// unknown error goes to the log only, because it may name what the API does not show.
func statusOf(ctx context.Context, name string, err error) *apierrors.StatusError {
	var status *apierrors.StatusError
	var bad *thread.InvalidError
	var notReady *definition.NotReadyError
	var noSandbox *engine.NoSandboxError
	var unknown *definition.UnknownError
	var endpoint *engine.EndpointError
	var method *definition.MethodError
	var tooLarge *http.MaxBytesError
	var unreadable *thread.EnvUnreadableError
	var version *store.VersionError
	var quota *store.QuotaError
	switch {
	case errors.As(err, &status):
		return status
	case errors.As(err, &bad):
		return invalid(name, metav1.CauseTypeFieldValueInvalid, bad.Field, bad.Message)
	case errors.As(err, &tooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
	case errors.As(err, &unreadable):
		return apierrors.NewServiceUnavailable(unreadable.Error())
	case errors.Is(err, envkeys.ErrNoKeys):
		return apierrors.NewServiceUnavailable(envkeys.ErrNoKeys.Error())
	case errors.Is(err, thread.ErrEnvUnknown):
		return notFound(name, "%s", err.Error())
	case errors.As(err, &notReady):
		e := apierrors.NewServiceUnavailable(fmt.Sprintf("the thread cannot do this yet: %s (%s)", notReady.Message, notReady.Reason))
		e.ErrStatus.Details = details(name, retrySoon)
		return e
	case errors.As(err, &noSandbox): // without Retry-After: clients would retry by themselves, and each retry may cost a pod
		e := apierrors.NewServiceUnavailable("the thread can have no sandbox at present, and nothing has run: " + noSandbox.Message)
		e.ErrStatus.Details = details(name, 0)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseNoSandbox, Message: noSandbox.Message}}
		return e
	case errors.As(err, &unknown):
		return notFound(name, "%s", unknown.Message)
	case errors.As(err, &endpoint):
		return endpointStatus(name, endpoint)
	case errors.As(err, &method):
		return methodStatus(name, method)
	case errors.Is(err, engine.ErrParentTerminated):
		return terminated(name, "the parent of this thread is terminated and takes no more messages")
	case errors.Is(err, store.ErrQueueFull):
		e := apierrors.NewTooManyRequests("the queue is full of user messages: send the message again once the thread has taken one", retrySoon)
		e.ErrStatus.Details = details(name, retrySoon)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQueueFull, Message: store.ErrQueueFull.Error()}}
		return e
	case errors.Is(err, store.ErrRetained):
		return conflict(name, "the Thread object was deleted and the data is retained: create a Thread whose spec.threadID is this id, then try again")
	case errors.Is(err, store.ErrNotRetained):
		return conflict(name, "the thread has a Thread object: delete the object, which also deletes the data")
	case errors.Is(err, store.ErrTerminated):
		return terminated(name, "the thread is terminated and takes no new work: reading still works; create a new Thread to continue")
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(threadsResource, name)
	case errors.Is(err, store.ErrRunning):
		return apierrors.NewConflict(threadsResource, name, errors.New("a run is under way: stop it, or wait until it has ended, and try again"))
	case errors.Is(err, store.ErrKeyReused):
		return keyReused(name)
	case errors.As(err, &version):
		return versionConflict(name, version)
	case errors.Is(err, store.ErrFenced):
		return apierrors.NewConflict(threadsResource, name, errors.New("the lease of this write has ended or passed to another holder, and nothing was written: acquire the thread again"))
	case errors.Is(err, store.ErrLeaseHeld):
		return leaseHeld(name)
	case errors.Is(err, store.ErrConflict):
		return apierrors.NewConflict(threadsResource, name, errors.New("it has changed since it was read: read it again and repeat the change"))
	case errors.As(err, &quota):
		return overQuota(name, quota)
	case errors.Is(err, store.ErrNoSpace):
		e := apierrors.NewServiceUnavailable("the disk of file contents is full, nothing was stored: try again once there is space")
		e.ErrStatus.Details = details(name, retrySoon)
		return e
	case errors.Is(err, store.ErrUnavailable):
		e := apierrors.NewServiceUnavailable("the store cannot be reached or cannot write: try again")
		e.ErrStatus.Details = details(name, retrySoon)
		return e
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the request ended before its work was done: try again", retrySoon)
	}
	id := audit.GetAuditIDTruncated(ctx)
	klog.FromContext(ctx).Error(err, "A request of the runtime API failed", "auditID", id, "thread", name)
	e := apierrors.NewInternalError(fmt.Errorf("the manager's log has the cause under audit id %q", id))
	return e
}

// conflict returns a 409: the thread is not in the required state.
func conflict(name, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: message, Details: details(name, 0),
	}}
}

// versionConflict returns a 409 that contains the thread's current version (THR-11).
func versionConflict(name string, v *store.VersionError) *apierrors.StatusError {
	e := apierrors.NewConflict(threadsResource, name, fmt.Errorf("it is at version %d, not %d: read it again and repeat the change", v.Current, v.Expected))
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeFieldValueInvalid, Field: parameterVersion, Message: strconv.FormatInt(v.Current, 10),
	}}
	return e
}

// leaseHeld returns a 409: a run or another writer holds the thread (THR-12).
func leaseHeld(name string) *apierrors.StatusError {
	e := apierrors.NewConflict(threadsResource, name, errors.New("a run or another writer holds it: try again when that has ended"))
	e.ErrStatus.Details.RetryAfterSeconds = retrySoon
	return e
}

func details(name string, retryAfter int32) *metav1.StatusDetails {
	return &metav1.StatusDetails{Group: threadsResource.Group, Kind: threadsResource.Resource, Name: name, RetryAfterSeconds: retryAfter}
}

// invalid returns a 422 that names the field. message says how to correct it.
func invalid(name string, cause metav1.CauseType, field, message string) *apierrors.StatusError {
	e := apierrors.NewInvalid(threadKind, name, nil)
	e.ErrStatus.Message = fmt.Sprintf("%s: %s", field, message)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause, Field: field, Message: message}}
	return e
}

// overQuota returns a 403, as for a ResourceQuota. The cause names what is used up: bytes or files.
func overQuota(name string, q *store.QuotaError) *apierrors.StatusError {
	e := apierrors.NewForbidden(threadsResource, name, nil)
	e.ErrStatus.Message = q.Error()
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQuotaExceeded, Field: q.Resource, Message: q.Error()}}
	return e
}

// terminated returns a 410: the thread can be read but never works again.
func terminated(name, message string) *apierrors.StatusError {
	d := details(name, 0)
	d.Causes = []metav1.StatusCause{{Type: runtimev1.CauseTerminated, Message: message}}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone, Message: message, Details: d,
	}}
}

// notFound returns a 404 for something within a thread.
func notFound(name, format string, args ...any) *apierrors.StatusError {
	e := apierrors.NewNotFound(threadsResource, name)
	e.ErrStatus.Message = fmt.Sprintf(format, args...)
	return e
}

// notStored returns a 503 for a Thread object whose conversation is not set up yet.
func notStored(name, why string) *apierrors.StatusError {
	message := fmt.Sprintf("thread %q exists but is not set up yet: try again", name)
	if why != "" {
		message = fmt.Sprintf("thread %q exists but is not set up yet (%s): try again once it is", name, why)
	}
	e := apierrors.NewServiceUnavailable(message)
	e.ErrStatus.Details = details(name, retrySoon)
	return e
}

// endpointStatus returns the Status for an endpoint whose code did not answer.
func endpointStatus(name string, e *engine.EndpointError) *apierrors.StatusError {
	cause := []metav1.StatusCause{{Type: runtimev1.CauseEndpointFailed, Message: e.Message, Field: e.Endpoint}}
	var out *apierrors.StatusError
	switch {
	case e.Timeout:
		out = apierrors.NewTimeoutError(e.Error(), 0)
		out.ErrStatus.Message = e.Error()
	case e.Lost:
		out = apierrors.NewServiceUnavailable(e.Error())
	default:
		out = &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: e.Error(),
		}}
	}
	out.ErrStatus.Details = details(name, 0)
	if e.Lost && !e.Timeout {
		out.ErrStatus.Details.RetryAfterSeconds = retrySoon
	}
	out.ErrStatus.Details.Causes = cause
	return out
}

// methodStatus returns a 405 that names the methods of a path.
func methodStatus(name string, e *definition.MethodError) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: fmt.Sprintf("thread %q: %v", name, e), Details: details(name, 0),
	}}
}

// keyReused returns a 422: the key belongs to another request.
func keyReused(name string) *apierrors.StatusError {
	return invalid(name, metav1.CauseTypeFieldValueDuplicate, runtimev1.HeaderIdempotencyKey,
		"this key was used for another request: use a new key for each request, and repeat a request unchanged")
}

// noLists returns the error for callers that expect the Thread objects here, as kubectl get threads.runtime.skein.dev
// does.
func noLists(verb string) error {
	e := apierrors.NewMethodNotSupported(threadsResource, verb)
	e.ErrStatus.Message = "the runtime API serves single threads by name: list, create and delete the objects, " +
		skeinv1.GroupVersion.WithResource("threads").GroupResource().String() + ", or GET namespaces/{namespace}/history for those with the newest activity"
	return e
}

func noSuchPath(r *http.Request) error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, threadsResource, "", "", 0, false)
	e.ErrStatus.Reason = metav1.StatusReasonNotFound
	e.ErrStatus.Message = "nothing is served at this path: the runtime API has namespaces/{namespace}/threads/{thread}/{subresource} and views over many threads, see /apis/" +
		runtimev1.GroupVersion.String() + " for the list"
	e.ErrStatus.Details = nil
	return e
}

// ambiguous returns a 409: a short form of an id means several threads.
func ambiguous(name, which string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: fmt.Sprintf("%q means more than one thread: use the whole id, or the namespace and the name%s", name, which),
		Details: details(name, 0),
	}}
}
