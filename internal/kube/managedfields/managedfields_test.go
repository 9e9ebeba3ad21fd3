package managedfields_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/managedfields"
)

// answer is a transport that answers every request with a body.
type answer struct {
	kind, body string
	slow       bool // the body comes byte by byte
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	var body io.Reader = strings.NewReader(a.body)
	if a.slow {
		body = iotest.OneByteReader(body)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {a.kind}}, Body: io.NopCloser(body)}, nil
}

func read(t *testing.T, a answer, method, url string) string {
	t.Helper()
	g := NewWithT(t)
	resp, err := managedfields.LeaveOut(a).RoundTrip(httptest.NewRequest(method, url, nil))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(resp.Body.Close()).To(Succeed()) }()
	data, err := io.ReadAll(resp.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

const (
	full = `{"type":"ADDED","object":{"kind":"Thread","metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:x":{"k:{\"type\":\"]\"}":{}}}}],"uid":"1"},"spec":{"message":"managedFields: [1]"}}}`
	bare = `{"type":"ADDED","object":{"kind":"Thread","metadata":{"name":"a","managedFields":[],"uid":"1"},"spec":{"message":"managedFields: [1]"}}}`
)

func TestWatchedObjectsHaveNoManagedFields(t *testing.T) {
	long := strings.Replace(full, `"uid"`, `"annotations":{"long":"`+strings.Repeat("x", 100_000)+`"},"uid"`, 1)
	longBare := strings.Replace(bare, `"uid"`, `"annotations":{"long":"`+strings.Repeat("x", 100_000)+`"},"uid"`, 1)
	bookmark := `{"type":"BOOKMARK","object":{"kind":"Thread","metadata":{"resourceVersion":"7"}}}`
	failed := `{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}`
	for _, c := range []struct{ name, sent, want string }{
		{"one", full + "\n", bare + "\n"},
		{"many", full + "\n" + bookmark + "\n" + long + "\n" + full + "\n" + failed + "\n", bare + "\n" + bookmark + "\n" + longBare + "\n" + bare + "\n" + failed + "\n"},
		{"without an end of its line", full + "\n" + full, bare + "\n" + full},
		{"cut off", full + "\n" + full[:90], bare + "\n" + full[:90]},
		{"cut off within the managed fields", full[:130], full[:130]},
		{"of another kind", `{"type":"ADDED","object":{"metadata":{"managedFields":"none"}}}` + "\n" + "\n" + `[1]` + "\n", `{"type":"ADDED","object":{"metadata":{"managedFields":"none"}}}` + "\n" + "\n" + `[1]` + "\n"},
		{"nothing", "", ""},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, " slow ", slow), func(t *testing.T) {
				NewWithT(t).Expect(read(t, answer{"application/json;stream=watch", c.sent, slow}, http.MethodGet, "/apis/skein.dev/v1alpha1/threads?watch=true")).To(Equal(c.want))
			})
		}
	}
}

func TestOtherAnswersAreAsTheyAre(t *testing.T) {
	g := NewWithT(t)
	for _, url := range []string{"/x", "/x?watch=false", "/x?watch=0"} {
		g.Expect(read(t, answer{"application/json", full, false}, http.MethodGet, url)).To(Equal(full), url)
	}
	g.Expect(read(t, answer{"application/json", full, false}, http.MethodPost, "/x?watch=true")).To(Equal(full))
	g.Expect(read(t, answer{"application/vnd.kubernetes.protobuf", full, false}, http.MethodGet, "/x?watch=true")).To(Equal(full))
}

// newClient returns a client of Threads that reaches the API server by a transport.
func newClient(g Gomega, host string, wrap func(http.RoundTripper) http.RoundTripper) *rest.RESTClient {
	scheme := runtime.NewScheme()
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	cfg := &rest.Config{Host: host, APIPath: "/apis", ContentConfig: rest.ContentConfig{
		GroupVersion: &skeinv1.GroupVersion, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}}
	cfg.Wrap(wrap)
	c, err := rest.RESTClientFor(cfg)
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

// TestAClientDecodesWhatIsLeft watches through client-go, as caches do.
func TestAClientDecodesWhatIsLeft(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := range 3 {
			o := &skeinv1.Thread{TypeMeta: metav1.TypeMeta{APIVersion: skeinv1.GroupVersion.String(), Kind: "Thread"}}
			o.Name, o.Spec.Message = fmt.Sprint("t", i), "hello"
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
			data, err := json.Marshal(o)
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", data)
		}
	}))
	defer server.Close()
	c := newClient(g, server.URL, managedfields.LeaveOut)
	w, err := c.Get().Resource("threads").Param("watch", "true").Watch(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	for i := range 3 {
		e, ok := <-w.ResultChan()
		g.Expect(ok).To(BeTrue())
		g.Expect(e.Object).To(BeAssignableToTypeOf(&skeinv1.Thread{}))
		o := e.Object.(*skeinv1.Thread)
		g.Expect(o.Name).To(Equal(fmt.Sprint("t", i)))
		g.Expect(o.Spec.Message).To(Equal("hello"))
		g.Expect(o.ManagedFields).To(BeEmpty())
	}
	_, ok := <-w.ResultChan()
	g.Expect(ok).To(BeFalse())
}

// repeats is a body that goes on for ever.
type repeats struct{ all, rest string }

func (r *repeats) Read(p []byte) (int, error) {
	if r.rest == "" {
		r.rest = r.all
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

type endless string

func (e endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(&repeats{all: string(e)})}, nil
}

// BenchmarkWatch decodes an idle Thread in the form in which the API server sends it.
func BenchmarkWatch(b *testing.B) {
	data, err := os.ReadFile("testdata/event.json")
	if err != nil {
		b.Fatal(err)
	}
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"as it is": func(next http.RoundTripper) http.RoundTripper { return next }, "without managed fields": managedfields.LeaveOut,
	} {
		b.Run(name, func(b *testing.B) {
			c := newClient(NewWithT(b), "http://localhost", func(http.RoundTripper) http.RoundTripper { return wrap(endless(data)) })
			w, err := c.Get().Resource("threads").Param("watch", "true").Watch(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer w.Stop()
			b.ReportAllocs()
			for b.Loop() {
				if e := <-w.ResultChan(); e.Object.(*skeinv1.Thread).Status.Phase != "Idle" {
					b.Fatal(e)
				}
			}
		})
	}
}
