package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread"
)

// replica is the part of a manager that seals variables.
type replica struct {
	*thread.Service
	keys *kube.EnvKeys
}

func newReplica(t *testing.T, g Gomega, dir string, st store.Store, kubernetes client.Client) *replica {
	bucket, err := thread.OpenBucket(t.Context(), "file://"+filepath.Join(dir, "blobs"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(bucket.Close()).To(Succeed()) })
	r := &replica{
		Service: thread.NewService(thread.Options{Store: st, Blobs: bucket, Clock: clock.RealClock{}}),
		keys: &kube.EnvKeys{Client: kubernetes, Namespace: "skein-system", Secret: envkeys.DefaultSecret, Ring: &envkeys.Keyring{},
			Clock: clock.RealClock{}, Logger: logr.Discard(), InUse: func(context.Context) (bool, error) { return false, nil }},
	}
	r.keys.Load(t.Context())
	r.ServeEnv(thread.EnvOptions{Cipher: r.keys.Ring, Refresh: r.keys.Refresh})
	return r
}

func TestReplicaReadsWhatAnotherHasPutUnderANewKey(t *testing.T) {
	g, ctx, dir := NewWithT(t), t.Context(), t.TempDir()
	st, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir, Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(st.Close()).To(Succeed()) })
	kubernetes := fake.NewClientBuilder().Build()
	first, second := newReplica(t, g, dir, st, kubernetes), newReplica(t, g, dir, st, kubernetes)
	_, _, err = first.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "t", Namespace: "default", Name: "t", Agent: "a"}})
	g.Expect(err).NotTo(HaveOccurred())
	here, err := first.Open(ctx, "t")
	g.Expect(err).NotTo(HaveOccurred())
	there, err := second.Open(ctx, "t")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(here.SetEnv(ctx, "A", "kept", "")).To(Succeed())
	g.Expect(there.EnvValue(ctx, "A")).To(HaveField("Value", "kept"))

	var keys corev1.Secret
	g.Expect(kubernetes.Get(ctx, client.ObjectKey{Namespace: "skein-system", Name: envkeys.DefaultSecret}, &keys)).To(Succeed())
	rotated, primary, err := envkeys.Rotate(keys.Data[envkeys.SecretKey])
	g.Expect(err).NotTo(HaveOccurred())
	keys.Data[envkeys.SecretKey] = rotated
	g.Expect(kubernetes.Update(ctx, &keys)).To(Succeed())
	first.keys.Load(ctx) // the second has not read them yet
	done, left, err := first.ResealEnv(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]int{done, left}).To(Equal([]int{1, 0}))
	g.Expect(second.keys.Ring.Primary()).NotTo(Equal(primary))
	g.Expect(there.EnvValue(ctx, "A")).To(HaveField("Value", "kept"))
	g.Expect(second.keys.Ring.Primary()).To(Equal(primary))
}

// looked is threads that report each request to reseal their variables, and continue when the report was received.
type looked chan struct{}

func (l looked) ResealEnv(ctx context.Context) (done, left int, err error) {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
	}
	return 1, 0, nil
}

// keysSecret is a Secret that reports what is written into it.
type keysSecret struct {
	version chan string // the version of each search, from the test
	written chan string
}

func (s *keysSecret) Version() string { return <-s.version }

func (s *keysSecret) NoneRemains(_ context.Context, version string, keyID uint32) (string, error) {
	s.written <- fmt.Sprintf("%d at %s", keyID, version)
	return version + " noted", nil
}

func TestThatNoValueIsUnderAnOldKeyIsSaidWhenNoReplicaSealsUnderIt(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keyset, err := envkeys.Generate()
	g.Expect(err).NotTo(HaveOccurred())
	ring := &envkeys.Keyring{}
	g.Expect(ring.Use(keyset)).To(BeTrue())
	said := make(chan string, 100)
	log := funcr.New(func(_, args string) { said <- args }, funcr.Options{})
	looks, now := make(looked), clocktesting.NewFakeClock(time.Now())
	secret := &keysSecret{version: make(chan string, 10), written: make(chan string, 10)}
	r := &resealer{threads: looks, primary: ring.Primary, secret: secret, clock: now, log: log}
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	look := func(version string, none bool) {
		t.Helper()
		secret.version <- version
		g.Eventually(looks, "30s").Should(Receive())
		g.Eventually(said, "30s").Should(Receive(ContainSubstring(`"msg"="put variables under the primary key"`)))
		if none {
			g.Eventually(said, "30s").Should(Receive(ContainSubstring("none remains under another")))
		}
	}
	primary, err := ring.Primary()
	g.Expect(err).NotTo(HaveOccurred())
	look("1", false) // another replica may still use the older key
	now.Step(resealEvery)
	look("1", true)
	g.Expect(secret.written).To(Receive(Equal(fmt.Sprintf("%d at 1", primary))), "before the log says it")
	now.Step(resealEvery)
	look("1 noted", false) // once is enough
	now.Step(resealEvery)
	look("2", false) // the Secret was changed meanwhile
	g.Eventually(secret.written, "30s").Should(Receive(Equal(fmt.Sprintf("%d at 2", primary))))
	rotated, primary, err := envkeys.Rotate(keyset)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ring.Use(rotated)).To(BeTrue())
	now.Step(resealEvery)
	look("3", false)
	now.Step(resealEvery)
	look("3", true)
	g.Expect(secret.written).To(Receive(Equal(fmt.Sprintf("%d at 3", primary))))
	cancel()
	g.Eventually(ended, "30s").Should(Receive(BeNil()))
	g.Expect(said).To(BeEmpty())
	g.Expect(secret.written).To(BeEmpty())
}

