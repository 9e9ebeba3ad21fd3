package gateway

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// refusing creates Threads, and says of each what keeps it from being stored, as the controller does.
type refusing struct {
	*kube.Threads
	client client.Client
	reason string
}

func (r refusing) CreateGatewayThread(ctx context.Context, g *definitions.Gateway, id, user string) error {
	if err := r.Threads.CreateGatewayThread(ctx, g, id, user); err != nil {
		return err
	}
	var t skeinv1.Thread
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: kube.GatewayThread(g, id)}, &t); err != nil {
		return err
	}
	t.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: r.reason, Message: "why"}}
	return r.client.Status().Update(ctx, &t)
}

var _ = Describe("A client for whose conversation there is no room", Label("K8S-11", "IDS-04"), func() {
	DescribeTable("is refused", func(ctx SpecContext, reason string, left int) {
		scheme := runtime.NewScheme()
		Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
		c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&skeinv1.Thread{}).Build()
		st, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(st.Close)
		s := serverOf(nil)
		s.finder = &lookup.Finder{Reader: c, Threads: thread.NewService(thread.Options{Store: st}), SetupWait: time.Millisecond}
		s.opts.Objects = refusing{Threads: kube.NewThreads(c, c), client: c, reason: reason}
		g, err := s.opts.Gateways.Find(ctx, "ns", "chat")
		Expect(err).NotTo(HaveOccurred())
		for _, id := range []string{"thrd_a", "thrd_b", "thrd_a"} {
			q := &request{Request: get().WithContext(ctx), gateway: g, id: id, fresh: true, limiter: s.limits.of(g)}
			_, _, err := s.ensure(q)
			Expect(outside(ctx, err).status).To(Equal(http.StatusServiceUnavailable))
		}
		var list skeinv1.ThreadList
		Expect(c.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(left))
	},
		Entry("and leaves no Thread, which would take room later", skeinv1.ReasonQuotaExceeded, 0),
		Entry("and finds its Thread later when that only takes time", skeinv1.ReasonReferenceNotReady, 2),
	)
})
