package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// patience bounds what must happen, with room for busy machines. No spec measures it.
const patience = 2 * time.Minute

func TestAPIServer(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	klog.SetLogger(GinkgoLogr)
	RunSpecs(t, "Runtime API")
}

// testEnv is a server over a real store, with Thread objects in a client's memory. The bearer token is the caller's name.
type testEnv struct {
	svc    *thread.Service
	kube   client.Client
	engine *recordingEngine
	rights *rights

	children    memoryChildren
	effects     memoryEffects
	definitions *enginetest.Definitions

	server *Server
	base   string
	config *rest.Config
	http   *http.Client
	stop   func() // begins to stop the server
	// stopped is closed when the server has stopped.
	stopped chan struct{}
}

func newEnv(change ...func(*Options)) *testEnv {
	GinkgoHelper()
	e := &testEnv{rights: &rights{}, stopped: make(chan struct{})}
	db, err := sqlitetest.Open(context.Background(), sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
	Expect(err).NotTo(HaveOccurred())
	bucket, err := thread.OpenBucket(context.Background(), "file://"+scratch.Folder(GinkgoT()))
	Expect(err).NotTo(HaveOccurred())
	e.svc = thread.NewService(thread.Options{Store: db, Blobs: bucket})
	keyset, err := envkeys.Generate()
	Expect(err).NotTo(HaveOccurred())
	ring := &envkeys.Keyring{}
	Expect(ring.Use(keyset)).To(BeTrue())
	e.svc.ServeEnv(thread.EnvOptions{Cipher: ring})
	e.engine = &recordingEngine{svc: e.svc, External: e.external()}
	s := runtime.NewScheme()
	Expect(skeinv1.AddToScheme(s)).To(Succeed())
	Expect(corev1.AddToScheme(s)).To(Succeed())
	e.kube = fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&skeinv1.Thread{}).WithObjects(agents()...).Build()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	o := Options{
		Threads: e.svc, Engine: e.engine, Children: &e.children, Effects: &e.effects, Objects: e.objects(), Reader: e.kube, Listener: l,
		Authenticator: authenticator.RequestFunc(byToken), Authorizer: authorizer.AuthorizerFunc(e.rights.authorize), setupWait: 100 * time.Millisecond,
	}
	for _, f := range change {
		f(&o)
	}
	e.server, err = New(o)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	done := make(chan error, 1)
	go func() {
		done <- e.server.Start(ctx)
		close(e.stopped)
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
		Expect(db.Close()).To(Succeed())
		Expect(bucket.Close()).To(Succeed())
	})

	e.base = "https://" + l.Addr().String()
	e.config = &rest.Config{Host: e.base, BearerToken: "alice", TLSClientConfig: rest.TLSClientConfig{CAData: e.server.CABundle()}}
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(e.server.CABundle())).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	e.http = &http.Client{Transport: transport}
	// A server waits a second for HTTP/2 connections that clients have left open. All clients of one server share a
	// transport.
	DeferCleanup(transport.CloseIdleConnections)
	shared, err := rest.TransportFor(e.config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(utilnet.CloseIdleConnectionsFor, shared)
	return e
}

// outside is a real engine that runs nothing: what it does for callers outside runs needs no loop.
func (e *testEnv) external() External {
	GinkgoHelper()
	e.definitions = enginetest.NewDefinitions()
	e.definitions.Put("helper", enginetest.Builtin(skeinv1.BuiltinKV))
	eng, err := engine.New(engine.Options{
		Threads: e.svc, Definitions: inAnyNamespace{e.definitions}, Children: &enginetest.Children{}, Effects: &e.effects,
		Sandboxes: enginetest.NoSandboxes{}, Models: providers.NewFactory(nil), Owner: "test", Logger: GinkgoLogr,
	})
	Expect(err).NotTo(HaveOccurred())
	return eng
}

type inAnyNamespace struct{ *enginetest.Definitions }

func (d inAnyNamespace) Agent(ctx context.Context, _, name string) (*definition.Agent, error) {
	return d.Definitions.Agent(ctx, enginetest.Namespace, name)
}

func (d inAnyNamespace) Hooks(ctx context.Context, _, name string) (map[skeinv1.HookName]*definition.Hook, error) {
	return d.Definitions.Hooks(ctx, enginetest.Namespace, name)
}

func (d inAnyNamespace) Load(ctx context.Context, _, kind, name string) (json.RawMessage, error) {
	return d.Definitions.Load(ctx, enginetest.Namespace, kind, name)
}

// child creates a thread whose parent is another.
func (e *testEnv) child(name string, parent *thread.State) (*thread.State, *runtimeclient.Thread) {
	GinkgoHelper()
	obj := e.object(name)
	t, _, err := e.svc.Create(context.Background(), thread.NewThread{Thread: store.Thread{
		ID: string(obj.UID), Namespace: obj.Namespace, Name: name, Agent: "helper", ParentID: parent.ID(), Reference: "ref-" + name,
		Child: &store.Child{Name: "auditor"},
	}})
	Expect(err).NotTo(HaveOccurred())
	st, err := e.svc.Open(context.Background(), t.ID)
	Expect(err).NotTo(HaveOccurred())
	return st, e.client().Thread("ns", name)
}

