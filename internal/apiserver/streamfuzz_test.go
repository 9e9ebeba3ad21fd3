package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// deadlines is a recorder that takes deadlines, as connections do.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }
func (deadlines) SetReadDeadline(time.Time) error  { return nil }

// Unwrap is for http.ResponseController.
func (d deadlines) Unwrap() http.ResponseWriter { return d.ResponseRecorder }

// FuzzResume resumes streams at any point. The answer is an error of the client, or has exactly what follows the point.
func FuzzResume(f *testing.F) {
	serve, svc := fuzzServer(f)
	ctx := context.Background()
	st, err := svc.Open(ctx, fuzzedThread)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 5 {
		if err := st.Emit(ctx, "tick", json.RawMessage(fmt.Sprint(i))); err != nil {
			f.Fatal(err)
		}
	}
	row, err := svc.Store().Thread(ctx, fuzzedThread)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "0", "3", "latest", "-1", "+2", "007", "9223372036854775807", "9223372036854775808", "1e3", " 2", "0x1", "3\n", "ä", "1_0"} {
		f.Add(seed, "")
		f.Add("", seed)
		f.Add(seed, "1")
	}
	f.Fuzz(func(t *testing.T, last, after string) {
		for _, p := range []string{"/namespaces/ns/threads/hello/events", "/namespaces/ns/threads/hello/logs", "/namespaces/ns/lifecycle", "/lifecycle"} {
			query := url.Values{"after": {after}}
			if strings.HasPrefix(p, "/namespaces/ns/threads") {
				query.Set("follow", "false")
			}
			r := httptest.NewRequest(http.MethodGet, "/apis/"+runtimev1.GroupVersion.String()+p+"?"+query.Encode(), nil)
			r.Header["Last-Event-Id"] = []string{last}
			w := httptest.NewRecorder()
			serve(deadlines{w}, r)
			if w.Code >= 500 {
				t.Fatalf("GET %s after %q, %q: %d %s", p, last, after, w.Code, w.Body)
			}
			if w.Code == http.StatusOK && strings.HasSuffix(p, "/events") {
				checkResumed(t, w.Body.Bytes(), last, after, row)
			}
		}
	})
}

// checkResumed checks that a stream has each event after a point once, in order.
func checkResumed(t *testing.T, body []byte, last, after string, row *store.Thread) {
	t.Helper()
	from := after
	if last != "" {
		from = last
	}
	n := int64(0)
	if from == runtimev1.AfterLatest {
		n = row.LastSeq
	} else if from != "" {
		var err error
		if n, err = strconv.ParseInt(from, 10, 64); err != nil || n < 0 || n > row.LastSeq {
			t.Fatalf("%q is taken as a point to resume at", from)
		}
	}
	for line := range bytes.Lines(body) {
		id, found := bytes.CutPrefix(line, []byte("id: "))
		if !found {
			continue
		}
		if n++; string(id) != fmt.Sprintf("%d\n", n) {
			t.Fatalf("after %q comes %q, not %d", from, id, n)
		}
	}
	if n != row.LastSeq {
		t.Fatalf("after %q the stream ends at %d of %d", from, n, row.LastSeq)
	}
}

// FuzzUploads sends a file in parts with any queries and bytes, and completes it. Nothing is a server error, and a file that is stored is what
// was sent.
func FuzzUploads(f *testing.F) {
	serve, svc := fuzzServer(f)
	st, err := svc.Open(context.Background(), fuzzedThread)
	if err != nil {
		f.Fatal(err)
	}
	for _, query := range []string{"", "part=0", "upload=u&part=0", "upload=u&part=-1", "upload=u&part=10000", "upload=u&parts=0", "upload=u&parts=99999999999", "upload=../x&part=0",
		"upload=%00&part=0", "upload=u&part=0&part=1", "upload=u&part=0&parts=1", "upload=u&directory=true", "upload=u&part=0&mimeType=%ff", "upload=" + strings.Repeat("u", 300) + "&part=0"} {
		f.Add("a.txt", query, "upload=u&parts=1", []byte("content"))
	}
	f.Add("a/../b", "upload=u&part=0", "upload=u&parts=1", []byte{0, 255})
	f.Add("%00", "upload=u&part=0", "upload=u&parts=2", []byte{})
	f.Fuzz(func(t *testing.T, path, put, complete string, content []byte) {
		if path == "" || len(content) > 64<<10 {
			return
		}
		target := "/apis/" + runtimev1.GroupVersion.String() + "/namespaces/ns/threads/hello/files/"
		send := func(method, query string, body []byte) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, "/", bytes.NewReader(body))
			r.URL = &url.URL{Path: target + path, RawQuery: query}
			w := httptest.NewRecorder()
			serve(deadlines{w}, r)
			if w.Code >= 500 {
				t.Fatalf("%s %q?%s: %d %s", method, path, query, w.Code, w.Body)
			}
			return w
		}
		send(http.MethodPut, put, content)
		done := send(http.MethodPut, complete, nil)
		q, err := url.ParseQuery(complete)
		if done.Code == http.StatusCreated && err == nil && q.Get("parts") == "1" && strings.HasPrefix(put, "upload="+url.QueryEscape(q.Get("upload"))+"&part=0") && !strings.Contains(put[7:], "upload") {
			got := send(http.MethodGet, "", nil)
			if got.Code != http.StatusOK || !bytes.Equal(got.Body.Bytes(), content) {
				t.Fatalf("%q was sent to %q, and it has %d %q", content, path, got.Code, got.Body)
			}
		}
		send(http.MethodDelete, "upload=u", nil)
		if clean, err := thread.NormalizePath(path); err == nil && clean != "/" {
			_ = st.Unlink(context.Background(), clean) // what is there grows no further
		}
	})
}
