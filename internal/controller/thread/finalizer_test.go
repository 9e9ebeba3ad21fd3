package thread_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
)

// What is stored of a Thread without the finalizer would stay when the object is deleted (docs/adr/0065-finalizers-at-admission.md).
var _ = Describe("The thread controller, of a Thread whose finalizer is refused", Label("THR-03", "THR-09"), func() {
	var (
		e *Env
		r *thread.Reconciler
	)
	BeforeEach(func(ctx SpecContext) {
		e, r, _ = newController(ctx)
		e.ReadyAgent(ctx, "a")
	})
	threads := schema.GroupResource{Group: skeinv1.GroupVersion.Group, Resource: "threads"}
	// refuse has the API server refuse patches of Threads, but not of their statuses.
	refuse := func(err error) {
		e.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "patch" {
				return err
			}
			return nil
		})
	}
	refusals := []TableEntry{
		Entry("by a conflict", apierrors.NewConflict(threads, "t", errors.New("changed"))),
		Entry("by a policy", apierrors.NewForbidden(threads, "t", errors.New("no finalizers here"))),
		Entry("because the object is gone", apierrors.NewNotFound(threads, "t")),
		Entry("because the schema has changed", apierrors.NewInvalid(skeinv1.GroupVersion.WithKind("Thread").GroupKind(), "t", nil)),
		Entry("because the API server is away", apierrors.NewServiceUnavailable("away")),
	}
	reconcile := func(ctx SpecContext, t *skeinv1.Thread) {
		_, _ = r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(t)}) // other specs say what it reports
	}

	DescribeTable("stores nothing, and stores the thread once the finalizer stands", func(ctx SpecContext, refusal error) {
		t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Spec.Message = "hello" })
		refuse(refusal)
		reconcile(ctx, t)
		Expect(e.Writes()).To(HaveKeyWithValue("patch Thread", 1))
		_, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(MatchError(store.ErrNotFound), "nor its message, which would be with it")

		e.Fail(nil)
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Finalizers).To(ConsistOf(skeinv1.Finalizer))
		Expect(e.Store.Inbox(ctx, string(t.UID))).To(HaveLen(1))
	}, refusals)

	DescribeTable("adopts no retained data, and adopts it once the finalizer stands", func(ctx SpecContext, refusal error) {
		const id = "0b0e8f0e-0000-5000-8000-000000000001"
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: id, Namespace: Namespace, Name: "t", Agent: "a"}, &store.Retain{}) // as a context handoff does
		Expect(err).NotTo(HaveOccurred())
		t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Spec.ThreadID = id })
		refuse(refusal)
		reconcile(ctx, t)
		Expect(e.Store.Thread(ctx, id)).To(And(HaveField("RetainedAt", Not(BeZero())), HaveField("ObjectUID", BeEmpty())))

		e.Fail(nil)
		Reconcile(ctx, r, t)
		Expect(e.Store.Thread(ctx, id)).To(And(HaveField("RetainedAt", BeZero()), HaveField("ObjectUID", string(t.UID))))
	}, refusals)
})
