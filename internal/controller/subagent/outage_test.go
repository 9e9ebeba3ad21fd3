package subagent_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		r := subagent.New(subagent.Options{Client: e.Client, Live: e.Client, Store: stored, Engine: e.Engine, Clock: e.Clock})
		parent := &skeinv1.Thread{ObjectMeta: Meta("parent"), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
		e.Create(ctx, parent)
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: string(parent.UID), Namespace: Namespace, Name: "parent", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		s := &skeinv1.Subagent{ObjectMeta: Meta("s"), Spec: skeinv1.SubagentSpec{
			ParentRef: skeinv1.LocalRef{Name: "parent"}, AgentRef: skeinv1.LocalRef{Name: "a"}, Name: "helper", Blocking: true, ToolCallID: "call_1"}}
		e.Create(ctx, s)
		e.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, s.Name, errors.New("exceeded quota: few"))
			}
			return nil
		})
		Reconcile(ctx, r, s)
		e.Fail(nil)
		ended := func() any {
			return meta.FindStatusCondition(Get(ctx, e, s).Status.Conditions, skeinv1.ConditionTerminated)
		}
		refused := HaveValue(And(HaveField("Status", BeEquivalentTo("True")), HaveField("Reason", skeinv1.ReasonChildRefused)))
		Expect(ended()).To(refused)

		e.Clock.Step(time.Minute)
		stored.away = true
		_, err = r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		Expect(err).To(MatchError(ContainSubstring("the database is away")))
		Expect(ended()).To(refused)

		e.Clock.Step(time.Minute)
		stored.away = false
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), &skeinv1.Thread{})).NotTo(Succeed(), "the parent knows that there is none")
		Expect(ended()).To(refused)
	})
})
