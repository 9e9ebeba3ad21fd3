package status

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// ThreadsResource is the resource that errors name.
var ThreadsResource = schema.GroupResource{Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource}

var threadKind = schema.GroupKind{Group: runtimev1.GroupVersion.Group, Kind: "Thread"}

// RetrySoon is the Retry-After, in seconds, for conditions that last only a moment.
const RetrySoon = 1

// Conflict returns a 409: the thread is not in the required state.
func Conflict(name, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: message, Details: details(name, 0),
	}}
}

// versionConflict returns a 409 that contains the thread's current version (THR-11).
func versionConflict(name string, v *store.VersionError) *apierrors.StatusError {
	e := apierrors.NewConflict(ThreadsResource, name, fmt.Errorf("it is at version %d, not %d: read it again and repeat the change", v.Current, v.Expected))
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeFieldValueInvalid, Field: VersionParameter, Message: strconv.FormatInt(v.Current, 10),
	}}
	return e
}

// leaseHeld returns a 409: a run or another writer holds the thread (THR-12).
func leaseHeld(name string) *apierrors.StatusError {
	e := apierrors.NewConflict(ThreadsResource, name, errors.New("a run or another writer holds it: try again when that has ended"))
	e.ErrStatus.Details.RetryAfterSeconds = RetrySoon
	return e
}

func details(name string, retryAfter int32) *metav1.StatusDetails {
	return &metav1.StatusDetails{Group: ThreadsResource.Group, Kind: ThreadsResource.Resource, Name: name, RetryAfterSeconds: retryAfter}
}

// Invalid returns a 422 that names the field. name is the thread, or empty where the request is about none. message says how to correct it.
func Invalid(name string, cause metav1.CauseType, field, message string) *apierrors.StatusError {
	e := apierrors.NewInvalid(threadKind, name, nil)
	if name == "" { // a view over many threads: kubectl would call it the Thread ""
		e.ErrStatus.Details.Group, e.ErrStatus.Details.Kind = "", ""
	}
	e.ErrStatus.Message = fmt.Sprintf("%s: %s", field, message)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause, Field: field, Message: message}}
	return e
}

// overQuota returns a 403, as for a ResourceQuota. The cause names what is used up: bytes or files.
func overQuota(name string, q *store.QuotaError) *apierrors.StatusError {
	e := apierrors.NewForbidden(ThreadsResource, name, nil)
	e.ErrStatus.Message = q.Error()
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQuotaExceeded, Field: q.Resource, Message: q.Error()}}
	return e
}

// NoRoomForThread returns a 403 for a Thread for which the quotas of its namespace leave no room. message is that of its Ready
// condition.
func NoRoomForThread(name, message string) *apierrors.StatusError {
	e := apierrors.NewForbidden(ThreadsResource, name, nil)
	e.ErrStatus.Message = message
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQuotaExceeded, Field: string(store.QuotaThreads), Message: message}}
	return e
}

// overNamespace returns a 403, as for a ResourceQuota. The cause names what the namespace has used up.
func overNamespace(name string, q *store.NamespaceQuotaError) *apierrors.StatusError {
	e := apierrors.NewForbidden(ThreadsResource, name, nil)
	e.ErrStatus.Message = q.Error()
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQuotaExceeded, Field: string(q.Resource), Message: q.Error()}}
	return e
}

// noMemory returns a 429: the namespace already takes as much of the manager's memory as it may.
func noMemory(name string, busy *membudget.BusyError) *apierrors.StatusError {
	e := apierrors.NewTooManyRequests(busy.Error(), RetrySoon)
	e.ErrStatus.Details = details(name, RetrySoon)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseMemory, Message: busy.Error()}}
	return e
}

// TooMuch returns a 413: the request or its answer takes more memory than it may, and always will.
func TooMuch(name, message string) *apierrors.StatusError {
	e := apierrors.NewRequestEntityTooLargeError(message)
	e.ErrStatus.Message = message
	e.ErrStatus.Details = details(name, 0)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseMemory, Message: message}}
	return e
}

func overEffects(name string, q *ports.EffectQuotaError) *apierrors.StatusError {
	e := apierrors.NewForbidden(ThreadsResource, name, nil)
	e.ErrStatus.Message = q.Message
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseQuotaExceeded, Field: "effects", Message: q.Message}}
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

// NotFound returns a 404 for something within a thread.
func NotFound(name, format string, args ...any) *apierrors.StatusError {
	e := apierrors.NewNotFound(ThreadsResource, name)
	e.ErrStatus.Message = fmt.Sprintf(format, args...)
	return e
}

