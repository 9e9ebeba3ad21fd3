package subagent_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/subagent"
	"github.com/skein-dev/skein/internal/store"
)

// unreadable is a store of which no thread can be read while it is away.
type unreadable struct {
	subagent.Store
	away bool
}

func (u *unreadable) Thread(ctx context.Context, id string) (*store.Thread, error) {
	if u.away {
		return nil, errors.Join(store.ErrUnavailable, errors.New("the database is away"))
	}
	return u.Store.Thread(ctx, id)
}

var _ = Describe("A Subagent whose database is away for a while", Label("SUB-03"), func() {
	It("still says that its child was refused, and does not make it afterwards", func(ctx SpecContext) {
		e := New(ctx)
		stored := &unreadable{Store: e.Store}
		r := newReconciler(e, func(o *subagent.Options) { o.Store = stored })
		createThread(ctx, e, newParent())
		s := declareSubagent(ctx, e, byRun)
		refuseThreads(e, s.Name)
		Reconcile(ctx, r, s)
		e.Fail(nil)
		ended := func() any {
			return meta.FindStatusCondition(Get(ctx, e, s).Status.Conditions, skeinv1.ConditionTerminated)
		}
		refused := HaveValue(And(HaveField("Status", BeEquivalentTo("True")), HaveField("Reason", skeinv1.ReasonChildRefused)))
		Expect(ended()).To(refused)

		e.Clock.Step(time.Minute)
		stored.away = true
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		Expect(err).To(MatchError(ContainSubstring("the database is away")))
		Expect(ended()).To(refused)

		e.Clock.Step(time.Minute)
		stored.away = false
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), &skeinv1.Thread{})).NotTo(Succeed(), "the parent knows that there is none")
		Expect(ended()).To(refused)
	})
})
