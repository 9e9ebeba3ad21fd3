package thread

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/thread"
)

// The garbage collector may take its finalizer from a Thread before the Thread is reconciled for the first time (THR-09).
func TestADeletionInTheForegroundIsKnownByItsEvent(t *testing.T) {
	g := NewWithT(t)
	meta := controllertest.Meta("held")
	meta.UID, meta.Finalizers = "2", []string{"example.com/keeps"}
	held := &skeinv1.Subagent{ObjectMeta: meta}
	kept := &skeinv1.Subagent{ObjectMeta: controllertest.Meta("kept")}
	var how client.DeleteOptions
	c := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(held, kept).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			how.ApplyOptions(opts)
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	r := New(Options{Client: c, Live: c, Threads: thread.NewService(thread.Options{})})
	parent := &skeinv1.Thread{ObjectMeta: controllertest.Meta("parent")}
	parent.UID, parent.DeletionTimestamp = "1", &metav1.Time{Time: time.Unix(1, 0)}
	parent.Finalizers = []string{skeinv1.Finalizer, metav1.FinalizerDeleteDependents}
	g.Expect(r.foreground.seen().Update(event.UpdateEvent{ObjectOld: &skeinv1.Thread{}, ObjectNew: parent})).To(BeTrue())
	g.Expect(r.foreground.seen().Create(event.CreateEvent{Object: &skeinv1.Thread{}})).To(BeTrue())
	parent.Finalizers = []string{skeinv1.Finalizer}

	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(held), held)).To(Succeed())
	g.Expect(r.deleteAsRead(t.Context(), parent, "Subagent", held)).To(Succeed())
	g.Expect(how.PropagationPolicy).To(HaveValue(Equal(metav1.DeletePropagationForeground)))

	s := &scope{req: ctrl.Request{NamespacedName: client.ObjectKeyFromObject(parent)}, object: parent}
	g.Expect(r.awaitsObjects(t.Context(), s)).To(BeTrue())
	g.Expect(s.again).To(Equal(lostNotification))
	q := controllertest.NewQueue()
	r.foreground.ends().Delete(t.Context(), event.DeleteEvent{Object: parent}, q)
	g.Expect(q.Due).To(BeEmpty())
	r.foreground.ends().Delete(t.Context(), event.DeleteEvent{Object: held}, q)
	g.Expect(q.Due).To(Equal(map[ctrl.Request]time.Duration{s.req: 0}))

	r.foreground.add(parent.UID, "Subagent", held) // as after a missed event
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(held), held)).To(Succeed())
	held.Finalizers = nil
	g.Expect(c.Update(t.Context(), held)).To(Succeed())
	r.foreground.add(parent.UID, "Subagent", kept) // its deletion was refused
	g.Expect(r.awaitsObjects(t.Context(), s)).To(BeFalse())

	ended := &skeinv1.Subagent{ObjectMeta: controllertest.Meta("ended")}
	ended.UID = "4"
	r.foreground.add(parent.UID, "Subagent", ended)
	q = controllertest.NewQueue()
	r.foreground.ends().Delete(t.Context(), event.DeleteEvent{Object: ended}, q)
	g.Expect(q.Due).To(BeEmpty(), "the Thread does not wait for it")
	g.Expect(r.foreground.of(parent.UID)).To(BeEmpty(), "the Thread will not read it")

	for i := range childrenAtOnce + 1 {
		gone := &skeinv1.Subagent{ObjectMeta: controllertest.Meta("gone")}
		gone.UID = types.UID(fmt.Sprint("gone-", i))
		r.foreground.add(parent.UID, "Subagent", gone)
	}
	g.Expect(r.awaitsObjects(t.Context(), s)).To(BeTrue(), "it lets other Threads go first")
	g.Expect(s.again).To(Equal(nextChildren))
	g.Expect(r.awaitsObjects(t.Context(), s)).To(BeFalse())
}
