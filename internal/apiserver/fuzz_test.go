package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread"
)

const fuzzedThread = "0190a4c2-7a1b-7c3d-8e4f-aabbccddeeff"

// fuzzRouter is the router with a real store that has one thread, without a server around it.
func fuzzRouter(f *testing.F) http.HandlerFunc {
	serve, _ := fuzzServer(f)
	return serve
}

// fuzzServer is fuzzRouter with the threads behind it.
func fuzzServer(f *testing.F) (http.HandlerFunc, *thread.Service) {
	ctx := context.Background()
	db, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	bucket, err := thread.OpenBucket(ctx, "file://"+f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = db.Close(), bucket.Close() })
	svc := thread.NewService(thread.Options{Store: db, Blobs: bucket})
	if _, _, err := svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: fuzzedThread, Namespace: "ns", Name: "hello", Agent: "a"}, Message: "hi"}); err != nil {
		f.Fatal(err)
	}
	s := runtime.NewScheme()
	if err := skeinv1.AddToScheme(s); err != nil {
		f.Fatal(err)
	}
	object := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hello", UID: fuzzedThread}}
	server := &Server{
		opts: Options{Threads: svc, Reader: fake.NewClientBuilder().WithScheme(s).WithObjects(object).Build(), Children: &memoryChildren{}, Effects: &memoryEffects{}},
		authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
	}
	server.opts.setDefaults()
	rt := server.router()
	infos := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return func(w http.ResponseWriter, r *http.Request) {
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ctx := apirequest.WithRequestInfo(apirequest.WithUser(r.Context(), &user.DefaultInfo{Name: "alice"}), info)
		rt.ServeHTTP(w, r.WithContext(ctx))
	}, svc
}

// FuzzListParameters sends any query to every list of the API, of threads and of views. The answer must be a page or
// an error of the client, never a server error.
func FuzzListParameters(f *testing.F) {
	serve := fuzzRouter(f)
	base := "/apis/" + runtimev1.GroupVersion.String()
	paths := []string{
		base + "/namespaces/ns/history", base + "/history", base + "/namespaces/ns/threads/hello/children",
	}
	for _, sub := range []runtimev1.Subresource{
		runtimev1.SubresourceMessages, runtimev1.SubresourceQueue, runtimev1.SubresourceFiles, runtimev1.SubresourceRuns,
		runtimev1.SubresourceEffects, runtimev1.SubresourceRelationships,
	} {
		paths = append(paths, base+"/namespaces/ns/threads/"+fuzzedThread+"/"+string(sub))
	}
	for _, seed := range []string{
		"", "limit=1", "limit=0", "limit=-1", "limit=99999999999999999999", "offset=2147483648", "order=asc&order=desc", "maxDepth=-1", "archived=all&agent=%00",
		"continue=1.x", "continue=9223372036854775807.", "glob=**", "prefix=/../", "user=%ff", "%zz", "limit", "includeSilent=", "timeout=5s&pretty", ";",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, p := range paths {
			r := httptest.NewRequest(http.MethodGet, p, nil)
			r.URL.RawQuery = query
			if strings.Contains(query, "watch") { // a stream is not a list
				return
			}
			w := httptest.NewRecorder()
			serve(w, r)
			if w.Code >= 500 {
				t.Errorf("GET %s?%s: %d %s", p, query, w.Code, w.Body)
			}
		}
	})
}

// FuzzThreadIDs requests a thread by any text. Only its name and the spellings of its id may find it, within its
// namespace and across namespaces.
func FuzzThreadIDs(f *testing.F) {
	serve := fuzzRouter(f)
	hex := strings.ReplaceAll(fuzzedThread, "-", "")
	for _, seed := range []string{
		fuzzedThread, "T-" + fuzzedThread, "t-" + strings.ToUpper(fuzzedThread), "thrd_" + hex, hex[20:], strings.ToUpper(hex[20:]), "hello",
		hex, "T-", "thrd_", "thrd_" + hex[1:], "{" + fuzzedThread + "}", "urn:uuid:" + fuzzedThread, "\x00", "ä", "%", "a/b", "T-T-" + fuzzedThread,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if id == "" || id == "." || id == ".." || strings.Contains(id, "/") {
			return // not a single segment of a path
		}
		lower := strings.ToLower(id)
		bare := strings.TrimPrefix(lower, "t-")
		means := id == "hello" || bare == fuzzedThread || lower == hex[20:] ||
			strings.HasPrefix(id, "thrd_") && strings.ToLower(id[5:]) == hex
		for _, p := range []string{"/namespaces/ns/threads/", "/lookups/"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL = &url.URL{Path: "/apis/" + runtimev1.GroupVersion.String() + p + id}
			w := httptest.NewRecorder()
			serve(w, r)
			if want := map[bool]int{true: 200, false: 404}[means]; w.Code != want {
				t.Errorf("GET %s%q: %d, want %d: %s", p, id, w.Code, want, w.Body)
			}
		}
	})
}
