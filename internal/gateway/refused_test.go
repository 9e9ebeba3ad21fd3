package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// refusing creates Threads, and says of each what keeps it from being stored, as the controller does.
type refusing struct {
	*kube.Threads
	client client.Client
	reason string
	// refused is called once a Thread says what keeps it from being stored. It may be nil.
	refused func(ctx context.Context, t *skeinv1.Thread)
}

func (r refusing) CreateGatewayThread(ctx context.Context, g *definitions.Gateway, id, user string) (*skeinv1.Thread, error) {
	made, err := r.Threads.CreateGatewayThread(ctx, g, id, user)
	if err != nil {
		return nil, err
	}
	t := made.DeepCopy()
	t.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: r.reason, Message: "why"}}
	if err := r.client.Status().Update(ctx, t); err != nil {
		return nil, err
	}
	if r.refused != nil {
		r.refused(ctx, t)
	}
	return made, nil
}

// meanwhile is a client for which something happens after each object that it reads.
type meanwhile struct {
	client.Reader
	happens func(ctx context.Context, o client.Object)
}

func (m meanwhile) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := m.Reader.Get(ctx, key, o, opts...)
	if err == nil {
		m.happens(ctx, o)
	}
	return err
}

var _ = Describe("A client for whose conversation there is no room", Label("K8S-11", "IDS-04"), func() {
	var (
		c  client.Client
		st store.Store
		s  *Server
		g  *definitions.Gateway

		deleting func(context.Context, client.Object) // is called before an object is deleted
	)
	BeforeEach(func(ctx SpecContext) {
		deleting = nil
		c = objectsOf(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := ctx.Err(); err != nil {
					return err // as from a real API server
				}
				if deleting != nil {
					deleting(ctx, o)
				}
				return c.Delete(ctx, o, opts...)
			},
		})
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		st = db
		s = serverOf(nil)
		s.finder = &lookup.Finder{Reader: c, Threads: thread.NewService(thread.Options{Store: st}), SetupWait: time.Millisecond}
		g, err = s.opts.Gateways.Find(ctx, "ns", "chat")
		Expect(err).NotTo(HaveOccurred())
	})
	refuse := func(reason string, refused func(context.Context, *skeinv1.Thread)) {
		s.opts.Objects = refusing{Threads: kube.NewThreads(c, c), client: c, reason: reason, refused: refused}
	}
	ensure := func(ctx context.Context, id string) (*store.Thread, error) {
		_, row, err := s.ensure(&request{Request: get().WithContext(ctx), gateway: g, id: id, fresh: true, limiter: s.limits.limiterOf(g)})
		return row, err
	}
	left := func(ctx context.Context) []skeinv1.Thread {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(c.List(ctx, &list)).To(Succeed())
		return list.Items
	}
	// create stores the thread of an object, as the controller does when there is room.
	create := func(ctx context.Context, o client.Object) {
		GinkgoHelper()
		t := o.(*skeinv1.Thread)
		_, _, err := st.CreateThread(ctx, store.Thread{ID: t.ThreadID(), Namespace: t.Namespace, Name: t.Name, Agent: "agent"})
		Expect(err).NotTo(HaveOccurred())
	}

	DescribeTable("is refused", func(ctx SpecContext, reason string, n int) {
		refuse(reason, nil)
		for _, id := range []string{"thrd_a", "thrd_b", "thrd_a"} {
			_, err := ensure(ctx, id)
			Expect(problemOf(ctx, err).status).To(Equal(http.StatusServiceUnavailable))
		}
		Expect(left(ctx)).To(HaveLen(n))
	},
		Entry("and leaves no Thread, which would take room later", skeinv1.ReasonQuotaExceeded, 0),
		Entry("and finds its Thread later when that only takes time", skeinv1.ReasonReferenceNotReady, 2),
	)

	It("is asked to come back when the cluster refuses its Thread, and is told nothing of the cluster", Label("EVT-05"), func(ctx SpecContext) {
		refusals := []error{
			apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, "x", errors.New("exceeded quota: few")),
			apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, "x", errors.New("status unknown for quota: few")),
		}
		for _, reason := range []metav1.StatusReason{metav1.StatusReasonAlreadyExists, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonInternalError} {
			refusals = append(refusals, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: reason, Message: `admission webhook "no.example.com" denied the request: no`,
			}})
		}
		for _, refusal := range refusals {
			full := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return refusal
			}})
			s.opts.Objects = kube.NewThreads(full, c)
			_, err := ensure(ctx, "thrd_a")
			Expect(problemOf(ctx, err)).To(Equal(errUnavailable))
			_, err = kube.NewThreads(full, c).CreateReceivedThread(ctx, &definitions.Receiver{Namespace: "ns", Name: "orders", UID: "1"}, "d-1")
			Expect(deliveryProblem(ctx, err)).To(Equal(errHookWaits))
		}
		Expect(left(ctx)).To(BeEmpty())

		By("having no room for messages, before a Thread is made")
		full := &store.NamespaceQuotaError{Namespace: "ns", Resource: store.QuotaMessageBytes}
		s.opts.Engine, s.opts.Objects = room{full: full}, kube.NewThreads(c, c)
		_, err := ensure(ctx, "thrd_b")
		Expect(problemOf(ctx, err)).To(Equal(errUnavailable))
		_, err = s.store(ctx, httptest.NewRecorder(), &definitions.Receiver{Namespace: "ns", Name: "orders", UID: "1"}, "d-2", "event", []byte("{}"))
		Expect(deliveryProblem(ctx, err)).To(Equal(errHookWaits))
		Expect(left(ctx)).To(BeEmpty())
	})

	It("is refused, and leaves no Thread, when it does not wait for the answer", func(ctx SpecContext) {
		client, leave := context.WithCancel(ctx)
		refuse(skeinv1.ReasonQuotaExceeded, func(context.Context, *skeinv1.Thread) { leave() })
		_, err := ensure(client, "thrd_a")
		Expect(problemOf(ctx, err).status).To(Equal(http.StatusServiceUnavailable))
		Expect(left(ctx)).To(BeEmpty())
	})

	It("has its conversation when room appears before its Thread is deleted", func(ctx SpecContext) {
		refuse(skeinv1.ReasonQuotaExceeded, nil)
		s.finder.Live = meanwhile{Reader: c, happens: create}
		row, err := ensure(ctx, "thrd_a")
		Expect(err).NotTo(HaveOccurred())
		Expect(left(ctx)).To(ConsistOf(HaveField("UID", BeEquivalentTo(row.ID))))
	})

	It("is refused for good when room appears while its Thread is deleted: nothing is stored of it", func(ctx SpecContext) {
		refuse(skeinv1.ReasonQuotaExceeded, nil)
		var stored []error
		deleting = func(ctx context.Context, o client.Object) {
			now := &skeinv1.Thread{}
			Expect(c.Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
			_, _, err := st.CreateThread(ctx, store.Thread{ID: now.ThreadID(), Namespace: now.Namespace, Name: now.Name, Agent: "agent"})
			stored = append(stored, err)
		}
		_, err := ensure(ctx, "thrd_a")
		Expect(problemOf(ctx, err).status).To(Equal(http.StatusServiceUnavailable))
		Expect(left(ctx)).To(BeEmpty())
		Expect(stored).To(ConsistOf(MatchError(store.ErrObjectDeleted)))
		Expect(st.Threads(ctx, store.ThreadQuery{})).To(BeEmpty())
	})

	It("keeps a Thread that has changed since it was found to be refused", func(ctx SpecContext) {
		refuse(skeinv1.ReasonQuotaExceeded, nil)
		s.finder.Live = meanwhile{Reader: c, happens: func(ctx context.Context, o client.Object) { // as the controller does for a status that it computed before
			now := o.DeepCopyObject().(*skeinv1.Thread)
			now.Status.Conditions[0].Status = metav1.ConditionTrue
			Expect(c.Status().Update(ctx, now)).To(Succeed())
		}}
		_, err := ensure(ctx, "thrd_a")
		Expect(problemOf(ctx, err).status).To(Equal(http.StatusServiceUnavailable))
		Expect(left(ctx)).To(HaveLen(1))
	})
})
