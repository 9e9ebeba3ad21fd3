package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("the server", func() {
	It("finds a thread by its name and by every spelling of its id", func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("hello")
		hex := strings.ReplaceAll(st.ID(), "-", "")
		for _, name := range []string{"hello", st.ID(), "T-" + st.ID(), "t-" + strings.ToUpper(st.ID()), "thrd_" + hex} {
			Expect(e.client().Thread("ns", name).Get(ctx)).To(And(
				HaveField("ThreadID", st.ID()), HaveField("Name", "hello"), HaveField("AgentID", "helper"),
				HaveField("UserID", HaveValue(Equal("ada"))), HaveField("Arguments", MatchJSON("{}")), HaveField("Terminated", BeNil()),
			), name)
		}
		for _, name := range []string{"thrd_" + hex[:31], "T" + st.ID(), hex, "00000000-0000-0000-0000-000000000000"} {
			_, err := e.client().Thread("ns", name).Get(ctx)
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", name, err)
		}
		_, err := e.client().Thread("other", st.ID()).Get(ctx)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "an id is no way into another namespace: %v", err)
	})

	It("answers other users while any number of requests of one user wait", Label("K8S-12"), func(ctx SpecContext) {
		const many = 450 // more than the generic server has under way, unless told otherwise
		release, waiting := make(chan struct{}), make(chan struct{}, 2*many)
		var e *testEnv
		e = newEnv(func(o *Options) {
			o.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser().GetName() == "flood" {
					waiting <- struct{}{}
					<-release
				}
				return e.rights.authorize(ctx, a)
			})
		})
		e.thread("hello")
		var ended sync.WaitGroup
		defer ended.Wait()
		defer close(release)
		for n := range 2 * many {
			ended.Go(func() {
				defer GinkgoRecover()
				req, err := http.NewRequestWithContext(ctx, []string{"GET", "POST"}[n%2], e.base+at("hello", "/messages"), nil)
				Expect(err).NotTo(HaveOccurred())
				req.Header.Set("Authorization", "Bearer flood")
				if resp, err := e.http.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
		for range 2 * many {
			Eventually(waiting).Should(Receive())
		}
		Expect(e.client().Thread("ns", "hello").Get(ctx)).To(HaveField("Name", "hello"))
		Expect(e.client().Thread("ns", "hello").Send(ctx, "hi")).NotTo(BeNil())
	})

	It("prefers the object of that name over the thread of that id", func(ctx SpecContext) {
		e := newEnv()
		victim, _ := e.thread("victim")
		impostor, _ := e.thread(victim.ID())
		Expect(e.client().Thread("ns", victim.ID()).Get(ctx)).To(HaveField("ThreadID", impostor.ID()))
	})

	It("waits for a thread that is being set up", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.setupWait = 20 * time.Second })
		obj := e.object("slow")
		got := make(chan error, 1)
		go func() {
			_, err := e.client().Thread("ns", "slow").Get(ctx)
			got <- err
		}()
		Consistently(got, "50ms").ShouldNot(Receive())
		_, _, err := e.svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: string(obj.UID), Namespace: "ns", Name: "slow", Agent: "a"}})
		Expect(err).NotTo(HaveOccurred())
		Eventually(got).Should(Receive(BeNil()))
	})

	It("says why a thread is not set up", func(ctx SpecContext) {
		e := newEnv()
		obj := e.object("stuck")
		meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
			Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: skeinv1.ReasonReferenceNotFound, Message: `Agent "nobody" does not exist`,
		})
		Expect(e.kube.Status().Update(ctx, obj)).To(Succeed())
		resp, _ := e.do("GET", at("stuck", "/messages"), nil)
		Expect(resp.Header.Get("Retry-After")).To(BeEmpty(), "kubectl would repeat the request for a minute, without a word")
		s := e.status("GET", at("stuck", "/messages"), "")
		Expect(s.Reason).To(Equal(metav1.StatusReasonServiceUnavailable))
		Expect(s.Message).To(ContainSubstring(`Agent "nobody" does not exist`))
	})

	It("authorizes each subresource apart, by what it then does", func(ctx SpecContext) {
		e := newEnv()
		e.thread("hello")
		cfg := rest.CopyConfig(e.config)
		cfg.BearerToken = "bob"
		c, err := runtimeclient.New(cfg)
		Expect(err).NotTo(HaveOccurred())
		bob := c.Thread("ns", "hello")
		e.rights.allow = map[string]bool{"bob get threads/messages ns/hello": true}
		_, err = bob.Messages(ctx, runtimeclient.MessageOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = bob.Queue(ctx, runtimev1.NewMessage{Content: "x"})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		_, err = bob.Value(ctx, "k")
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(e.rights.last()).To(Equal("bob get threads/kv ns/hello"))
		for _, err := range bob.Events(ctx, runtimeclient.EventOptions{}) {
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		}
		Expect(e.rights.last()).To(Equal("bob watch threads/events ns/hello"))
		// A path that a careless router would read differently is authorized as what it is routed to.
		resp, _ := e.do("GET", at("hello", "//messages"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusNotFound))
		resp, _ = e.do("GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/threads/hello/files/../messages", nil)
		Expect(resp.StatusCode).To(BeNumerically(">=", 400))
		resp, _ = e.do("GET", "/apis/runtime.skein.dev/v1alpha1/watch/namespaces/ns/threads/hello/messages", nil)
		Expect(resp.StatusCode).To(Equal(http.StatusMethodNotAllowed))
	})

	It("refuses anonymous requests", func() {
		e := newEnv()
		s := e.status("GET", at("hello", "/messages"), "", "Authorization", "")
		Expect(s.Reason).To(Equal(metav1.StatusReasonUnauthorized))
	})

	DescribeTable("answers other paths with an error",
		func(method, p string, code int) {
			e := newEnv()
			e.thread("hello")
			s := e.status(method, p, "")
			Expect(int(s.Code)).To(Equal(code))
		},
		Entry("subresource", "GET", at("hello", "/nothing"), 404),
		Entry("resource", "GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/agents/x/messages", 404),
		Entry("cluster", "GET", "/apis/runtime.skein.dev/v1alpha1/threads", 405),
		Entry("list of threads", "GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/threads", 405),
		Entry("deletion of threads", "DELETE", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/threads", 405),
		Entry("a new thread", "POST", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/threads", 405),
		Entry("thread", "DELETE", at("hello", ""), 405),
		Entry("below", "GET", at("hello", "/queue/x"), 404),
		Entry("method", "DELETE", at("hello", "/messages"), 405),
		Entry("patch", "PATCH", at("hello", "/kv/x"), 405),
		Entry("key", "POST", at("hello", "/kv"), 405),
	)

	It("describes itself", func(ctx SpecContext) {
		e := newEnv()
		dc, err := discovery.NewDiscoveryClientForConfig(e.config)
		Expect(err).NotTo(HaveOccurred())
		for _, d := range []discovery.DiscoveryInterface{dc, dc.WithLegacy()} {
			groups, lists, err := d.ServerGroupsAndResources()
			Expect(err).NotTo(HaveOccurred())
			Expect(groups).To(ContainElement(HaveField("Name", "runtime.skein.dev")))
			verbs := map[string][]string{}
			for _, l := range lists {
				Expect(l.GroupVersion).To(Equal("runtime.skein.dev/v1alpha1"))
				for _, r := range l.APIResources {
					if strings.HasPrefix(r.Name, "threads/") {
						Expect(r.Namespaced).To(BeTrue(), r.Name)
					}
					verbs[r.Name] = r.Verbs
				}
			}
			Expect(verbs).To(HaveKeyWithValue("lookups", ConsistOf("get")))
			Expect(verbs).To(HaveKeyWithValue("threads/messages", ContainElements("create", "get")))
			Expect(verbs).To(HaveKeyWithValue("threads/files", ContainElements("delete", "get", "update")))
			Expect(verbs).To(HaveKeyWithValue("threads/events", ConsistOf("create", "get", "watch")))
			// Clients look up the rights on subresources by their parent. Code that deletes, lists or watches must
			// skip it.
			Expect(verbs).To(HaveKeyWithValue("threads", ConsistOf("get")))
		}
		resp, body := e.do("GET", "/apis/runtime.skein.dev", nil)
		Expect(resp.StatusCode).To(Equal(200))
		var g metav1.APIGroup
		Expect(json.Unmarshal([]byte(body), &g)).To(Succeed())
		Expect(g.PreferredVersion.Version).To(Equal("v1alpha1"))
		resp, _ = e.do("GET", "/readyz", nil)
		Expect(resp.StatusCode).To(Equal(200))
	})

	It("says that the store is down, and shows none of its details", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.Engine = &failingEngine{} })
		e.thread("hello")
		s := e.status("POST", at("hello", "/stop"), "")
		Expect(s.Reason).To(Equal(metav1.StatusReasonInternalError))
		Expect(s.Message).NotTo(ContainSubstring("hunter2"))
		s = e.status("POST", at("hello", "/terminate"), "")
		Expect(s.Reason).To(Equal(metav1.StatusReasonServiceUnavailable))
		Expect(s.Details.RetryAfterSeconds).To(Equal(int32(1)))
	})

	It("writes an audit log when asked to", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
		Expect(os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600)).To(Succeed())
		audit := genericoptions.NewAuditOptions()
		audit.PolicyFile, audit.LogOptions.Path = policy, log
		Expect(errors.Join(audit.Validate()...)).To(Succeed())
		e := newEnv(func(o *Options) { o.Audit = audit })
		_, t := e.thread("hello")
		_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "confidential"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() (string, error) {
			data, err := os.ReadFile(log)
			return string(data), err
		}).Should(And(ContainSubstring(`"verb":"create"`), ContainSubstring(`"subresource":"queue"`), ContainSubstring(`"username":"alice"`)))
		data, err := os.ReadFile(log)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).NotTo(ContainSubstring("confidential"))
	})

	It("refuses options that cannot work", func() {
		_, err := New(Options{})
		Expect(err).To(MatchError(ContainSubstring("are required")))
		e := newEnv()
		_, err = New(Options{Threads: e.svc, Engine: e.engine, Children: &e.children, Effects: &e.effects, Objects: e.objects(), Reader: e.kube})
		Expect(err).To(MatchError(ContainSubstring("Kubeconfig")))
		o := e.server.opts
		o.Listener, o.BindAddress = nil, "300.0.0.1"
		_, err = New(o)
		Expect(err).To(MatchError(ContainSubstring("--runtime-api-bind-address")))
		o = e.server.opts
		o.Listener, o.BindAddress, o.CertDir = nil, "127.0.0.1", GinkgoT().TempDir()
		_, err = New(o)
		Expect(err).To(MatchError(ContainSubstring("certificate")))
	})
})

type failingEngine struct{ recordingEngine }

func (*failingEngine) Stop(context.Context, string, string) error {
	return errHidden
}

func (*failingEngine) Terminate(context.Context, string, string) error { return store.ErrUnavailable }

var errHidden = &hiddenError{}

type hiddenError struct{}

func (*hiddenError) Error() string { return "dial postgres://user:hunter2@db" }

var _ = Describe("a server that stops", Label("K8S-05"), func() {
	It("does not wait for what a client has begun to ask", func() {
		e := newEnv()
		conn := e.dial()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n", at("hello", "/messages")) // and nothing more
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = conn.Read(make([]byte, 1))
		}()
		e.status("GET", at("nobody", "/messages"), "") // proves that the server has read what came before
		e.stop()
		Eventually(e.stopped).Should(BeClosed())
		Expect(ended).NotTo(BeClosed(), "the server stopped because it was told to, and not because the client's time was over")
	})
})
