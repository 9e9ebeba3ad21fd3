package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/membudget/jsonbody"
)

// transport is for models whose Config has none. It is shared by all of them.
var transport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConns = 512
	t.MaxIdleConnsPerHost = 256
	t.IdleConnTimeout = 90 * time.Second
	return t
}()

// maxAnswerBytes limits the size of one answer on the wire.
const maxAnswerBytes = 32 << 20

var errAnswerTooLong = errors.New("the answer is too long")

// roundTripper ends answers that exceed the limit, draws their memory, and notifies the call's watchdog of received data.
type roundTripper struct{ next http.RoundTripper }

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err == nil && res.Body != nil {
		w := watchdogOf(req.Context())
		w.heard()
		res.Body = &jsonbody.Body{
			ReadCloser: &body{ReadCloser: res.Body, left: maxAnswerBytes, watchdog: w}, Context: req.Context(), Account: membudget.From(req.Context()),
			Events: strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"), Keep: true, OnWait: w.pause,
		}
	}
	return res, err
}

type body struct {
	io.ReadCloser
	left     int64
	watchdog *watchdog
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errAnswerTooLong
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if n > 0 {
		b.watchdog.heard()
	}
	return n, err
}

const maxRedirects = 3

// redirectError is a redirect that is not followed.
type redirectError struct{ host string }

func (e *redirectError) Error() string { return fmt.Sprintf("it redirects to %s", e.host) }

// sameOrigin refuses redirects that would send the key and the conversation to another server.
func sameOrigin(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return &redirectError{host: req.URL.Scheme + "://" + req.URL.Host}
	}
	if len(via) > maxRedirects {
		return &redirectError{host: "itself"}
	}
	return nil
}
