package serving

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var _ = Describe("the serving certificate", func() {
	var now time.Time
	var kube client.WithWatch

	BeforeEach(func() {
		now = time.Now()
		kube = fake.NewClientBuilder().WithScheme(servingScheme).Build()
	})
	registrarOf := func(c client.Client) *registrar {
		o := Options{now: func() time.Time { return now }}
		o.setDefaults()
		return &registrar{client: c, opts: o, certificate: &Certificate{}}
	}
	leaf := func(r *registrar) *x509.Certificate {
		GinkgoHelper()
		cert, key := r.certificate.CurrentCertKeyContent()
		Expect(key).To(ContainSubstring("PRIVATE KEY"))
		certs, err := certutil.ParseCertsPEM(cert)
		Expect(err).NotTo(HaveOccurred())
		return certs[0]
	}

	It("is good for the name that the API server verifies, and shared by all replicas", func(ctx SpecContext) {
		a, b := registrarOf(kube), registrarOf(kube)
		Expect(a.ensure(ctx)).To(Succeed())
		Expect(b.ensure(ctx)).To(Succeed())
		Expect(leaf(a).Raw).To(Equal(leaf(b).Raw))
		roots, err := certutil.NewPoolFromBytes(a.certificate.CABundle())
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"skein-runtime-api.skein-system.svc", "localhost", "127.0.0.1"} {
			_, err := leaf(a).Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("is renewed when a third of its life is left, by the same authority, and taken into use", func(ctx SpecContext) {
		r := registrarOf(kube)
		Expect(r.ensure(ctx)).To(Succeed())
		first, ca := leaf(r), r.certificate.CABundle()
		heard := &listener{}
		r.certificate.AddListener(heard)
		now = now.Add(leafLifetime * 3 / 5)
		Expect(r.ensure(ctx)).To(Succeed())
		Expect(leaf(r).Raw).To(Equal(first.Raw))
		Expect(heard.times).To(BeZero())
		now = now.Add(leafLifetime / 10)
		Expect(r.ensure(ctx)).To(Succeed())
		Expect(leaf(r).Raw).NotTo(Equal(first.Raw))
		Expect(r.certificate.CABundle()).To(Equal(ca))
		Expect(heard.times).To(Equal(1))
	})

	It("is made again when the Secret is broken or lacks a name", func(ctx SpecContext) {
		r := registrarOf(kube)
		Expect(r.ensure(ctx)).To(Succeed())
		first := leaf(r)
		r.opts.External = &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 1}
		Expect(r.ensureSecret(ctx)).To(Succeed())
		Expect(leaf(r).Raw).NotTo(Equal(first.Raw))
		var s corev1.Secret
		Expect(kube.Get(ctx, client.ObjectKey{Namespace: "skein-system", Name: "skein-runtime-api-tls"}, &s)).To(Succeed())
		s.Data[secretCAKey] = []byte("nonsense")
		Expect(kube.Update(ctx, &s)).To(Succeed())
		ca := r.certificate.CABundle()
		Expect(r.ensureSecret(ctx)).To(Succeed())
		Expect(r.certificate.CABundle()).NotTo(Equal(ca))
	})

	It("takes what another replica wrote in between", func(ctx SpecContext) {
		other := registrarOf(kube)
		raced := interceptor.NewClient(kube, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, ok := obj.(*corev1.Secret); ok {
				Expect(other.ensureSecret(ctx)).To(Succeed())
			}
			return c.Create(ctx, obj, opts...)
		}})
		r := registrarOf(raced)
		Expect(r.ensureSecret(ctx)).To(Succeed())
		Expect(leaf(r).Raw).To(Equal(leaf(other).Raw))
	})

	It("gives up with the place where it failed", func(ctx SpecContext) {
		denied := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "skein-runtime-api-tls", nil)
		r := registrarOf(interceptor.NewClient(kube, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return denied
		}}))
		Expect(r.ensureSecret(ctx)).To(MatchError(ContainSubstring("Secret skein-system/skein-runtime-api-tls")))
	})

	It("renews itself while it is in use", func(ctx SpecContext) {
		r := registrarOf(kube)
		now = now.Add(-leafLifetime) // as if issued a year ago
		Expect(r.ensure(ctx)).To(Succeed())
		old := leaf(r)
		now = time.Now()
		renewed := make(chan struct{}, 1)
		r.certificate.renew = func(ctx context.Context) error {
			defer func() { renewed <- struct{}{} }()
			return r.ensure(ctx)
		}
		running, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- r.certificate.Start(running) }()
		Eventually(renewed).Should(Receive())
		Expect(leaf(r).Raw).NotTo(Equal(old.Raw))
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	})
})

type listener struct{ times int }

func (l *listener) Enqueue() { l.times++ }
