package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// apiRoot is the path of the runtime API.
const apiRoot = "/apis/runtime.skein.dev/v1alpha1/"

// forwarded are the paths of the runtime API that the page uses. All others are refused, so that a fault of the page reaches no more
// than what it shows and does.
var forwarded = []string{
	"GET namespaces/{ns}/threads/{thread}",
	"GET namespaces/{ns}/threads/{thread}/messages",
	"GET namespaces/{ns}/threads/{thread}/messages/{id}",
	"GET namespaces/{ns}/threads/{thread}/files",
	"GET namespaces/{ns}/threads/{thread}/runs",
	"GET namespaces/{ns}/threads/{thread}/runs/{id}",
	"GET namespaces/{ns}/threads/{thread}/approvals",
	"GET namespaces/{ns}/threads/{thread}/usage",
	"GET namespaces/{ns}/threads/{thread}/children",
	"GET namespaces/{ns}/threads/{thread}/relationships",
	"GET namespaces/{ns}/threads/{thread}/execution",
	"GET namespaces/{ns}/threads/{thread}/state",
	"GET namespaces/{ns}/threads/{thread}/kv",
	"GET namespaces/{ns}/threads/{thread}/kv/{rest...}",
	"GET namespaces/{ns}/threads/{thread}/queue",
	"GET namespaces/{ns}/firings/{id}",
	"POST namespaces/{ns}/threads/{thread}/queue",
	"POST namespaces/{ns}/threads/{thread}/stop",
	"POST namespaces/{ns}/threads/{thread}/continue",
	"POST namespaces/{ns}/threads/{thread}/fork",
	"POST namespaces/{ns}/threads/{thread}/approvals/{id}",
	"POST namespaces/{ns}/threads/{thread}/runs/{id}/cancel",
}

// streamed are paths that are streams as well, or WebSockets.
var streamed = []string{
	"GET namespaces/{ns}/threads/{thread}/observe",
	"GET namespaces/{ns}/threads/{thread}/events",
}

// fileContents is the path of the contents of files.
const fileContents = "GET namespaces/{ns}/threads/{thread}/files/{rest...}"

// requestHeaders are the headers that reach the API server. Credentials, impersonation and cookies of the browser are not among them.
var requestHeaders = []string{
	"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "Range", "If-Match", "If-None-Match", "If-Range", "Last-Event-Id", runtimev1.HeaderIdempotencyKey,
	"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Version",
}

// subprotocols are those of the runtime API's WebSockets. Another one might be a token.
var subprotocols = []string{runtimev1.ObserveSubprotocol, runtimev1.EventsSubprotocol}

// answerHeaders are the headers that reach the browser.
var answerHeaders = []string{
	"Content-Type", "Content-Length", "Content-Encoding", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Retry-After", "Vary", "Date", "Trailer", "Transfer-Encoding",
	"Audit-Id", "Warning", runtimev1.HeaderIdempotentReplayed, runtimev1.HeaderFileRecord,
	"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol",
}

// proxyPolicy is the Content-Security-Policy of what comes from the cluster. Nothing of it runs or loads anything, should a browser show it.
const proxyPolicy = "sandbox; default-src 'none'"

// thumbnails are the types of small images, which the page shows in place.
var thumbnails = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// proxy forwards requests to the API server with the viewer's credentials.
type proxy struct {
	base *url.URL // of the API server, perhaps with a path
	to   *httputil.ReverseProxy
}

func newProxy(cfg *rest.Config) (*proxy, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(cfg) // it uses HTTP/1.1 for requests that become WebSockets
	if err != nil {
		return nil, err
	}
	p := &proxy{base: base}
	p.to = &httputil.ReverseProxy{
		Transport: transport, Rewrite: p.rewrite, ModifyResponse: modify, ErrorHandler: failed,
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	return p, nil
}

func (p *proxy) register(mux *http.ServeMux) {
	for _, f := range append(slices.Clone(forwarded), fileContents) {
		method, path, _ := strings.Cut(f, " ")
		mux.HandleFunc(method+" "+apiRoot+path, func(w http.ResponseWriter, r *http.Request) {
			if isUpgrade(r) {
				refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "only observe and events are WebSockets")
				return
			}
			if f == fileContents {
				r = r.WithContext(context.WithValue(r.Context(), fileKey{}, r.PathValue("rest")))
			}
			p.forward(w, r)
		})
	}
	for _, s := range streamed {
		method, path, _ := strings.Cut(s, " ")
		mux.HandleFunc(method+" "+apiRoot+path, p.forward)
	}
}

// fileKey is the key of the path of a file in the context of a request for its contents.
type fileKey struct{}