// noThread returns a 404 for a thread that does not exist.
func noThread(name string) *apierrors.StatusError {
	e := apierrors.NewNotFound(ThreadsResource, name)
	e.ErrStatus.Message += ": check the name and the namespace; kubectl get threads lists those that exist"
	return e
}

// NotStored returns a 503 for a Thread object whose conversation is not set up yet. why is what it waits for; "" when that takes a
// moment. Only then clients are told to repeat the request by themselves: kubectl would do so for a minute without a word.
func NotStored(name, why string) *apierrors.StatusError {
	message, after := fmt.Sprintf("thread %q exists but is not set up yet: try again", name), int32(RetrySoon)
	if why != "" {
		message, after = fmt.Sprintf("thread %q exists but is not set up yet (%s): try again once it is", name, why), 0
	}
	e := apierrors.NewServiceUnavailable(message)
	e.ErrStatus.Details = details(name, after)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseNotSetUp, Message: message}}
	return e
}

// BeingDeleted returns a 409 for a Thread object that is being deleted and has no conversation, any more or at all. It is a store.ErrObjectDeleted.
func BeingDeleted(name string) error {
	return fmt.Errorf("%w (%w)", Conflict(name, fmt.Sprintf("thread %q is being deleted and takes no more requests", name)), store.ErrObjectDeleted)
}

// Stopping returns a 503 for a request that may take long, from a replica that is stopping. Nothing was done, so clients may repeat it.
func Stopping(name string) *apierrors.StatusError {
	e := apierrors.NewServiceUnavailable("this replica of the manager is stopping, and nothing was done: try again, and another one answers")
	e.ErrStatus.Details = details(name, RetrySoon)
	return e
}

// endpointStatus returns the Status for an endpoint whose code did not answer.
func endpointStatus(name string, e *endpoints.Error) *apierrors.StatusError {
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
		out.ErrStatus.Details.RetryAfterSeconds = RetrySoon
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
	return Invalid(name, metav1.CauseTypeFieldValueDuplicate, runtimev1.HeaderIdempotencyKey,
		"this key was used for another request: use a new key for each request, and repeat a request unchanged")
}

// NoMethod returns a 405 for a resource that has other verbs. It names their methods.
func NoMethod(resource, verb string, verbs []string) *apierrors.StatusError {
	e := apierrors.NewMethodNotSupported(schema.GroupResource{Group: ThreadsResource.Group, Resource: resource}, verb)
	var methods []string
	for _, v := range verbs {
		if m := methodOf(v); !slices.Contains(methods, m) {
			methods = append(methods, m)
		}
	}
	slices.Sort(methods)
	e.ErrStatus.Message += ": this path takes " + strings.Join(methods, ", ")
	return e
}

// methodOf returns the method of requests that are authorized as a verb.
func methodOf(verb string) string {
	switch verb {
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "patch":
		return http.MethodPatch
	case "delete":
		return http.MethodDelete
	}
	return http.MethodGet
}

// NoLists returns the error for callers that expect the Thread objects here, as kubectl get threads.runtime.skein.dev
// does.
func NoLists(verb string) error {
	e := apierrors.NewMethodNotSupported(ThreadsResource, verb)
	e.ErrStatus.Message = "the runtime API serves single threads by name: list, create and delete the objects, " +
		skeinv1.GroupVersion.WithResource("threads").GroupResource().String() + ", or GET namespaces/{namespace}/history for those with the newest activity"
	return e
}

// NoSuchPath returns a 404 that says what the API has.
func NoSuchPath(r *http.Request) error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, ThreadsResource, "", "", 0, false)
	e.ErrStatus.Reason = metav1.StatusReasonNotFound
	e.ErrStatus.Message = "nothing is served at this path: the runtime API has namespaces/{namespace}/threads/{thread}/{subresource} and views over many threads, see /apis/" +
		runtimev1.GroupVersion.String() + " for the list"
	e.ErrStatus.Details = nil
	return e
}

// Ambiguous returns a 409: a short form of an id means several threads. which ends the message, such as ": shop/a, shop/b"; it may be
// empty.
func Ambiguous(name, which string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: fmt.Sprintf("%q means more than one thread: use the whole id, or the namespace and the name%s", name, which),
		Details: details(name, 0),
	}}
}

// VersionParameter is the query parameter of the expected version.
const VersionParameter = "v"
