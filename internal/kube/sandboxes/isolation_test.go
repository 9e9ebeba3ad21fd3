package sandboxes_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A claim", Label("COD-08"), func() {
	It("needs the NetworkPolicy of the pool", func(ctx SpecContext) {
		for what, spoil := range map[string]func(*networkingv1.NetworkPolicy){
			"does not exist yet":      nil,
			"is not this pool's":      func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = nil },
			"is about to restore it":  func(p *networkingv1.NetworkPolicy) { p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}} },
			"was changed, and the":    func(p *networkingv1.NetworkPolicy) { p.Spec.PolicyTypes = p.Spec.PolicyTypes[:1] },
			"its NetworkPolicy \"ske": func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels = nil },
		} {
			p := newPods(interceptor.Funcs{}, running)
			p.warm(ctx, 1)
			policy := policyOf(p.pool)
			Expect(p.client.Delete(ctx, policy)).To(Succeed())
			if spoil != nil {
				policy = policyOf(p.pool)
				spoil(policy)
				Expect(p.client.Create(ctx, policy)).To(Succeed())
			}
			_, _, err := p.port.Acquire(ctx, &store.Thread{ID: "t", Namespace: p.pool.Namespace}, "")
			Expect(err).To(MatchError(And(ContainSubstring(`SandboxPool "default" is not isolated`), ContainSubstring(what))))
			Expect(p.all(ctx)).To(HaveEach(HaveField("Labels", Not(HaveKeyWithValue("skein.dev/sandbox-state", "claimed")))))
		}
	}, SpecTimeout(time.Minute))

	It("waits for the NetworkPolicy of a new pool", func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.port.StartTimeout = time.Minute
		p.warm(ctx, 1)
		Expect(p.client.Delete(ctx, policyOf(p.pool))).To(Succeed())
		acquired := make(chan error, 1)
		go func() {
			_, _, err := p.port.Acquire(ctx, &store.Thread{ID: "t", Namespace: p.pool.Namespace}, "")
			acquired <- err
		}()
		Expect(p.client.Create(ctx, policyOf(p.pool))).To(Succeed())
		Eventually(ctx, acquired).Should(Receive(BeNil()))
	}, SpecTimeout(time.Minute))
})