// loads are the purposes for which a browser may ask for what comes from the cluster: the page asks by itself, the viewer downloads a file, and small
// images are drawn. A script or a style, for example, is none of them.
var loads = []string{"", "empty", "document", "image", "websocket"}

// withoutEarly is a ResponseWriter without answers before the answer (1xx), which would take the headers of this server with them.
type withoutEarly struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w withoutEarly) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap returns the writer for http.ResponseController.
func (w withoutEarly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (p *proxy) forward(w http.ResponseWriter, r *http.Request) {
	for _, name := range []string{"ns", "thread", "id"} {
		if strings.Contains(r.PathValue(name), "/") { // the API server would decode it, and see another path
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the namespace, the name or the id has a slash: only the paths of files and keys may have them")
			return
		}
	}
	if isUpgrade(r) && !httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket") {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the connection can only become a WebSocket")
		return
	}
	if dest := r.Header.Get("Sec-Fetch-Dest"); !slices.Contains(loads, dest) {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("what comes from the cluster is never used as %s", dest))
		return
	}
	clear(w.Header()) // the answer gets headers of its own
	r.Body = http.MaxBytesReader(w, r.Body, runtimev1.MaxBodyBytes)
	p.to.ServeHTTP(withoutEarly{w}, r)
}

// isUpgrade reports whether a request asks for another protocol.
func isUpgrade(r *http.Request) bool {
	return httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") || r.Header.Get("Upgrade") != ""
}

// rewrite makes the request to the API server. It leaves the path as the browser has escaped it.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	u := *p.base
	u.Path = strings.TrimSuffix(p.base.Path, "/") + r.In.URL.Path
	u.RawPath = strings.TrimSuffix(p.base.EscapedPath(), "/") + r.In.URL.EscapedPath()
	u.RawQuery = r.Out.URL.RawQuery
	if p.base.RawQuery != "" {
		u.RawQuery = p.base.RawQuery + "&" + u.RawQuery
	}
	h := http.Header{}
	for _, name := range requestHeaders {
		if values := r.In.Header.Values(name); len(values) > 0 {
			h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
	if isUpgrade(r.In) {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", "websocket")
		for _, offered := range r.In.Header.Values("Sec-Websocket-Protocol") {
			for one := range strings.SplitSeq(offered, ",") {
				if one = strings.TrimSpace(one); slices.Contains(subprotocols, one) {
					h.Add("Sec-Websocket-Protocol", one)
				}
			}
		}
	}
	r.Out.URL, r.Out.Host, r.Out.Header = &u, "", h
}

// modify makes the answer that the browser gets. What is in it may have been written by a model, so no browser may take it for a page of
// the console.
func modify(res *http.Response) error {
	switch location := res.Header.Get("Location"); {
	case res.StatusCode == http.StatusUnauthorized:
		return replaced(res, unknownCredentials())
	case res.StatusCode >= 300 && res.StatusCode < 400 && location != "":
		return errors.New("it sent the request on to another address, which the console does not follow")
	}
	in := res.Request.URL
	kept := http.Header{}
	for _, name := range answerHeaders {
		if values := res.Header.Values(name); len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	res.Header = kept
	if below, isFile := res.Request.Context().Value(fileKey{}).(string); isFile {
		small, _ := strconv.ParseBool(in.Query().Get("thumbnail"))
		kind, _, _ := mime.ParseMediaType(kept.Get("Content-Type"))
		image := slices.Contains(thumbnails, kind)
		if small && res.StatusCode == http.StatusOK && !image {
			return fmt.Errorf("it sent a thumbnail of the type %q, which is no image that the console shows", kind)
		}
		if !small || res.StatusCode != http.StatusOK {
			disposition := mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(below)})
			if disposition == "" {
				disposition = "attachment"
			}
			kept.Set("Content-Disposition", disposition)
			if res.StatusCode < http.StatusMultipleChoices { // others are errors as JSON
				kept.Set("Content-Type", "application/octet-stream") // whatever its author says that it is
			}
		}
	}
	setHeaders(kept, proxyPolicy)
	return nil
}

// replaced puts another body into an answer of the API server.
func replaced(res *http.Response, status *metav1.Status) error {
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	res.Header = http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}}
	setHeaders(res.Header, proxyPolicy)
	res.StatusCode, res.Status = int(status.Code), ""
	res.ContentLength, res.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	return nil
}

// failed answers a request that got no answer of the API server.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	setHeaders(w.Header(), proxyPolicy)
	var large *http.MaxBytesError
	switch {
	case r.Context().Err() != nil:
		return // the browser has gone
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes: write less at once", large.Limit))
	default:
		refuse(w, http.StatusBadGateway, reasonUnreachable, fmt.Sprintf("the API server did not answer: %v: check the network, and try again", err))
	}
}
