// Package call is what the handlers of the runtime API share: one request, read and answered.
package call

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Call is one request, authorized and resolved.
type Call struct {
	Response http.ResponseWriter
	Request  *http.Request

	Namespace string   // empty for a view over all namespaces
	Name      string   // the thread as the caller wrote it, or the item of a view
	Path      []string // the path below the subresource
	Verb      string   // as it was authorized

	// KeyInQuery means that Path is a key that came as runtimev1.KeyParameter.
	KeyInQuery bool

	Secrets     *redact.Registry // those of Namespace are removed from every answer
	Subresource runtimev1.Subresource

	// Thread and Row are nil in the calls of views.
	Thread *thread.State
	Row    *store.Thread // as it was when the call began
}

// Context returns the context of the request.
func (c *Call) Context() context.Context { return c.Request.Context() }

// Writes reports whether the call changes something.
func (c *Call) Writes() bool {
	switch c.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Rest returns the path below the subresource, without a leading slash.
func (c *Call) Rest() string { return strings.Join(c.Path, "/") }

// Clean removes secrets from JSON that goes to the caller (ENV-03).
func (c *Call) Clean(body []byte) []byte { return c.Secrets.JSON(c.Namespace, body) }

// CleanItem removes the secrets of an item's own namespace. An answer over all namespaces needs it for each item: with the secrets
// of other namespaces removed too, it would confirm guesses at them.
func (c *Call) CleanItem(namespace string, item any) error {
	if !c.Secrets.HasSecrets(namespace) {
		return nil
	}
	body, err := json.Marshal(item)
	if err != nil {
		return err
	}
	clean := c.Secrets.JSON(namespace, body)
	if bytes.Equal(clean, body) {
		return nil
	}
	reflect.ValueOf(item).Elem().SetZero()
	return json.Unmarshal(clean, item)
}

// maxAnswer bounds every answer but those that are streamed.
const maxAnswer = 96 << 20

// WriteJSON answers with an object.
func (c *Call) WriteJSON(code int, obj any) error {
	body, err := Marshal(obj)
	if err != nil {
		return err
	}
	if len(body) > maxAnswer {
		return status.TooMuch(c.Name, fmt.Sprintf("the answer would have %d MiB, more than %d: ask for less at once", len(body)>>20, maxAnswer>>20))
	}
	if err := membudget.From(c.Context()).Draw(c.Context(), int64(len(body))); err != nil { // the client may read it slowly
		return err
	}
	body = c.Clean(body)
	c.Response.Header().Set("Content-Type", "application/json")
	c.Response.WriteHeader(code)
	_, _ = c.Response.Write(body) // an error means that the client has gone
	return nil
}

// Marshal writes JSON on one line, with a newline. It does not escape texts for HTML.
func Marshal(obj any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(obj)
	return buf.Bytes(), err
}

// WriteSuccess answers a call that has nothing to return.
func (c *Call) WriteSuccess() error {
	return c.WriteJSON(http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusOK,
	})
}

// Handler answers a call, or returns the error to answer it with. Once it has begun to write it returns nil.
type Handler func(*Call) error

// Verbs maps the verb that was authorized to its handler.
type Verbs = map[string]Handler
