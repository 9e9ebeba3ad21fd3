package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Thread speaks to one thread's runtime API over plain HTTP, through the aggregation layer. It is not the
// Go client on purpose: what is tested is the wire.
type Thread struct {
	Namespace, Name string
	rest            rest.Interface
	client          client.Client
}

// Thread gives a handle; the thread need not exist yet.
func (c *Cluster) Thread(namespace, name string) *Thread {
	r, err := RuntimeREST(c.Config)
	if err != nil {
		panic(err) // only a broken kubeconfig does this, and Up has used it before
	}
	return &Thread{Namespace: namespace, Name: name, rest: r, client: c.Client}
}

// RuntimeREST is an HTTP client of the API server with the given identity.
func RuntimeREST(cfg *rest.Config) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &schema.GroupVersion{Group: "runtime.skein.dev", Version: "v1alpha1"}
	cfg.APIPath = "/apis"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(cfg)
}

// As gives the same thread with another identity.
func (t *Thread) As(cfg *rest.Config) (*Thread, error) {
	r, err := RuntimeREST(cfg)
	return &Thread{Namespace: t.Namespace, Name: t.Name, rest: r, client: t.client}, err
}

// Request starts a request to a subresource; sub may hold a query ("messages?limit=5").
func (t *Thread) Request(method, sub string) *rest.Request {
	sub, query, _ := strings.Cut(sub, "?")
	path := fmt.Sprintf("/apis/runtime.skein.dev/v1alpha1/namespaces/%s/threads/%s", t.Namespace, t.Name)
	if sub != "" {
		path += "/" + sub
	}
	req := t.rest.Verb(method).AbsPath(path)
	for _, kv := range strings.Split(query, "&") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			req = req.Param(k, v)
		}
	}
	return req
}

func (t *Thread) call(ctx context.Context, method, sub string, body, out any) error {
	req := t.Request(method, sub)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req = req.SetHeader("Content-Type", "application/json").Body(b)
	}
	raw, err := req.DoRaw(ctx)
	if err != nil || out == nil {
		return wrap(err, raw)
	}
	return json.Unmarshal(raw, out)
}

// wrap keeps the type of a Status error, and shows the body of an answer that is not one.
func wrap(err error, body []byte) error {
	if err == nil || len(body) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, body)
}

// Queue sends a user message (MSG-05).
func (t *Thread) Queue(ctx context.Context, m runtimev1.NewMessage) (runtimev1.Message, error) {
	var out runtimev1.Message
	return out, t.call(ctx, http.MethodPost, "queue", m, &out)
}

// Say queues a user message with this text.
func (t *Thread) Say(ctx context.Context, text string) error {
	_, err := t.Queue(ctx, runtimev1.NewMessage{Content: text})
	return err
}

// Inject stores a message without starting execution (MSG-04).
func (t *Thread) Inject(ctx context.Context, m runtimev1.NewMessage) (runtimev1.Message, error) {
	var out runtimev1.Message
	return out, t.call(ctx, http.MethodPost, "messages", m, &out)
}

// Messages gives the conversation, silent messages included.
func (t *Thread) Messages(ctx context.Context) ([]runtimev1.Message, error) {
	var out runtimev1.MessageList
	err := t.call(ctx, http.MethodGet, "messages?limit=1000&includeSilent=true", nil, &out)
	return out.Messages, err
}

// Page gives a page of messages as the query asks.
func (t *Thread) Page(ctx context.Context, query string) (runtimev1.MessageList, error) {
	var out runtimev1.MessageList
	return out, t.call(ctx, http.MethodGet, "messages?"+query, nil, &out)
}

// Runs gives the runs, newest first.
func (t *Thread) Runs(ctx context.Context) ([]runtimev1.Run, error) {
	var out runtimev1.RunList
	err := t.call(ctx, http.MethodGet, "runs", nil, &out)
	return out.Runs, err
}

// Code runs code in the thread's sandbox (COD-01).
func (t *Thread) Code(ctx context.Context, req runtimev1.CodeRequest) (runtimev1.CodeResult, error) {
	var out runtimev1.CodeResult
	return out, t.call(ctx, http.MethodPost, "code", req, &out)
}

// Terminate ends the thread softly (THR-05).
func (t *Thread) Terminate(ctx context.Context) error {
	return t.call(ctx, http.MethodPost, "terminate", struct{}{}, nil)
}

// WriteFile puts bytes into the thread's files.
func (t *Thread) WriteFile(ctx context.Context, path, mime string, data []byte) error {
	raw, err := t.Request(http.MethodPut, "files/"+strings.TrimPrefix(path, "/")).SetHeader("Content-Type", mime).Body(data).DoRaw(ctx)
	return wrap(err, raw)
}

// ReadFile gets the bytes of a file.
func (t *Thread) ReadFile(ctx context.Context, path string) ([]byte, error) {
	return t.Request(http.MethodGet, "files/"+strings.TrimPrefix(path, "/")).DoRaw(ctx)
}

// Value gives a value of the key-value store as JSON, "null" when there is none (KVS-01).
func (t *Thread) Value(ctx context.Context, key string) (string, error) {
	raw, err := t.Request(http.MethodGet, "kv/"+key).DoRaw(ctx)
	return strings.TrimSpace(string(raw)), wrap(err, raw)
}

// SetValue sets a value of the key-value store to JSON.
func (t *Thread) SetValue(ctx context.Context, key, value string) error {
	raw, err := t.Request(http.MethodPut, "kv/"+key).SetHeader("Content-Type", "application/json").Body([]byte(value)).DoRaw(ctx)
	return wrap(err, raw)
}

// Events opens the stream of server-sent events after a sequence number.
func (t *Thread) Events(ctx context.Context, after int64) (io.ReadCloser, error) {
	return t.Request(http.MethodGet, fmt.Sprintf("events?after=%d", after)).SetHeader("Accept", "text/event-stream").Stream(ctx)
}

// Log gives the events up to now.
func (t *Thread) Log(ctx context.Context) ([]runtimev1.Event, error) {
	raw, err := t.Request(http.MethodGet, "events?after=0&follow=false").SetHeader("Accept", "text/event-stream").DoRaw(ctx)
	if err != nil {
		return nil, wrap(err, raw)
	}
	var events []runtimev1.Event
	for _, line := range strings.Split(string(raw), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e runtimev1.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return nil, err
		}
		if e.Seq > 0 {
			events = append(events, e)
		}
	}
	return events, nil
}

// Object gets the Thread object.
func (t *Thread) Object(ctx context.Context) (*skeinv1.Thread, error) {
	var o skeinv1.Thread
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, &o)
	return &o, err
}

// Delete deletes the Thread object.
func (t *Thread) Delete(ctx context.Context) error {
	return t.client.Delete(ctx, &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name}}, client.PropagationPolicy(metav1.DeletePropagationBackground))
}
