// Package conditions holds what the controllers share about conditions (K8S-01).
package conditions

import (
	"context"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// maxMessage bounds a condition's message: the output of a compiler may be long, and an object's status must stay
// small.
const maxMessage = 2048

// Writer sets the conditions of one object, for one generation and one time.
type Writer struct {
	List       *[]metav1.Condition
	Generation int64
	Now        time.Time
}

// Set sets a condition. Its transition time changes only with its status. Set derives the condition Stalled from
// Ready; GitOps tools use it to distinguish a mistake from work in progress.
func (w Writer) Set(kind string, status metav1.ConditionStatus, reason, message string) {
	w.put(kind, status, reason, message)
	if kind != skeinv1.ConditionReady {
		return
	}
	if status == metav1.ConditionFalse && Stalls(reason) {
		w.put(skeinv1.ConditionStalled, metav1.ConditionTrue, reason, message)
		return
	}
	meta.RemoveStatusCondition(w.List, skeinv1.ConditionStalled)
}

func (w Writer) put(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(w.List, metav1.Condition{
		Type:               kind,
		Status:             status,
		Reason:             reason,
		Message:            cut(message),
		ObservedGeneration: w.Generation,
		LastTransitionTime: metav1.NewTime(w.Now.Truncate(time.Second)),
	})
}

// Bool returns the condition status for b.
func Bool(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// Ready returns the Ready condition of a list, or one with status Unknown when there is none yet.
func Ready(list []metav1.Condition) metav1.Condition {
	if c := meta.FindStatusCondition(list, skeinv1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{Type: skeinv1.ConditionReady, Status: metav1.ConditionUnknown}
}

// RecordInvalid records an Event when an object has become InvalidSpec. recorder may be nil.
func RecordInvalid(recorder events.EventRecorder, o runtime.Object, before, after []metav1.Condition) {
	was, is := Ready(before), Ready(after)
	if recorder != nil && is.Reason == skeinv1.ReasonInvalidSpec && was.Reason != is.Reason {
		recorder.Eventf(o, nil, corev1.EventTypeWarning, is.Reason, "Check", "%s", is.Message)
	}
}

// undecodable is an object whose fields may have failed to decode.
type undecodable interface {
	client.Object
	DecodingProblem() string
}

// WriteStatus patches the status of an object, and reports whether it has written it. It writes nothing, and returns no error, if the object
// is gone or if the API server accepts no status for it: see Unwritable. recorder may be nil.
func WriteStatus(ctx context.Context, c client.StatusClient, recorder events.EventRecorder, o undecodable, patch client.Patch) (written bool, err error) {
	err = c.Status().Patch(ctx, o, patch)
	if err != nil && Unwritable(recorder, o, err) {
		return false, nil
	}
	return err == nil, client.IgnoreNotFound(err)
}

// Unwritable reports whether the API server refused a status because the spec beside it cannot be decoded. It then
// records an Event in place of the condition. The API server refuses every write of an object whose fields have other
// types than in the schema, until its spec is corrected, so retrying is useless. recorder may be nil.
func Unwritable(recorder events.EventRecorder, o undecodable, err error) bool {
	if o.DecodingProblem() == "" || !apierrors.IsInvalid(err) {
		return false
	}
	if recorder != nil {
		recorder.Eventf(o, nil, corev1.EventTypeWarning, skeinv1.ReasonInvalidSpec, "Check", "%s. The API server accepts no status for this object until its spec is corrected", o.DecodingProblem())
	}
	return true
}

// ReadyChanged reports whether the status, reason or message of the Ready condition differs.
func ReadyChanged(before, after []metav1.Condition) bool {
	a, b := Ready(before), Ready(after)
	return a.Status != b.Status || a.Reason != b.Reason || a.Message != b.Message
}

func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage - len("…")
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}
