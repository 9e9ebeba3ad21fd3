package sandboxes_test

import (
	"context"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxes"
	"github.com/skein-dev/skein/internal/sandbox"
)

// shared is the state of the sandboxes that two replicas use. Each accepts streams until it has reported that it is
// idle.
type shared struct {
	mu   sync.Mutex
	held map[string]time.Time // until when, by the pod's UID
}

func (s *shared) dial(_ context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
	return &connection{endpoint: e, retire: func(atLeast, hold time.Duration) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[e.ConnectionName] = time.Now().Add(hold)
		return atLeast
	}}, nil
}

// begin reports whether the sandbox accepts a stream.
func (s *shared) begin(sbx sandbox.Sandbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.held[sbx.(*connection).endpoint.ConnectionName])
}

var _ = Describe("Giving up a sandbox that idles", Label("COD-09"), func() {
	It("loses nothing that another replica begins between the answer and the deletion, nor where its cache is late", func(ctx SpecContext) {
		var (
			replicas = &shared{held: map[string]time.Time{}}
			during   func(deadline time.Time)
			once     sync.Once
			late     []corev1.Pod // what the cache of the other replica does not have yet
		)
		p := newPods(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			deadline, _ := ctx.Deadline()
			once.Do(func() { during(deadline) })
			return c.Delete(ctx, o, opts...)
		}}, running)
		p.port.Dial = replicas.dial
		o := p.port.PodsOptions
		o.Client = interceptor.NewClient(p.client, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, l, opts...)
				lo := (&client.ListOptions{}).ApplyOptions(opts)
				if pods, ok := l.(*corev1.PodList); ok && lo.FieldSelector != nil && strings.Contains(lo.FieldSelector.String(), thread(1).ID) {
					pods.Items = append(late, pods.Items...)
				}
				return err
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				for i := range late {
					if pod, ok := o.(*corev1.Pod); ok && client.ObjectKeyFromObject(&late[i]) == key {
						late[i].DeepCopyInto(pod)
						return nil
					}
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		other := sandboxes.NewPods(o)

		_, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		theirs, _, err := other.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		first := p.all(ctx)
		Expect(first).To(HaveLen(1), "they share it")

		var deadline time.Time
		asked, began := make(chan struct{}), make(chan struct{})
		during = func(d time.Time) {
			deadline = d
			close(asked)
			select {
			case <-began:
			case <-ctx.Done():
			}
		}
		release()
		p.clock.Step(time.Minute)
		Eventually(ctx, asked).Should(BeClosed())
		ok, held := replicas.begin(theirs), replicas.held[string(first[0].UID)]
		close(began)
		Expect(ok).To(BeFalse(), "it has said that it idles")
		Expect(deadline).To(BeTemporally("<", held), "who asked gives up before the sandbox takes work again")
		Eventually(ctx, p.all).WithArguments(ctx).Should(BeEmpty())

		late = first
		other.Discard(ctx, thread(1), theirs)
		next, _, err := other.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(replicas.begin(next)).To(BeTrue())
		Expect(p.all(ctx)).To(ConsistOf(HaveField("UID", Not(Equal(first[0].UID)))))
	}, NodeTimeout(kubetest.Patience))
})
