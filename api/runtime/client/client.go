// Package client is a client of Skein's runtime API: messages, files, events and everything else inside threads. It
// works through the Kubernetes API (with any kubeconfig; RBAC decides) and directly against the manager's own address
// with a bearer token. The URLs are the same.
//
// A Thread is a ThreadState: the Go form of what tools, hooks and endpoints get as "state" in TypeScript.
//
// Errors have kinds for errors.Is (ErrNotFound, ErrTerminated, ErrQueueFull, …). They also work with the functions of
// k8s.io/apimachinery/pkg/api/errors: IsNotFound, IsInvalid, IsForbidden and so on.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Client is a client of the runtime API. It is safe for concurrent use.
type Client struct {
	rest rest.Interface
	// streams is the client for answers that last. timeout, which otherwise bounds a whole request, bounds how long
	// such an answer may take to begin.
	streams rest.Interface
	timeout time.Duration
	direct  bool // connects directly to the manager, where a request may last as long as it makes progress
	// sockets returns the HTTP client for WebSockets, which use HTTP/1.1 only. It is made when the first one is
	// opened.
	sockets func() (*http.Client, error)
}

// statusCodecs decode Status, the only object of the Kubernetes API machinery in answers.
var statusCodecs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return serializer.NewCodecFactory(s)
}()

// New returns a client that uses the given configuration of the Kubernetes API, and reaches the runtime API through
// it.
func New(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/apis"
	cfg.GroupVersion = &runtimev1.GroupVersion
	cfg.NegotiatedSerializer = statusCodecs.WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if cfg.QPS == 0 {
		cfg.QPS = -1 // the server limits the rate
	}
	r, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	lasting := rest.CopyConfig(cfg)
	lasting.Timeout = 0
	s, err := rest.RESTClientFor(lasting)
	if err != nil {
		return nil, err
	}
	return &Client{rest: r, streams: s, timeout: cfg.Timeout, sockets: sync.OnceValues(func() (*http.Client, error) {
		cfg := rest.CopyConfig(cfg)
		cfg.NextProtos = []string{"http/1.1"}
		return rest.HTTPClientFor(cfg)
	})}, nil
}

// NewDirect returns a client that connects directly to the manager at baseURL (https://host:port) with a bearer
// token. caBundle is the PEM of the authority that signed the manager's certificate. nil means the system's
// authorities.
func NewDirect(baseURL, token string, caBundle []byte) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a runtime API: use one such as https://skein-runtime-api.skein-system.svc", baseURL)
	}
	c, err := New(&rest.Config{Host: baseURL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: caBundle}})
	if err != nil {
		return nil, err
	}
	c.direct = true
	return c, nil
}

// Thread returns a handle on one thread. name is the name of the Thread object or any spelling of the thread's id.
func (c *Client) Thread(namespace, name string) *Thread {
	return &Thread{client: c, namespace: namespace, name: name, scratch: map[string]any{}}
}

// Thread is a handle on one thread. Making one sends no request.
type Thread struct {
	client          *Client
	namespace, name string
	scratch         map[string]any
	headers         [][2]string // of writes
	expect          *int64      // the version that writes expect
	impatient       bool        // whether reads are sent only once
}

// request starts a request below the thread. A rest that is a path becomes part of the URL unchanged.
func (t *Thread) request(verb string, sub runtimev1.Subresource, rest ...string) (*rest.Request, error) {
	return t.requestAt(verb, "", sub, rest...)
}

func (t *Thread) requestAt(verb, special string, sub runtimev1.Subresource, rest ...string) (*rest.Request, error) {
	if sub == runtimev1.SubresourceFiles && len(rest) == 1 {
		path, err := filePath(rest[0])
		if err != nil {
			return nil, err
		}
		rest = []string{path}
	}
	var param string
	if keyed := sub == runtimev1.SubresourceKV || sub == runtimev1.SubresourceState; keyed && len(rest) == 1 {
		key := rest[0]
		if key == "" {
			return nil, errNoKey
		}
		if checkSegment(key) != nil {
			param, rest = key, nil
		}
	}
	for _, s := range append([]string{t.namespace, t.name}, rest...) {
		if err := checkSegment(s); err != nil {
			return nil, err
		}
	}
	segments := []string{"/apis", runtimev1.GroupVersion.Group, runtimev1.GroupVersion.Version}
	if special != "" {
		segments = append(segments, special)
	}
	segments = append(segments, "namespaces", t.namespace, runtimev1.ThreadsResource, t.name)
	if strings.Contains(t.namespace, "/") || strings.Contains(t.name, "/") {
		return nil, fmt.Errorf("%q is not the name of a thread", t.namespace+"/"+t.name)
	}
	if sub != "" {
		segments = append(segments, string(sub))
	}
	r := t.bind(verb, t.client.rest.Verb(verb).AbsPath(append(segments, rest...)...))
	if param != "" {
		r.Param(runtimev1.KeyParameter, param)
	}
	return r, nil
}

// checkSegment refuses parts that URL handling on the way would change.
func checkSegment(s string) error {
	if s == "" {
		return errors.New("a part of the runtime API's URL is empty: set the thread, the path or the key")
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q cannot be part of a URL: write it without empty parts, \".\" and \"..\"", s)
		}
	}
	return nil
}

// get sends a request and decodes its answer into out.
func get(ctx context.Context, r *rest.Request, out any) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return explain(err) // made from the Status, which the error of Raw does not contain
	}
	body, err := result.Raw()
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the answer of the runtime API cannot be read: %w", err)
	}
	return nil
}

// getAt is get for the common case, a read below the thread.
func (t *Thread) getAt(ctx context.Context, out any, params map[string]string, sub runtimev1.Subresource, rest ...string) error {
	r, err := t.request(http.MethodGet, sub, rest...)
	if err != nil {
		return err
	}
	for k, v := range params {
		r.Param(k, v)
	}
	return get(ctx, r, out)
}

// send sends a JSON body and decodes the answer. It does not retry when the server asks for a later retry, because
// the caller knows better whether to wait.
func (t *Thread) send(ctx context.Context, verb string, body, out any, sub runtimev1.Subresource, rest ...string) error {
	r, err := t.request(verb, sub, rest...)
	if err != nil {
		return err
	}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r.Body(data).SetHeader("Content-Type", runtime.ContentTypeJSON)
	}
	return get(ctx, r.MaxRetries(0), out)
}

// decoded returns v, or nil when it could not be filled in.
func decoded[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// getAs is get for an answer of type T.
func getAs[T any](ctx context.Context, r *rest.Request) (*T, error) {
	v := new(T)
	return decoded(v, get(ctx, r, v))
}

// readAs is getAt for an answer of type T.
func readAs[T any](ctx context.Context, t *Thread, params map[string]string, sub runtimev1.Subresource, rest ...string) (*T, error) {
	v := new(T)
	return decoded(v, t.getAt(ctx, v, params, sub, rest...))
}

// sendAs is send for an answer of type T.
func sendAs[T any](ctx context.Context, t *Thread, verb string, body any, sub runtimev1.Subresource, rest ...string) (*T, error) {
	v := new(T)
	return decoded(v, t.send(ctx, verb, body, v, sub, rest...))
}
