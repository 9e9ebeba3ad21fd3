package ownwrites

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// watches can be broken: those that are open end, and no other begins.
type watches struct {
	http.RoundTripper
	mu     sync.Mutex
	broken bool
	open   []io.Closer
}

func (w *watches) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		if w.broken && r.Method == http.MethodGet {
			return nil, errors.New("no list comes through")
		}
		return w.RoundTripper.RoundTrip(r)
	}
	if w.broken {
		return nil, errors.New("no watch comes through")
	}
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		w.open = append(w.open, resp.Body)
	}
	return resp, err
}

func (w *watches) set(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
	if broken {
		for _, body := range w.open {
			_ = body.Close()
		}
		w.open = nil
	}
}

var _ = Describe("With a real API server", Label("K8S-05"), func() {
	It("a list goes on although what was written is deleted while the watch is broken", func(ctx SpecContext) {
		Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(), "this suite needs a control plane: run `make test-integration`")
		control := &envtest.Environment{}
		cfg, err := control.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(control.Stop)
		direct, err := client.New(cfg, client.Options{})
		Expect(err).NotTo(HaveOccurred())

		w := &watches{}
		through := rest.CopyConfig(cfg)
		through.Wrap(func(next http.RoundTripper) http.RoundTripper {
			w.RoundTripper = next
			return w
		})
		running, stop := context.WithCancel(context.Background())
		DeferCleanup(stop)
		cached, err := cache.New(through, cache.Options{Scheme: scheme.Scheme})
		Expect(err).NotTo(HaveOccurred())
		go func() { _ = cached.Start(running) }()
		plain, err := client.New(through, client.Options{Cache: &client.CacheOptions{Reader: cached, EnableReadYourWritesConsistency: ptr.To(true)}})
		Expect(err).NotTo(HaveOccurred())
		o := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o"},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}
		Expect(plain.Create(ctx, o)).To(Succeed())
		Expect(plain.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())

		w.set(true)
		o.Labels = map[string]string{"written": "true"}
		Expect(plain.Update(ctx, o)).To(Succeed())
		Expect(direct.Delete(ctx, o)).To(Succeed())
		w.set(false)
		left := func() ([]corev1.PodTemplate, error) {
			var l corev1.PodTemplateList
			err := cached.List(ctx, &l)
			return l.Items, err
		}
		Eventually(ctx, left).WithTimeout(2*time.Minute).Should(BeEmpty(), "the cache has caught up")

		var l corev1.PodTemplateList
		for range 2 {
			bounded, over := context.WithTimeout(ctx, time.Second)
			Expect(plain.List(bounded, &l)).To(MatchError(context.DeadlineExceeded), "controller-runtime waits no longer: package ownwrites can go")
			over()
		}
		reader := New(plain, GinkgoLogr)
		reader.wait = 100 * time.Millisecond
		Expect(reader.List(ctx, &l)).To(Succeed())
		Expect(l.Items).To(BeEmpty())
	}, NodeTimeout(5*time.Minute))
})
