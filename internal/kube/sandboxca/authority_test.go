package sandboxca_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxca"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// shortTerms are short versions of the default terms.
var shortTerms = sandboxca.Terms{Authority: 100 * time.Hour, Renewal: 20 * time.Hour, Overlap: 4 * time.Hour, Server: 18 * time.Hour, Client: 6 * time.Hour}

// handshake returns the result of a handshake between a manager and a pod at a time: the manager's error, else the
// pod's.
func handshake(at time.Time, trusted []byte, own pki.Pair, pod map[string][]byte) error {
	now := func() time.Time { return at }
	cc, err := pki.ClientConfig(trusted, own, pki.ServerName("default", kubetest.Namespace))
	if err != nil {
		return err
	}
	sc, err := pki.ServerConfig(pod["ca.crt"], pki.Pair{Cert: pod["tls.crt"], Key: pod["tls.key"]})
	if err != nil {
		return err
	}
	cc.Time, sc.Time = now, now
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	verdict := make(chan error, 1)
	go func() {
		server := tls.Server(b, sc)
		err := server.Handshake()
		verdict <- err
		_ = b.Close()
	}()
	c := tls.Client(a, cc)
	if err := c.Handshake(); err != nil {
		return fmt.Errorf("the manager refuses the pod: %w", err)
	}
	go func() { _, _ = c.Read(make([]byte, 1)) }() // reads what the pod sends afterwards
	if err := <-verdict; err != nil {
		return fmt.Errorf("the pod refuses the manager: %w", err)
	}
	return nil
}

var _ = Describe("The authority of the sandboxes", Label("COD-08"), func() {
	var (
		clk *testingclock.FakePassiveClock
		api client.WithWatch
	)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	BeforeEach(func() {
		clk = testingclock.NewFakePassiveClock(begin)
		api = kubetest.Cluster(interceptor.Funcs{})
	})
	secret := func(ctx context.Context) *corev1.Secret {
		GinkgoHelper()
		s := &corev1.Secret{}
		Expect(api.Get(ctx, client.ObjectKey{Namespace: "skein-system", Name: sandboxca.SecretName}, s)).To(Succeed())
		return s
	}
	loaded := func(ctx context.Context) *sandboxca.Authority {
		GinkgoHelper()
		a := sandboxca.New(api, "skein-system", clk, shortTerms)
		Expect(a.Load(ctx)).To(Succeed())
		return a
	}

	It("rotates without a moment at which a manager and a pod refuse each other", func(ctx SpecContext) {
		leader, replica := loaded(ctx), loaded(ctx)
		type issued struct {
			data map[string][]byte
			at   time.Time
		}
		var pool []issued // what the pool's Secret contained
		var renewAt time.Time
		var of string
		authorities := map[string]bool{}
		const lag = 2 * time.Hour // of pods behind their Secret, far longer than a kubelet takes
		for step := range 2 * 400 {
			at := begin.Add(time.Duration(step) * 30 * time.Minute)
			clk.SetTime(at)
			_, err := leader.Keep(ctx)
			Expect(err).NotTo(HaveOccurred())
			if f := leader.Fingerprint(); f != of || !at.Before(renewAt) {
				data, again, err := leader.Server("default", kubetest.Namespace)
				Expect(err).NotTo(HaveOccurred())
				Expect(again).To(BeTemporally(">", at))
				pool, renewAt, of = append(pool, issued{data, at}), again, f
			}
			authorities[string(secret(ctx).Data["tls.crt"])] = true
			for _, manager := range []*sandboxca.Authority{leader, replica} {
				trusted, own, err := manager.Client(ctx)
				Expect(err).NotTo(HaveOccurred())
				for i, p := range pool {
					if i+1 < len(pool) && pool[i+1].at.Add(lag).Before(at) {
						continue // every pod has the next one by now
					}
					Expect(handshake(at, trusted, own, p.data)).To(Succeed(), "after %s, issued %s ago", at.Sub(begin), at.Sub(p.at))
				}
			}
			if len(pool) > 4 {
				pool = pool[1:]
			}
		}
		Expect(len(authorities)).To(BeNumerically(">=", 5), "there were several turns")
		bundle, _ := pki.Good(clk, secret(ctx).Data["ca.crt"])
		Expect(bundle).To(Equal(secret(ctx).Data["ca.crt"]), "what has ended is forgotten")
	})

	It("writes nothing while nothing is due", func(ctx SpecContext) {
		a := loaded(ctx)
		before := secret(ctx)
		for range 79 {
			clk.SetTime(clk.Now().Add(time.Hour))
			_, err := a.Keep(ctx)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(secret(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		clk.SetTime(begin.Add(80 * time.Hour))
		next, err := a.Keep(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(next).To(BeTemporally("<=", clk.Now().Add(time.Hour)))
		after := secret(ctx)
		Expect(after.Data).To(And(HaveKeyWithValue("tls.crt", before.Data["tls.crt"]), HaveKey("next.crt")))
		Expect(after.Annotations).To(HaveKeyWithValue("skein.dev/next-at", begin.Add(84*time.Hour).Format(time.RFC3339)))
	})

	It("takes over the Secret of an installation without rotation", func(ctx SpecContext) {
		ca, err := pki.NewCA(clk, "skein-sandboxes", 100*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Create(ctx, &corev1.Secret{ObjectMeta: kubetest.Meta(sandboxca.SecretName), Data: map[string][]byte{"tls.crt": ca.Cert, "tls.key": ca.Key}})).To(Succeed())
		a := sandboxca.New(api, kubetest.Namespace, clk, shortTerms)
		Expect(a.Load(ctx)).To(Succeed())
		trusted, own, err := a.Client(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(trusted).To(Equal(ca.Cert))
		Expect(pki.Check(clk, ca.Cert, own, time.Hour)).To(Succeed())
	})

	It("makes a new one after its Secret was deleted, and earlier certificates are refused", func(ctx SpecContext) {
		a := loaded(ctx)
		pod, _, err := a.Server("default", kubetest.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Delete(ctx, secret(ctx))).To(Succeed())
		clk.SetTime(clk.Now().Add(2 * time.Hour))
		trusted, own, err := a.Client(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(handshake(clk.Now(), trusted, own, pod)).To(MatchError(ContainSubstring("unknown authority")))
	})

	It("goes on with what it has while the API server is away", func(ctx SpecContext) {
		away := false
		api = kubetest.Cluster(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if away {
				return errors.New("connection refused")
			}
			return c.Get(ctx, key, o, opts...)
		}})
		a := loaded(ctx)
		away = true
		clk.SetTime(clk.Now().Add(50 * time.Hour))
		trusted, own, err := a.Client(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(pki.Check(clk, trusted, own, time.Hour)).To(Succeed())
		next, err := a.Keep(ctx)
		Expect(err).NotTo(HaveOccurred(), "it was tried just now")
		Expect(next).To(Equal(clk.Now().Add(time.Minute)))
		clk.SetTime(next)
		_, err = a.Keep(ctx)
		Expect(err).To(MatchError(And(ContainSubstring("skein-sandbox-ca"), ContainSubstring("connection refused"))))
		_, _, err = sandboxca.New(api, "skein-system", clk, shortTerms).Client(ctx)
		Expect(err).To(MatchError(ContainSubstring("has not been read")))
	})
})