func TestTheSecretSaysThatNoValueRemainsUnlessItHasChanged(t *testing.T) {
	g, ctx, dir := NewWithT(t), t.Context(), t.TempDir()
	st, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir, Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(st.Close()).To(Succeed()) })
	kubernetes := fake.NewClientBuilder().Build()
	keys := newReplica(t, g, dir, st, kubernetes).keys
	says := func() (s corev1.Secret) {
		g.Expect(kubernetes.Get(ctx, client.ObjectKey{Namespace: "skein-system", Name: envkeys.DefaultSecret}, &s)).To(Succeed())
		return s
	}
	before := keys.Version()
	after, err := keys.NoneRemains(ctx, before, 7)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(says().Annotations).To(HaveKeyWithValue(skeinv1.AnnotationEnvSealedUnder, "7"))
	keys.Load(ctx)
	g.Expect(keys.Version()).To(Equal(after))
	_, err = keys.NoneRemains(ctx, before, 8)
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	g.Expect(says().Annotations).To(HaveKeyWithValue(skeinv1.AnnotationEnvSealedUnder, "7"))
}

// asked is a cache of Secrets by namespace: it tells of a namespace's Secret once it was asked for those of the namespace.
type asked struct {
	cache.Cache
	handler    toolscache.ResourceEventHandler
	namespaces chan string
	started    chan struct{} // has a value for each handler that was added
}

func (a *asked) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return told{of: a}, nil
}

// told registers the handler of asked.
type told struct {
	cache.Informer
	of *asked
}

func (t told) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	t.of.handler = h
	select {
	case t.of.started <- struct{}{}:
	default:
	}
	return nil, nil
}

func (told) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

func (a *asked) List(_ context.Context, _ client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	select {
	case a.namespaces <- o.Namespace:
		go a.handler.OnAdd(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace}}, true)
	default:
	}
	return apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("not bound"))
}

// waked starts an envWaker on a store with a thread in team-a. wait has the run of that thread wait for variables.
func waked(t *testing.T, g *WithT, secrets *asked, bound bool) (w *envWaker, st store.Store, r *replica, wait func()) {
	ctx, dir := t.Context(), t.TempDir()
	st, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir, Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(st.Close()).To(Succeed()) })
	r = newReplica(t, g, dir, st, fake.NewClientBuilder().Build())
	w = &envWaker{threads: r.Service, cache: secrets, bound: bound, clock: clocktesting.NewFakeClock(time.Now()), log: logr.Discard()}
	_, _, err = r.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "t", Namespace: "team-a", Name: "t", Agent: "a"}})
	g.Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Start(running) }()
	t.Cleanup(func() {
		stop()
		g.Expect(<-ended).To(Succeed())
	})
	return w, st, r, func() {
		t.Helper()
		g.Expect(st.Apply(ctx, "t", nil, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunWaiting, Reason: "EnvMissing"}})).To(Succeed())
	}
}

// A replica whose cache lags looks for the variable, finds none, and lets the run wait after the leader has seen the Secret.
func TestARunThatBeginsToWaitAfterTheChangeIsWoken(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	secrets := &asked{started: make(chan struct{}, 2)}
	w, st, _, wait := waked(t, g, secrets, false)
	g.Eventually(secrets.started).Should(Receive())
	g.Eventually(secrets.started).Should(Receive(), "it hears of Secrets and ConfigMaps")
	secrets.handler.OnUpdate(nil, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a"}})
	g.Eventually(w.clock.(*clocktesting.FakeClock).HasWaiters, time.Minute).Should(BeTrue())
	wait()
	w.clock.(*clocktesting.FakeClock).Step(secondLook)
	g.Eventually(func() ([]store.InboxItem, error) { return st.Inbox(ctx, "t") }, time.Minute).Should(HaveLen(1))
}

func TestTheLeaderLooksForVariablesThatThreadsOfOtherReplicasWaitFor(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	secrets := &asked{namespaces: make(chan string, 1)}
	w, st, r, wait := waked(t, g, secrets, true)
	g.Expect(r.EnvWaiterNamespaces(ctx)).To(BeEmpty())
	wait()
	g.Eventually(func() []store.InboxItem {
		w.clock.(*clocktesting.FakeClock).Step(openPause)
		items, err := st.Inbox(ctx, "t")
		g.Expect(err).NotTo(HaveOccurred())
		return items
	}, time.Minute).ShouldNot(BeEmpty(), "woken by the Secret")
	g.Expect(secrets.namespaces).To(Receive(Equal("team-a")))
}