// thread creates a Thread object and its conversation.
func (e *testEnv) thread(name string) (*thread.State, *runtimeclient.Thread) {
	GinkgoHelper()
	obj := e.object(name)
	t, _, err := e.svc.Create(context.Background(), thread.NewThread{Thread: store.Thread{
		ID: string(obj.UID), Namespace: obj.Namespace, Name: name, Agent: "helper", UserID: "ada",
	}})
	Expect(err).NotTo(HaveOccurred())
	st, err := e.svc.Open(context.Background(), t.ID)
	Expect(err).NotTo(HaveOccurred())
	return st, e.client().Thread("ns", name)
}

func (e *testEnv) object(name string) *skeinv1.Thread {
	GinkgoHelper()
	obj := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uuid.NewString())}}
	Expect(e.kube.Create(context.Background(), obj)).To(Succeed())
	return obj
}

func (e *testEnv) client() *runtimeclient.Client {
	GinkgoHelper()
	c, err := runtimeclient.New(e.config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// at returns the path of a thread's part of the API.
func at(name, rest string) string {
	return "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/threads/" + name + rest
}

// do sends a plain request as alice.
func (e *testEnv) do(method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	GinkgoHelper()
	req, err := http.NewRequest(method, e.base+path, body)
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Authorization", "Bearer alice")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := e.http.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return resp, string(data)
}

// status sends a request that must fail and returns the Status.
func (e *testEnv) status(method, path, body string, headers ...string) metav1.Status {
	GinkgoHelper()
	resp, data := e.do(method, path, strings.NewReader(body), headers...) //nolint:bodyclose // do has read it and closed it
	Expect(resp.StatusCode).To(BeNumerically(">=", 400), data)
	var s metav1.Status
	Expect(json.Unmarshal([]byte(data), &s)).To(Succeed(), data)
	Expect(s.Kind).To(Equal("Status"))
	Expect(int(s.Code)).To(Equal(resp.StatusCode))
	Expect(s.Message).NotTo(BeEmpty())
	return s
}

// byToken uses the bearer token as the user's name.
func byToken(r *http.Request) (*authenticator.Response, bool, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name == "" {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
}

// rights lets alice do everything and others what is listed, and records the requests.
type rights struct {
	mu    sync.Mutex
	allow map[string]bool // "user verb resource/subresource namespace/name"
	asked []string
}

func (r *rights) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	key := strings.Join([]string{a.GetUser().GetName(), a.GetVerb(), a.GetResource() + "/" + a.GetSubresource(), a.GetNamespace() + "/" + a.GetName()}, " ")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, key)
	if a.GetUser().GetName() == "alice" || r.allow[key] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r *rights) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[len(r.asked)-1]
}

// recordingEngine does what the engine does to the store and records the calls. A real engine handles what callers
// outside runs request.
type recordingEngine struct {
	External
	svc     *thread.Service
	stopped []string
	code    sandbox.CodeRequest
	result  sandbox.Result
	err     error
	// endpoint answers requests to endpoints instead of the real engine, when set.
	endpoint func(context.Context, endpoints.Request, endpoints.Answer) error
	run      func(context.Context, sandbox.CodeRequest) (sandbox.Result, error) // when set: does it instead
	block    chan string                                                        // when set: code ends with its request only; it says "begun" and "ended"
}

func (e *recordingEngine) Stop(_ context.Context, id, reason string) error {
	e.stopped = append(e.stopped, id+" "+reason)
	return nil
}

func (e *recordingEngine) Destroy(ctx context.Context, id string) error {
	return e.svc.Store().Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})
}

func (e *recordingEngine) Terminate(ctx context.Context, id, reason string) error {
	st, err := e.svc.Open(ctx, id)
	if err != nil {
		return err
	}
	return st.Terminate(ctx, reason)
}

func (e *recordingEngine) RunCode(ctx context.Context, _ string, req sandbox.CodeRequest) (sandbox.Result, error) {
	e.code = req
	if e.run != nil {
		return e.run(ctx, req)
	}
	if req.Report != nil {
		for _, v := range e.result.Reports {
			req.Report(v)
		}
	}
	if e.block != nil {
		e.block <- "begun"
		<-ctx.Done()
		e.block <- "ended"
	}
	return e.result, e.err
}

func (e *recordingEngine) ServeEndpoint(ctx context.Context, id string, req endpoints.Request, to endpoints.Answer) error {
	if e.endpoint == nil {
		return e.External.ServeEndpoint(ctx, id, req, to)
	}
	return e.endpoint(ctx, req, to)
}

// memoryChildren and memoryEffects replace the ports that use custom resources.
type memoryChildren []skeinv1.ChildStatus

func (c *memoryChildren) List(context.Context, *store.Thread) ([]skeinv1.ChildStatus, error) {
	return *c, nil
}

func (c *memoryChildren) Entry(_ context.Context, _ *store.Thread, reference string) (*skeinv1.ChildStatus, error) {
	for i := range *c {
		if (*c)[i].Reference == reference {
			return &(*c)[i], nil
		}
	}
	return nil, store.ErrNotFound
}
