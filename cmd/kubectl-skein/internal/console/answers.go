package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer writes JSON.
func answer(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // a browser that has gone needs no answer
}

// statusOf returns an error of the console itself, in the form of the API server's errors.
func statusOf(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, //nolint:gosec // an HTTP status
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, statusOf(code, reason, message))
}

// unused answers requests for what the console does not offer.
func unused(w http.ResponseWriter, r *http.Request) {
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("the console does not use %s %s: use kubectl or the runtime API itself", r.Method, r.URL.Path))
}

// Error is an error with a code of HTTP.
type Error struct {
	Code   int
	Reason metav1.StatusReason
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *Error) Unwrap() error { return e.Err }

// fail answers a request with an error of the API server or of the way to it.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the browser has gone
	}
	status := s.explain(err)
	answer(w, int(status.Code), status)
}

// explain returns an error as a Status that says what to do.
func (s *Server) explain(err error) *metav1.Status {
	var own *Error
	if errors.As(err, &own) {
		return statusOf(own.Code, own.Reason, err.Error())
	}
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		if way := net.Error(nil); errors.As(err, &way) || errors.As(err, new(*url.Error)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
			return s.unreachable(err)
		}
		return statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
	status := api.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Message = err.Error()
	switch {
	case status.Code == http.StatusUnauthorized:
		return unknownCredentials()
	case status.Code < http.StatusBadRequest || status.Code > 599:
		status.Code = http.StatusBadGateway
	}
	if advice := s.options.Advice(status); advice != "" {
		status.Message += "\n" + advice
	}
	return &status
}

func (s *Server) unreachable(err error) *metav1.Status {
	if errors.Is(err, context.DeadlineExceeded) {
		return statusOf(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, err.Error()+": try again")
	}
	if way := new(*url.Error); errors.As(err, way) {
		err = (*way).Err // without the URL, which says nothing to people
	}
	return statusOf(http.StatusBadGateway, reasonUnreachable, fmt.Sprintf("the API server cannot be reached: %v: check the network and the kubeconfig", err))
}

// reasonUnreachable is the reason of errors of the way to the API server.
const reasonUnreachable = metav1.StatusReasonServiceUnavailable

// unknownCredentials replaces the API server's 401, which is not about the session of the page.
func unknownCredentials() *metav1.Status {
	return statusOf(http.StatusBadGateway, metav1.StatusReasonUnauthorized,
		"the API server does not accept the credentials of the kubeconfig: log in to the cluster again, as for kubectl, and run `kubectl skein console` again if that does not help")
}

// contentTypes are those of the page's files. What an operating system says about file names does not count.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2",
}

// servePage serves the files of the page.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	kind, known := contentTypes[path.Ext(name)]
	if !known {
		unused(w, r)
		return
	}
	f, err := s.options.Page.Open(name)
	if err != nil {
		unused(w, r)
		return
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		unused(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	if r.Method == http.MethodHead {
		return
	}
	_, _ = io.Copy(w, f) // a browser that has gone needs no answer
}
