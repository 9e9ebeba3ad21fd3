package flow

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxHeader bounds the bytes of a request's URI and headers. The server of the generic API server reads up to 1 MiB, which a request would keep
// for as long as it waits or lasts: a thousand streams of one user would hold 1 GiB.
const maxHeader = 32 << 10

// frontProxyPrefix is how the names of the headers begin that the API server sets when it forwards a request. They carry the user's groups, of which
// there may be many. The API server drops such headers of its own clients.
const frontProxyPrefix = "X-Remote-"

// headerSize returns the bytes of the request's URI and headers, without those of a front proxy. Only a client with a certificate can be a front proxy.
func headerSize(r *http.Request) int {
	proxied := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	size := len(r.RequestURI)
	for name, values := range r.Header {
		if proxied && strings.HasPrefix(name, frontProxyPrefix) {
			continue
		}
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return size
}

// boundHeader returns a handler that answers 431 to requests whose headers are larger than maxHeader.
func (c *Control) boundHeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := headerSize(r)
		if size <= maxHeader {
			next.ServeHTTP(w, r)
			return
		}
		refusals.Inc()
		c.refuse(w, r, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestHeaderFieldsTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: fmt.Sprintf("the URL and the headers of the request have %d bytes, and at most %d are taken: send what is long in the body", size, maxHeader),
		}})
	})
}
