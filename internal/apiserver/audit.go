package apiserver

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

// cleaned is an audit backend that removes the query from the URI of each request, because the words of a search may repeat what people
// said (K8S-12). The path stays. It names the namespace, the thread and the subresource. cleaned also removes the bodies, and corrects the
// status of requests that a filter refused: flow control replaces the filter's answer after the audit has recorded it.
type cleaned struct{ audit.Backend }

// ProcessEvents implements audit.Sink.
func (b cleaned) ProcessEvents(events ...*auditinternal.Event) bool {
	clean := make([]*auditinternal.Event, len(events))
	for i, e := range events {
		one := *e
		one.RequestURI, _, _ = strings.Cut(e.RequestURI, "?")
		one.RequestObject, one.ResponseObject = nil, nil
		if why, refused := e.Annotations[flow.AnnotationRefused]; refused && e.ResponseStatus != nil && e.ResponseStatus.Code >= http.StatusBadRequest {
			one.ResponseStatus = &metav1.Status{Code: http.StatusTooManyRequests, Status: metav1.StatusFailure, Reason: metav1.StatusReasonTooManyRequests, Message: why}
		}
		clean[i] = &one
	}
	return b.Backend.ProcessEvents(clean...)
}
