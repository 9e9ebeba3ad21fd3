package aggregation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver"
	"github.com/skein-dev/skein/internal/apiserver/apitest"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// patience bounds what must happen, with room for busy machines. No spec measures it.
const patience = 2 * time.Minute

func TestAggregation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Runtime API behind a Kubernetes API server")
}

var (
	env *apitest.Env
	dir string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(patience)
	klog.SetLogger(GinkgoLogr)
	Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(), "this suite needs a control plane: run `make test-integration`")
	dir = GinkgoT().TempDir()
	var err error
	env, err = apitest.Start(ctx, dir, apitest.Parts{
		Engine:   func(s *thread.Service) apiserver.Engine { return storeEngine{svc: s} },
		Children: noChildren{}, Effects: noEffects{}, Objects: noObjects{},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(6*patience))

type noObjects struct{ family.Objects }

// storeEngine ends threads. The specs here use nothing else of an engine.
type storeEngine struct {
	apiserver.External
	svc *thread.Service
}

func (e storeEngine) Terminate(ctx context.Context, id, reason string) error {
	st, err := e.svc.Open(ctx, id)
	if err != nil {
		return err
	}
	return st.Terminate(ctx, reason)
}
func (e storeEngine) Destroy(ctx context.Context, id string) error {
	return e.svc.Store().Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})
}
func (storeEngine) MessageHooks(context.Context, *store.Thread) thread.MessageHooks { return nil }
func (storeEngine) Stop(context.Context, string, string) error                      { return nil }
func (storeEngine) RunCode(context.Context, string, sandbox.CodeRequest) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusSuccess}, nil
}

func (storeEngine) Queue(ctx context.Context, st *thread.State, _ *store.Thread, n thread.NewMessage, _ skeinv1.RunPolicy) (*store.Message, error) {
	return st.Queue(ctx, n)
}

type noChildren struct{}

func (noChildren) List(context.Context, *store.Thread) ([]skeinv1.ChildStatus, error) {
	return nil, nil
}

func (noChildren) Entry(context.Context, *store.Thread, string) (*skeinv1.ChildStatus, error) {
	return nil, store.ErrNotFound
}

type noEffects struct{ apiserver.Effects }

// The API server checks at its own pace whether it can reach us. It may find that it cannot, long after the end of a
// spec that sent it elsewhere. So those specs come after all that need to be reached.
var _ = Describe("the runtime API", Ordered, ContinueOnFailure, func() {
	Describe("behind the Kubernetes API", Label("K8S-04"), requests)
	Describe("and its registration", registration)
})

