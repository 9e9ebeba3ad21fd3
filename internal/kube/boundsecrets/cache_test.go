package boundsecrets_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/skein-dev/skein/internal/kube/boundsecrets"
	"github.com/skein-dev/skein/internal/kube/objects"
)

func TestBoundSecrets(t *testing.T) {
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "bound secrets")
}

// manager is a user whom the API server of the suite knows, with no right but those that a spec gives it.
const manager = "manager"

var (
	admin client.Client
	cfg   *rest.Config // of the manager
)

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(), "this suite needs a control plane: run `make test-integration`")
	control := &envtest.Environment{}
	root, err := control.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(control.Stop)
	admin, err = client.New(root, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	user, err := control.AddUser(envtest.User{Name: manager}, nil)
	Expect(err).NotTo(HaveOccurred())
	cfg = user.Config()
	for name, rules := range map[string][]rbacv1.PolicyRule{
		objects.RoleSecretReader: {{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}}},
		"everywhere":             {{APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: []string{"get", "list", "watch"}}},
	} {
		Expect(admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})).To(Succeed())
	}
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everywhere"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everywhere"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: manager}}})).To(Succeed())
}, NodeTimeout(3*time.Minute))

// wire breaks watches that are open.
type wire struct {
	http.RoundTripper
	fails atomic.Bool // new requests do not reach the API server
	mu    sync.Mutex
	open  []io.Closer
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.fails.Load() {
		return nil, errors.New("the API server is away")
	}
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open = append(w.open, resp.Body)
	}
	return resp, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, body := range w.open {
		_ = body.Close()
	}
	w.open = nil
}

