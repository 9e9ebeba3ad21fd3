package thread_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/controller/watches"
)

var _ = Describe("The only worker of the controller", Label("SUB-08"), func() {
	It("reconciles another thread before the children of one that is deleted are all gone", func(ctx SpecContext) {
		const many, child = 500, "child was deleted"
		e := New(ctx)
		e.ReadyAgent(ctx, "a")
		parent, other := newThread(ctx, e, "parent"), newThread(ctx, e, "other")

		var mu sync.Mutex
		var order []string
		var queue workqueue.TypedRateLimitingInterface[ctrl.Request]
		add := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			if order = append(order, event); event == child && len(order) == 1 {
				queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)})
			}
		}
		deleted := interceptor.NewClient(e.Client, interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				err := c.Delete(ctx, o, opts...)
				if _, ok := o.(*skeinv1.Subagent); ok && err == nil {
					add(child)
				}
				return err
			},
		})
		r := newReconciler(e, func(o *thread.Options) { o.Client = deleted })
		Reconcile(ctx, r, parent)
		for i := range many {
			newSubagent(ctx, e, parent, fmt.Sprint("child-", i))
		}
		Expect(e.Client.Delete(ctx, Get(ctx, e, parent))).To(Succeed())

		o := watches.Options(1)
		o.SkipNameValidation = ptr.To(true)
		o.Reconciler = reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			result, err := r.Reconcile(ctx, req)
			if err == nil {
				add(req.Name)
			}
			return result, err
		})
		c, err := controller.NewUnmanaged("thread-slices", o)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			queue = q
			q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(parent)})
			return nil
		}))).To(Succeed())
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- c.Start(running) }()
		Eventually(func() error { return e.Client.Get(ctx, client.ObjectKeyFromObject(parent), &skeinv1.Thread{}) }).ShouldNot(Succeed())
		Eventually(func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}).Should(ContainElement("other"))
		stop()
		Eventually(ended).Should(Receive(BeNil()))

		var before, after int
		seen := false
		for _, event := range order {
			switch {
			case event == "other":
				seen = true
			case event != child:
				Expect(event).To(Equal("parent"))
			case seen:
				after++
			default:
				before++
			}
		}
		Expect(before+after).To(Equal(many), "each child is deleted once")
		Expect(before).To(BeNumerically(">", 0))
		Expect(after).To(BeNumerically(">", before), "children that are deleted after the other thread was reconciled")
	})
})
