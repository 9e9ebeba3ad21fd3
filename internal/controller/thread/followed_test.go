package thread_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gocloud.dev/blob/memblob"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

// outage is a store of which some calls fail.
type outage struct {
	store.Store
	reads, writes bool
	of            string // the thread that cannot be read
}

var errAway = errors.Join(store.ErrUnavailable, errors.New("the database is away"))

func (o *outage) Thread(ctx context.Context, id string) (*store.Thread, error) {
	if o.reads || o.of == id {
		return nil, errAway
	}
	return o.Store.Thread(ctx, id)
}

func (o *outage) Apply(ctx context.Context, id string, f *store.Fence, ops ...store.Op) error {
	if o.writes {
		return errAway
	}
	return o.Store.Apply(ctx, id, f, ops...)
}

var _ = Describe("A Thread whose database is away for a while", Label("THR-03"), func() {
	var (
		e    *Env
		away *outage
		r    *thread.Reconciler
		t    *skeinv1.Thread
	)
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		e.ReadyAgent(ctx, "a")
		bucket := memblob.OpenBucket(nil)
		DeferCleanup(bucket.Close)
		away = &outage{Store: e.Store}
		threads := domain.NewService(domain.Options{Store: away, Blobs: bucket, Clock: e.Clock})
		r = newReconciler(e, func(o *thread.Options) { o.Threads = threads })
		t = newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Generation = 1 })
	})
	fails := func(ctx context.Context) {
		GinkgoHelper()
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		Expect(err).To(MatchError(ContainSubstring("the database is away")))
		Get(ctx, e, t)
	}

	It("follows an edit of its spec once the database is back", Label("FIL-08"), func(ctx SpecContext) {
		Reconcile(ctx, r, t)
		Get(ctx, e, t)
		t.Generation = 2
		t.Spec.Title = "edited"
		t.Spec.FileQuota = &skeinv1.FileQuota{Bytes: ptr.To(resource.MustParse("5Mi"))}
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		away.writes = true
		fails(ctx)
		Expect(t.Status.ObservedGeneration).To(BeEquivalentTo(1), "nothing was done about the edit")
		away.writes = false
		e.Clock.Step(time.Second) // so that the status may be written again
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status.ObservedGeneration).To(BeEquivalentTo(2))
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("Title", "edited"))
		Expect(e.Store.FileUsage(ctx, string(t.UID))).To(HaveField("MaxBytes", HaveValue(BeEquivalentTo(5<<20))))
	})

	It("gives data that it adopts later its settings", Label("THR-09", "FIL-08"), func(ctx SpecContext) {
		Reconcile(ctx, r, t)
		heir := newThread(ctx, e, "heir", func(heir *skeinv1.Thread) {
			heir.Spec.ThreadID, heir.Spec.FileQuota = string(t.UID), &skeinv1.FileQuota{Bytes: ptr.To(resource.MustParse("5Mi"))}
			heir.Generation = 1
		})
		Reconcile(ctx, r, heir)
		Expect(Get(ctx, e, heir).Status.ObservedGeneration).To(BeEquivalentTo(1), "it says why it has no data")
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.Retain{})).To(Succeed())
		Reconcile(ctx, r, heir)
		Expect(Get(ctx, e, heir).Status.ThreadID).To(Equal(string(t.UID)))
		Expect(e.Store.FileUsage(ctx, string(t.UID))).To(HaveField("MaxBytes", HaveValue(BeEquivalentTo(5<<20))))
	})

	It("keeps its status, and says why it is not Ready", Label("K8S-01"), func(ctx SpecContext) {
		Reconcile(ctx, r, t)
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.PutRun{Run: store.Run{ID: "r", ThreadID: string(t.UID), Agent: "a", Status: store.RunSucceeded, StartedAt: 1, EndedAt: 2}},
			&store.Terminate{Reason: skeinv1.ReasonTerminatedByRequest})).To(Succeed())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, t)
		before := Get(ctx, e, t).Status.DeepCopy()
		Expect(before.Phase).To(Equal("Terminated"))
		e.Clock.Step(time.Second)
		away.reads = true
		fails(ctx)
		Expect(meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", skeinv1.ReasonInternalError)))
		for _, status := range []*skeinv1.ThreadStatus{before, &t.Status} {
			meta.RemoveStatusCondition(&status.Conditions, skeinv1.ConditionReady)
		}
		Expect(&t.Status).To(Equal(before))
	})

	// refused makes a child that was refused, of which the parent was told.
	refused := func(ctx context.Context) *skeinv1.Thread {
		GinkgoHelper()
		Reconcile(ctx, r, t)
		attached := func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/none.csv"} }
		return newOwned(ctx, e, newSubagent(ctx, e, t, "child", blocking, attached), "do")
	}
	told := func(ctx context.Context) (n int) {
		GinkgoHelper()
		items, err := e.Store.Inbox(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		for _, i := range items {
			if i.Kind == store.InboxChildResult {
				n++
			}
		}
		return n
	}

	It("is not made after all when its parent was told that it cannot be", Label("SUB-03"), func(ctx SpecContext) {
		parent, child := t, refused(ctx)
		Reconcile(ctx, r, child)
		Expect(told(ctx)).To(Equal(1))
		e.Clock.Step(time.Second)
		away.reads, t = true, child
		fails(ctx)
		away.reads, t = false, parent
		own, err := e.Threads.Open(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		_, err = own.WriteFile(ctx, "/none.csv", strings.NewReader("too late"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Reconcile(ctx, r, child)
		_, err = e.Store.Thread(ctx, string(child.UID))
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	It("tells the parent of a refused child once the database is back", Label("SUB-03"), func(ctx SpecContext) {
		parent, child := t, refused(ctx)
		away.writes, t = true, child
		fails(ctx) // the refusal is on record, and the parent does not know
		away.writes, away.of = false, string(parent.UID)
		fails(ctx) // the parent cannot be read
		away.of, t = "", parent
		Expect(told(ctx)).To(BeZero())
		Reconcile(ctx, r, child)
		Expect(told(ctx)).To(Equal(1))
	})
})
