package apiserver

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Writes under an idempotency key (MSG-10). Two things are kept of one: what its transactions gave, in
// those transactions, so that no crash can come between; and, once it has answered, its answer. A repeat gets
// the answer as it was. Where a crash came before the answer was kept, the repeat goes through the handler
// again, whose transactions then change nothing and give what they gave.

const (
	// repeatWait is how long a repeat waits for the first of its requests.
	repeatWait = 20 * time.Second
	// maxAnswer bounds the answers that are kept. A larger one is made again by its repeat.
	maxAnswer = 1 << 20
)

// repeats keeps requests under one key from running side by side within this replica.
type repeats struct {
	mu    sync.Mutex
	under map[string]chan struct{}
}

// begin waits until no request under the key is under way, and gives the end of this one.
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

// answer is what is kept of a response.
type answer struct {
	Code        int    `json:"code"`
	ContentType string `json:"contentType,omitempty"`
	Body        []byte `json:"body,omitempty"`
	// Headers are those that the handler gave to an answer whose headers are its code's: not those that every request
	// gets anew, such as its audit id.
	Headers http.Header `json:"headers,omitempty"`
}

func (rs *repeats) serve(c *call, r route, key string, h handler) error {
	ctx := c.r.Context()
	end, ok := rs.begin(ctx, c.row.ID+" "+key)
	if !ok {
		e := apierrors.NewConflict(threadsResource, c.name, fmt.Errorf("a request under this Idempotency-Key is in progress: repeat it later"))
		e.ErrStatus.Details.RetryAfterSeconds = retrySoon
		return e
	}
	defer end()

	body := newHashed(c, r)
	c.r.Body = body
	kept, err := c.thread.Answer(ctx, key, body.whole)
	if err == nil {
		err = body.err
	}
	if err != nil {
		return err
	}
	if kept != nil {
		return c.replay(kept)
	}
	bound, err := c.thread.Idempotent(key, body.soFar)
	if err != nil {
		return err
	}
	plain, w, before := c.thread, &recorder{ResponseWriter: c.w}, c.w.Header().Clone()
	c.thread, c.w = bound, w
	if err := h(c); err != nil {
		c.w = w.ResponseWriter
		return err
	}
	c.w = w.ResponseWriter
	if w.passed {
		return nil
	}
	if w.code < 300 {
		keep, cancel := keepContext(c.r)
		defer cancel()
		given := answer{Code: w.code, ContentType: w.Header().Get("Content-Type"), Body: w.body.Bytes()}
		if r.foreign {
			given.Headers = maps.Clone(w.Header())
			maps.DeleteFunc(given.Headers, func(name string, values []string) bool { return slices.Equal(before[name], values) })
		}
		data, err := json.Marshal(given)
		fingerprint := body.whole()
		if err = errors.Join(err, body.err); err == nil {
			var first json.RawMessage
			if first, err = plain.KeepAnswer(keep, key, fingerprint, data); err == nil && !bytes.Equal(first, data) {
				return c.replay(first) // another replica was first
			}
		}
		if err != nil { // the write is made, and stays made once
			klog.FromContext(ctx).Error(err, "The answer to a request under an idempotency key could not be kept", "thread", c.row.ID)
		}
	}
	w.flush()
	return nil
}

// replay gives an answer again.
func (c *call) replay(kept json.RawMessage) error {
	var a answer
	if err := json.Unmarshal(kept, &a); err != nil {
		return fmt.Errorf("the answer that was kept under an idempotency key is damaged: %w", err)
	}
	maps.Copy(c.w.Header(), a.Headers)
	if a.ContentType != "" {
		c.w.Header().Set("Content-Type", a.ContentType)
	}
	c.w.Header().Set(runtimev1.HeaderIdempotentReplayed, "true")
	c.w.WriteHeader(a.Code)
	_, _ = c.w.Write(a.Body) // the client has gone, there is nobody to tell
	return nil
}

// hashed is a request's body that is summed up while it is read.
type hashed struct {
	io.ReadCloser
	request string
	sum     hash.Hash
	limit   int64 // of what whole reads
	secret  bool  // no sum of the body is kept: short secrets could be guessed from it
	eof     bool
	err     error
}

func newHashed(c *call, r route) *hashed {
	body := &hashed{ReadCloser: c.r.Body, sum: sha256.New(), limit: runtimev1.MaxBodyBytes + 1, secret: r.secret}
	if r.longRunning { // files, and what else has no bound here but its handler's
		body.limit = 1 << 40
	}
	body.request = fmt.Sprintf("%s %q %q %q", c.verb, c.subresource, c.rest(), c.r.URL.RawQuery)
	return body
}

// Read implements io.Reader.
func (b *hashed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.sum.Write(p[:n])
	b.eof = b.eof || err == io.EOF
	return n, err
}

// soFar is the fingerprint of the request as far as it is known at a write of its handler: always the same for
// the same request, and with its whole body unless the handler writes while it still reads.
func (b *hashed) soFar() string {
	if !b.eof {
		return b.print("")
	}
	return b.print(hex.EncodeToString(b.sum.Sum(nil)))
}

// whole is the fingerprint of the request with all of its body, the rest of which it reads.
func (b *hashed) whole() string {
	if !b.eof {
		_, b.err = io.Copy(io.Discard, io.LimitReader(b, b.limit))
	}
	return b.print(hex.EncodeToString(b.sum.Sum(nil)))
}

func (b *hashed) print(body string) string {
	if b.secret {
		body = ""
	}
	sum := sha256.Sum256([]byte(b.request + " " + body))
	return hex.EncodeToString(sum[:])
}

// recorder holds a response back until it is kept. One that is too large to be kept goes out as it comes.
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

// flush lets the response go.
func (w *recorder) flush() {
	w.passed = true
	w.WriteHeader(http.StatusOK)
	w.ResponseWriter.WriteHeader(w.code)
	_, _ = w.ResponseWriter.Write(w.body.Bytes())
}

// FlushError implements what http.ResponseController looks for: nothing goes out before it is kept.
func (w *recorder) FlushError() error {
	if !w.passed {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// keyReused is a 422: the key belongs to another request.
func keyReused(name string) *apierrors.StatusError {
	return invalid(name, metav1.CauseTypeFieldValueDuplicate, runtimev1.HeaderIdempotencyKey,
		"this key was used for another request: give each request a key of its own, and repeat it as it was")
}
