package apiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// call is one request, authorized and resolved.
type call struct {
	w         http.ResponseWriter
	r         *http.Request
	namespace string   // empty for a view over all namespaces
	name      string   // the thread as the caller wrote it, or the item of a view
	path      []string // the path below the subresource
	verb      string

	secrets      *redact.Registry // removed from every answer
	subresource  runtimev1.Subresource
	managesLease bool // the lease in the header is what the call manages, not what it writes under

	thread *thread.State
	row    *store.Thread
}

// rest returns the path below the subresource, without a leading slash.
func (c *call) rest() string { return strings.Join(c.path, "/") }

// clean removes secrets from JSON that goes to the caller (ENV-03).
func (c *call) clean(body []byte) []byte { return c.secrets.JSON(c.namespace, body) }

// writeJSON answers with an object.
func (c *call) writeJSON(code int, obj any) error {
	body, err := marshal(obj)
	if err != nil {
		return err
	}
	body = c.secrets.JSON(c.namespace, body)
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(code)
	_, _ = c.w.Write(body) // an error means that the client has gone
	return nil
}

// marshal writes JSON on one line, with a newline. It does not escape texts for HTML.
func marshal(obj any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(obj)
	return buf.Bytes(), err
}

// writeSuccess answers a call that has nothing to return.
func (c *call) writeSuccess() error {
	return c.writeJSON(http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusOK,
	})
}

// handler answers a call, or returns the error to answer it with. Once it has begun to write it returns nil.
type handler func(*call) error

// verbs maps the verb that was authorized to its handler.
type verbs = map[string]handler
