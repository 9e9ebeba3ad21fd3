package router

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/endpoint/headers"
)

// Writes with an idempotency key (MSG-10) store two things: the results of their transactions, in those same
// transactions, so that no crash can come between; and the whole answer, after it was made. A repeat gets the stored
// answer. If a crash prevented storing the answer, the repeat runs the handler again. Its transactions then change
// nothing and return their stored results.

const (
	// repeatWait is how long a repeat waits for a concurrent first request.
	repeatWait = 20 * time.Second
	// maxAnswer bounds the answers that are stored. A repeat computes a larger answer again.
	maxAnswer = 1 << 20
)

// repeats keeps requests with the same key from running at the same time within this replica. mu guards under.
type repeats struct {
	mu    sync.Mutex
	under map[string]chan struct{}
}

// begin waits until no request with the key is running. It returns a function that ends this one.
func (rs *repeats) begin(ctx context.Context, key string) (end func(), ok bool) {
	timer := time.NewTimer(repeatWait)
	defer timer.Stop()
	for {
		rs.mu.Lock()
		first, busy := rs.under[key]
		if !busy {
			done := make(chan struct{})
			if rs.under == nil {
				rs.under = map[string]chan struct{}{}
			}
			rs.under[key] = done
			rs.mu.Unlock()
			return func() {
				rs.mu.Lock()
				delete(rs.under, key)
				rs.mu.Unlock()
				close(done)
			}, true
		}
		rs.mu.Unlock()
		select {
		case <-first:
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// answer is the stored form of a response.
type answer struct {
	Code        int    `json:"code"`
	ContentType string `json:"contentType,omitempty"`
	Body        []byte `json:"body,omitempty"`
	// Headers are those that the handler set, for an answer whose headers come from code. They exclude headers that
	// every request gets anew, such as its audit id.
	Headers http.Header `json:"headers,omitempty"`
}

func (rs *repeats) serve(c *call.Call, r Route, key string, h call.Handler) error {
	ctx := c.Context()
	end, ok := rs.begin(ctx, c.Row.ID+" "+key)
	if !ok {
		e := apierrors.NewConflict(status.ThreadsResource, c.Name, fmt.Errorf("a request under this Idempotency-Key is in progress: repeat it later"))
		e.ErrStatus.Details.RetryAfterSeconds = status.RetrySoon
		return e
	}
	defer end()

	body := newHashed(c, r)
	c.Request.Body = body
	kept, err := c.Thread.Answer(ctx, key, body.sumWhole)
	if err == nil {
		err = body.err
	}
	if err != nil {
		return err
	}
	if kept != nil {
		return replay(c, kept)
	}
	bound, err := c.Thread.Idempotent(key, body.soFar)
	if err != nil {
		return err
	}
	plain, w, before := c.Thread, &recorder{ResponseWriter: c.Response}, c.Response.Header().Clone()
	c.Thread, c.Response = bound, w
	if err := h(c); err != nil {
		c.Response = w.ResponseWriter
		return err
	}
	c.Response = w.ResponseWriter
	if w.passed {
		return nil
	}
	if w.code < 300 {
		keep, cancel := keepContext(c.Request)
		defer cancel()
		given := answer{Code: w.code, ContentType: headers.Text(w.Header().Get("Content-Type")), Body: w.body.Bytes()}
		if r.Foreign {
			given.Headers = maps.Clone(w.Header())
			maps.DeleteFunc(given.Headers, func(name string, values []string) bool { return slices.Equal(before[name], values) })
			given.Headers = eachValue(given.Headers, headers.Text)
		}
		data, err := json.Marshal(given)
		fingerprint := body.sumWhole()
		if err = errors.Join(err, body.err); err == nil {
			var first json.RawMessage
			if first, err = plain.KeepAnswer(keep, key, fingerprint, data); err == nil && !bytes.Equal(first, data) {
				return replay(c, first) // another replica stored its answer first
			}
		}
		if err != nil { // the write has happened, and its transactions prevent a second one
			klog.FromContext(ctx).Error(err, "The answer to a request under an idempotency key could not be stored", "thread", c.Row.ID)
		}
	}
	w.flush()
	return nil
}

// eachValue returns headers with changed values. Stored headers have a character for each byte, since JSON has no other bytes than UTF-8.
func eachValue(in http.Header, change func(string) string) http.Header {
	out := make(http.Header, len(in))
	for name, values := range in {
		for _, v := range values {
			out[name] = append(out[name], change(v))
		}
	}
	return out
}

// replay sends a stored answer again.
func replay(c *call.Call, kept json.RawMessage) error {
	var a answer
	if err := json.Unmarshal(kept, &a); err != nil {
		return fmt.Errorf("the answer stored under an idempotency key is damaged: %w", err)
	}
	maps.Copy(c.Response.Header(), eachValue(a.Headers, headers.Bytes))
	if a.ContentType != "" {
		c.Response.Header().Set("Content-Type", headers.Bytes(a.ContentType))
	}
	c.Response.Header().Set(runtimev1.HeaderIdempotentReplayed, "true")
	c.Response.WriteHeader(a.Code)
	_, _ = c.Response.Write(a.Body) // an error means that the client has gone
	return nil
}

// hashed is a request's body that computes its hash while it is read.
type hashed struct {
	io.ReadCloser
	request string
	sum     hash.Hash
	limit   int64 // how much whole reads at most
	secret  bool  // omit the hash of the body, because short secrets could be guessed from it
	eof     bool
	err     error
}

// newHashed returns the body of a request as one that hashes what is read of it, so that a repeat under the same Idempotency-Key can be
// compared.
func newHashed(c *call.Call, r Route) *hashed {
	body := &hashed{ReadCloser: c.Request.Body, sum: sha256.New(), limit: runtimev1.MaxBodyBytes + 1, secret: r.Secret}
	if r.LongRunning { // files and other bodies that only their handler limits
		body.limit = 1 << 40
	}
	body.request = fmt.Sprintf("%s %q %q %q", c.Verb, c.Subresource, c.Rest(), c.Request.URL.RawQuery)
	return body
}

// Read implements io.Reader.
func (b *hashed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.sum.Write(p[:n])
	b.eof = b.eof || err == io.EOF
	return n, err
}

// soFar returns the fingerprint of the request at the time of a write in its handler. It is always the same for the
// same request. It covers the whole body unless the handler writes while it still reads.
func (b *hashed) soFar() string {
	if !b.eof {
		return b.fingerprint("")
	}
	return b.fingerprint(hex.EncodeToString(b.sum.Sum(nil)))
}

// sumWhole returns the fingerprint of the request with its complete body. It reads the rest of the body.
func (b *hashed) sumWhole() string {
	if !b.eof {
		_, b.err = io.Copy(io.Discard, io.LimitReader(b, b.limit))
	}
	return b.fingerprint(hex.EncodeToString(b.sum.Sum(nil)))
}

// fingerprint returns the fingerprint of the request with the hash of its body.
func (b *hashed) fingerprint(body string) string {
	if b.secret {
		body = ""
	}
	sum := sha256.Sum256([]byte(b.request + " " + body))
	return hex.EncodeToString(sum[:])
}

// recorder buffers a response until it is stored. A response that is too large to store is passed on directly.
type recorder struct {
	http.ResponseWriter
	code   int
	body   bytes.Buffer
	passed bool
}

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.passed && w.body.Len()+len(p) > maxAnswer {
		w.flush()
	}
	if w.passed {
		return w.ResponseWriter.Write(p)
	}
	return w.body.Write(p)
}

// flush sends the buffered response, and makes later writes pass through.
func (w *recorder) flush() {
	w.passed = true
	w.WriteHeader(http.StatusOK)
	w.ResponseWriter.WriteHeader(w.code)
	_, _ = w.ResponseWriter.Write(w.body.Bytes())
}

// FlushError is called by http.ResponseController. Nothing is sent before it is stored.
func (w *recorder) FlushError() error {
	if !w.passed {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController set deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