// requests are the specs of a runtime API that can be reached.
func requests() {
	var ns string
	var st *thread.State
	var admin *runtimeclient.Thread

	BeforeEach(func(ctx SpecContext) {
		var err error
		ns, err = env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		admin = as(env.Admin).Thread(ns, "hello")
	})

	It("is reached through the Kubernetes API with all that Kubernetes clients expect", func(ctx SpecContext) {
		_, err := admin.Inject(ctx, runtimev1.NewMessage{Content: "good morning"})
		Expect(err).NotTo(HaveOccurred())
		out := kubectl("get", "--raw", "/apis/runtime.skein.dev/v1alpha1/namespaces/"+ns+"/threads/hello/messages?limit=5")
		var list runtimev1.MessageList
		Expect(json.Unmarshal([]byte(out), &list)).To(Succeed())
		Expect(list.Messages).To(ConsistOf(HaveField("Content", HaveValue(Equal("good morning")))))

		Expect(kubectl("get", "--raw", "/apis/runtime.skein.dev/v1alpha1")).To(ContainSubstring("threads/messages"))
		Expect(kubectl("api-resources", "--api-group=skein.dev")).To(ContainSubstring("threads"))
		Expect(kubectl("api-resources")).NotTo(ContainSubstring("error"))
		Expect(kubectl("get", "threads", "-n", ns, "-o", "name")).To(Equal("thread.skein.dev/hello\n"), "the name means the objects, not the runtime API")
		Expect(kubectl("get", "threads.runtime.skein.dev", "hello", "-n", ns, "-o", "jsonpath={.threadId}")).To(Equal(st.ID()))
	})

	It("lists threads in discovery so that kubectl finds their rights, and nothing deletes through it", func(ctx SpecContext) {
		role(ctx, ns, "asker", rbacv1.PolicyRule{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads/messages"}, Verbs: []string{"get"}})
		file := filepath.Join(dir, "asker")
		_, err := env.Kubeconfig("asker", file)
		Expect(err).NotTo(HaveOccurred())
		for sub, want := range map[string]string{"messages": "yes\n", "queue": "no\n"} {
			out, _ := run("--kubeconfig", file, "auth", "can-i", "get", "threads.runtime.skein.dev", "--subresource="+sub, "-n", ns)
			Expect(out).To(Equal(want), sub)
		}
		// Namespace deletion and the garbage collector process what these list.
		aggregated, err := discovery.NewDiscoveryClientForConfig(env.Admin)
		Expect(err).NotTo(HaveOccurred())
		for _, d := range []discovery.DiscoveryInterface{aggregated, aggregated.WithLegacy()} {
			found, err := discovery.ServerPreferredResources(d)
			Expect(err).NotTo(HaveOccurred())
			deletable, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete"}}, found))
			Expect(err).NotTo(HaveOccurred())
			Expect(deletable).To(And(HaveKey(skeinv1.GroupVersion.WithResource("threads")), Not(HaveKey(runtimev1.GroupVersion.WithResource("threads")))))
			all, err := discovery.GroupVersionResources(found)
			Expect(err).NotTo(HaveOccurred())
			Expect(all).To(HaveKey(runtimev1.GroupVersion.WithResource("threads")))
		}
	})

	It("lets RBAC decide per subresource, apart from the Thread object", func(ctx SpecContext) {
		role(ctx, ns, "watcher", rbacv1.PolicyRule{APIGroups: []string{"skein.dev"}, Resources: []string{"threads"}, Verbs: []string{"get", "list"}})
		role(ctx, ns, "reader", rbacv1.PolicyRule{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads/messages", "threads/events"}, Verbs: []string{"get", "watch"}})
		watcherFile := filepath.Join(dir, "watcher")
		watcher, err := env.Kubeconfig("watcher", watcherFile)
		Expect(err).NotTo(HaveOccurred())
		readerFile := filepath.Join(dir, "reader")
		reader, err := env.Kubeconfig("reader", readerFile)
		Expect(err).NotTo(HaveOccurred())
		raw := "/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/hello/messages"

		out, err := run("--kubeconfig", watcherFile, "get", "thread", "hello", "-n", ns)
		Expect(err).NotTo(HaveOccurred(), out)
		out, err = run("--kubeconfig", watcherFile, "get", "--raw", raw)
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("Forbidden"), ContainSubstring(`cannot get resource "threads/messages" in API group "runtime.skein.dev"`)))
		_, err = as(watcher).Thread(ns, "hello").Queue(ctx, runtimev1.NewMessage{Content: "x"})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

		out, err = run("--kubeconfig", readerFile, "get", "--raw", raw)
		Expect(err).NotTo(HaveOccurred(), out)
		_, err = run("--kubeconfig", readerFile, "get", "thread", "hello", "-n", ns)
		Expect(err).To(HaveOccurred())
		_, err = as(reader).Thread(ns, "hello").Queue(ctx, runtimev1.NewMessage{Content: "x"})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		_, err = as(reader).Thread(ns, "hello").Files(ctx, runtimeclient.FileOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		for _, err := range as(reader).Thread(ns, "hello").Events(ctx, runtimeclient.EventOptions{NoFollow: true}) {
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("takes bearer tokens directly", func(ctx SpecContext) {
		token := serviceAccount(ctx, ns, rbacv1.PolicyRule{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads/queue"}, Verbs: []string{"create"}})
		c, err := runtimeclient.NewDirect("https://"+env.Addr.String(), token, env.Server.CABundle())
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Thread(ns, "hello").Queue(ctx, runtimev1.NewMessage{Content: "hi"})
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Thread(ns, "hello").Messages(ctx, runtimeclient.MessageOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		bad, err := runtimeclient.NewDirect("https://"+env.Addr.String(), "nonsense", env.Server.CABundle())
		Expect(err).NotTo(HaveOccurred())
		_, err = bad.Thread(ns, "hello").Messages(ctx, runtimeclient.MessageOptions{})
		Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)
	})

	// Browsers cannot set Authorization. They offer the token as a subprotocol beside another one. The answer must
	// name one of the others, and never the token.
	DescribeTable("takes bearer tokens as a subprotocol of a WebSocket", Label("EVT-01"), func(ctx SpecContext, direct bool, want string, offered ...string) {
		token := serviceAccount(ctx, ns, rbacv1.PolicyRule{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads/events"}, Verbs: []string{"get", "watch"}})
		for i := range offered {
			offered[i] = strings.ReplaceAll(offered[i], "TOKEN", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token)))
		}
		cfg := rest.AnonymousClientConfig(env.Admin)
		if direct {
			cfg = &rest.Config{Host: "https://" + env.Addr.String(), TLSClientConfig: rest.TLSClientConfig{CAData: env.Server.CABundle()}}
		}
		for _, path := range []string{"/apis/runtime.skein.dev/v1alpha1/namespaces/", "/apis/runtime.skein.dev/v1alpha1/watch/namespaces/"} {
			conn := webSocket(ctx, cfg, path+ns+"/threads/hello/events", offered...)
			Expect(conn.Subprotocol()).To(Equal(want))
			Expect(st.Emit(ctx, "tick", json.RawMessage(`1`))).To(Succeed())
			_, body, err := conn.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(body).To(ContainSubstring(`"seq"`))
		}
	},
		Entry("beside the API's own, through the API server", false, runtimev1.EventsSubprotocol, "TOKEN", runtimev1.EventsSubprotocol, SpecTimeout(patience)),
		Entry("beside another, through the API server", false, "v1.events", "TOKEN", "v1.events", SpecTimeout(patience)),
		Entry("beside the API's own, directly", true, runtimev1.EventsSubprotocol, "TOKEN", runtimev1.EventsSubprotocol, SpecTimeout(patience)),
		Entry("beside another, directly", true, "v1.events", "TOKEN", "v1.events", SpecTimeout(patience)),
		Entry("after another, directly", true, "v1.events", "v1.events", "TOKEN", SpecTimeout(patience)),
		Entry("among several, through the API server", false, runtimev1.EventsSubprotocol, "v1.events", "TOKEN", runtimev1.EventsSubprotocol, SpecTimeout(patience)),
	)

	It("refuses a token in a subprotocol that is wrong, or that no other one stands beside", func(ctx SpecContext) {
		token := serviceAccount(ctx, ns, rbacv1.PolicyRule{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads/events"}, Verbs: []string{"get"}})
		const prefix = "base64url.bearer.authorization.k8s.io."
		good := prefix + base64.RawURLEncoding.EncodeToString([]byte(token))
		for _, host := range []*rest.Config{rest.AnonymousClientConfig(env.Admin), {Host: "https://" + env.Addr.String(), TLSClientConfig: rest.TLSClientConfig{CAData: env.Server.CABundle()}}} {
			for _, offered := range [][]string{{good}, {prefix + base64.RawURLEncoding.EncodeToString([]byte("nonsense")), "v1.events"}, {prefix + "%", "v1.events"}, {good, good, "v1.events"}} {
				_, status, err := dial(ctx, host, "/apis/runtime.skein.dev/v1alpha1/namespaces/"+ns+"/threads/hello/events", offered...)
				Expect(err).To(HaveOccurred())
				Expect(status).To(Equal(http.StatusUnauthorized), "%q: %v", offered, err)
			}
		}
	}, SpecTimeout(patience))

	It("accepts the front proxy's headers only from the front proxy", func(ctx SpecContext) {
		direct := &rest.Config{Host: "https://" + env.Addr.String(), TLSClientConfig: rest.TLSClientConfig{CAData: env.Server.CABundle()}}
		direct.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.Header.Set("X-Remote-User", "admin")
				r.Header.Set("X-Remote-Group", "system:masters")
				return next.RoundTrip(r)
			})
		})
		_, err := as(direct).Thread(ns, "hello").Messages(ctx, runtimeclient.MessageOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("system:anonymous")))
	})

	It("passes errors through as they are", func(ctx SpecContext) {
		_, err := as(env.Admin).Thread(ns, "nobody").Messages(ctx, runtimeclient.MessageOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		_, err = admin.Inject(ctx, runtimev1.NewMessage{Role: "robot", Content: "x"})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("role")))
		for range 5 {
			_, err = admin.Queue(ctx, runtimev1.NewMessage{Content: "x"})
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = admin.Queue(ctx, runtimev1.NewMessage{Content: "x"})
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(admin.Terminate(ctx)).To(Succeed())
		_, err = admin.Queue(ctx, runtimev1.NewMessage{Content: "x"})
		Expect(apierrors.IsGone(err)).To(BeTrue(), "%v", err)
	})

	It("streams files and events, by server-sent events and WebSocket", func(ctx SpecContext) {
		_, err := admin.WriteFile(ctx, "/a b/c%d?.txt", strings.NewReader("content"), runtimeclient.WriteFileOptions{MimeType: "text/plain"})
		Expect(err).NotTo(HaveOccurred())
		rc, err := admin.ReadFile(ctx, "/a b/c%d?.txt")
		Expect(err).NotTo(HaveOccurred())
		Expect(io.ReadAll(rc)).To(BeEquivalentTo("content"))
		Expect(rc.Close()).To(Succeed())

		rec, err := admin.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		conn := webSocket(ctx, env.Admin, fmt.Sprintf("/apis/runtime.skein.dev/v1alpha1/watch/namespaces/%s/threads/hello/events?after=%d", ns, rec.LastEvent))
		got := make(chan string, 10)
		go func() {
			for e, err := range admin.Events(ctx, runtimeclient.EventOptions{After: rec.LastEvent}) {
				if err == nil {
					got <- string(e.Data)
				}
			}
		}()
		for i := range 3 {
			Expect(st.Emit(ctx, "tick", json.RawMessage(fmt.Sprint(i)))).To(Succeed())
			Eventually(got).Should(Receive(Equal(fmt.Sprint(i))))
			_, body, err := conn.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(body).To(ContainSubstring(fmt.Sprintf(`"data":%d`, i)))
		}
	}, SpecTimeout(2*patience))
}
