package thread_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
)

// watched is the controller's client. It records which writes are refused, and can show an object as an informer that is behind does.
type watched struct {
	client.WithWatch
	behind  *skeinv1.Thread
	refused []error
}

func watch(e *Env) *watched {
	w := &watched{}
	note := func(err error) error {
		if err != nil {
			w.refused = append(w.refused, err)
		}
		return err
	}
	w.WithWatch = interceptor.NewClient(e.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if t, ok := o.(*skeinv1.Thread); ok && w.behind != nil {
				w.behind.DeepCopyInto(t)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return note(c.Patch(ctx, o, p, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return note(c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
	})
	return w
}

var _ = DescribeTable("The life of a Thread costs few writes, and none is refused", Label("K8S-07", "THR-09"),
	func(ctx SpecContext, message string, finalizers []string, patches int) {
		e := New(ctx)
		c := watch(e)
		r := newReconciler(e, func(o *thread.Options) { o.Client, o.Live = c, c })
		e.ReadyAgent(ctx, "a")
		e.Writes()

		t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Spec.Message, t.Finalizers = message, finalizers })
		Reconcile(ctx, r, t)
		if message != "" {
			run := store.Run{ID: "r", ThreadID: string(t.UID), Agent: "a", Status: store.RunRunning, StartedAt: e.Clock.Now().UnixMicro()}
			Expect(e.Store.Apply(ctx, run.ThreadID, nil, &store.PutRun{Run: run})).To(Succeed())
			Reconcile(ctx, r, t)
			e.Clock.Step(50 * time.Millisecond)
			run.Status, run.EndedAt = store.RunSucceeded, e.Clock.Now().UnixMicro()
			Expect(e.Store.Apply(ctx, run.ThreadID, nil, &store.PutRun{Run: run})).To(Succeed())
			Reconcile(ctx, r, t)
			Expect(Get(ctx, e, t).Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunSucceeded)))
		}
		e.Clock.Step(time.Minute) // the gathered changes are due
		Reconcile(ctx, r, t)

		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		deleted := Get(ctx, e, t).DeepCopy()
		Reconcile(ctx, r, t)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(t), &skeinv1.Thread{})).To(Satisfy(apierrors.IsNotFound))
		c.behind = deleted // the purge causes notifications before the informer knows that the object is gone
		Reconcile(ctx, r, t)
		c.behind = nil
		Reconcile(ctx, r, t)

		Expect(e.Writes()).To(Equal(map[string]int{"create Thread": 1, "status Thread": 1, "delete Thread": 1, "patch Thread": patches}))
		Expect(c.refused).To(BeEmpty())
	},
	Entry("that has a message, with the finalizer from its creation", "hello", []string{skeinv1.Finalizer}, 1),
	Entry("that has none, with the finalizer from its creation", "", []string{skeinv1.Finalizer}, 1),
	Entry("that has a message, where the manager adds the finalizer", "hello", nil, 2),
	Entry("that has none, where the manager adds the finalizer", "", nil, 2),
)