var _ = Describe("Secrets by namespace", Label("K8S-13"), func() {
	var (
		clock  *clocktesting.FakeClock
		broken *wire
		read   cache.Cache
	)
	BeforeEach(func(ctx SpecContext) {
		broken, clock = &wire{}, clocktesting.NewFakeClock(time.Now())
		through := rest.CopyConfig(cfg)
		through.Wrap(func(next http.RoundTripper) http.RoundTripper {
			broken.RoundTripper = next
			return broken
		})
		others, err := cache.New(through, cache.Options{Scheme: scheme.Scheme})
		Expect(err).NotTo(HaveOccurred())
		live, err := client.New(through, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		Expect(boundsecrets.WhoAmI(ctx, live)).To(Equal(objects.Account(manager)))
		read = boundsecrets.New(boundsecrets.Options{
			Others: others, Namespaces: others, Allowed: boundsecrets.MayRead(live), Clock: clock, Logger: GinkgoLogr,
			Object: func() client.Object { return objects.MetadataOf("Secret") },
			List:   func() client.ObjectList { return metadataList() },
			Open: func(namespace string, failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error) {
				return cache.New(through, cache.Options{Scheme: scheme.Scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultWatchErrorHandler: failed})
			},
		})
	})
	start := func() {
		running, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- read.Start(running) }()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(Receive(BeNil()), "nothing of it goes on")
		})
	}
	namespace := func(ctx context.Context) string {
		GinkgoHelper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
		Expect(admin.Create(ctx, ns)).To(Succeed())
		return ns.Name
	}
	secret := func(ctx context.Context, ns, name string) {
		GinkgoHelper()
		Expect(admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})).To(Succeed())
	}
	binding := func(ns string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: objects.RoleSecretReader},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: objects.RoleSecretReader},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: manager}}}
	}
	get := func(ns, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return read.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, objects.MetadataOf("Secret"))
		}
	}
	// tick lets the cache look again.
	tick := func() { clock.Step(15 * time.Second) }

	It("are read where a RoleBinding allows it, as soon as it does", func(ctx SpecContext) {
		Expect(get("default", "s")(ctx)).To(MatchError(&cache.ErrCacheNotStarted{}))
		heard := &events{}
		informer, err := read.GetInformer(ctx, objects.MetadataOf("Secret"))
		Expect(err).NotTo(HaveOccurred())
		early, err := informer.AddEventHandler(heard)
		Expect(err).NotTo(HaveOccurred())
		Expect(early.HasSynced()).To(BeTrue(), "a controller does not wait for namespaces that are not open")
		start()
		bound, other := namespace(ctx), namespace(ctx)
		secret(ctx, bound, "s")
		secret(ctx, other, "s")
		Eventually(ctx, get(bound, "s")).Should(Satisfy(apierrors.IsForbidden))
		Expect(get(other, "s")(ctx)).To(Satisfy(apierrors.IsForbidden))

		Expect(admin.Create(ctx, binding(bound))).To(Succeed())
		Eventually(ctx, func() []string {
			tick()
			return heard.list()
		}).Should(ContainElement("add "+bound+"/s"), "it looks without being asked")
		Expect(get(bound, "s")(ctx)).To(Succeed())
		Expect(get(bound, "none")(ctx)).To(Satisfy(apierrors.IsNotFound))
		Expect(get(other, "s")(ctx)).To(Satisfy(apierrors.IsForbidden))

		late := &events{}
		registered, err := informer.AddEventHandler(late)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, late.list).Should(ContainElement("add " + bound + "/s"))
		Expect(informer.RemoveEventHandler(registered)).To(Succeed())
		secret(ctx, bound, "more")
		Eventually(ctx, heard.list).Should(ContainElement("add " + bound + "/more"))
		Expect(late.list()).NotTo(ContainElement("add " + bound + "/more"))

		list := metadataList()
		Expect(read.List(ctx, list, client.InNamespace(bound))).To(Succeed())
		Expect(list.Items).To(HaveLen(2))
		Expect(read.List(ctx, list)).To(MatchError(ContainSubstring("all namespaces")))
		Expect(read.List(ctx, &corev1.ConfigMapList{})).To(Succeed(), "other kinds are read as ever")
		Expect(heard.list()).NotTo(ContainElement(ContainSubstring(other)))
	})

	It("without a right stay forbidden while the API server is away", func(ctx SpecContext) {
		start()
		ns := namespace(ctx)
		Eventually(ctx, get(ns, "s")).Should(Satisfy(apierrors.IsForbidden))
		broken.fails.Store(true)
		DeferCleanup(func() { broken.fails.Store(false) })
		tick()
		Consistently(ctx, get(ns, "s"), "300ms").Should(Satisfy(apierrors.IsForbidden))
		broken.fails.Store(false)
		Expect(admin.Create(ctx, binding(ns))).To(Succeed())
		secret(ctx, ns, "s")
		Eventually(ctx, func(ctx context.Context) error {
			tick()
			return get(ns, "s")(ctx)
		}).Should(Succeed())
	})

	It("are gone for those who watch them when the right is taken away", func(ctx SpecContext) {
		heard := &events{}
		informer, err := read.GetInformer(ctx, objects.MetadataOf("Secret"))
		Expect(err).NotTo(HaveOccurred())
		_, err = informer.AddEventHandler(heard)
		Expect(err).NotTo(HaveOccurred())
		start()
		ns := namespace(ctx)
		secret(ctx, ns, "s")
		b := binding(ns)
		Expect(admin.Create(ctx, b)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			tick()
			return get(ns, "s")(ctx)
		}).Should(Succeed())

		Expect(admin.Delete(ctx, b)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			broken.cut()
			return get(ns, "s")(ctx)
		}).Should(Satisfy(apierrors.IsForbidden))
		Eventually(ctx, heard.list).Should(ContainElement("delete " + ns + "/s"))

		Expect(admin.Create(ctx, binding(ns))).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			tick()
			return get(ns, "s")(ctx)
		}).Should(Succeed())
		Eventually(ctx, heard.list).Should(Equal([]string{"add " + ns + "/s", "delete " + ns + "/s", "add " + ns + "/s"}))
	})
})

func metadataList() *metav1.PartialObjectMetadataList {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	return l
}

// events keeps what it is told.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.all...)
}

func (e *events) note(verb string, o any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := o.(client.Object)
	e.all = append(e.all, verb+" "+m.GetNamespace()+"/"+m.GetName())
}

func (e *events) OnAdd(o any, _ bool) { e.note("add", o) }
func (e *events) OnUpdate(_, o any)   { e.note("update", o) }
func (e *events) OnDelete(o any)      { e.note("delete", o) }
