package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/store"
)

// making is one call that makes an object, by all who make objects for a cause.
type making struct {
	// made calls it, and returns the name or id of what it made.
	made func(ctx context.Context, c client.WithWatch, db store.Store) (string, error)
	// taint changes an object of the same name so that it has another owner.
	taint func(o client.Object)
}

var makings = map[string]making{
	"a child": {
		func(ctx context.Context, c client.WithWatch, db store.Store) (string, error) {
			child, err := kube.NewChildren(c, c, db).Create(ctx, parent, ports.ChildRequest{Cause: "call_1", Subagent: skeinv1.AgentSubagent{Name: "helper"}})
			if err != nil {
				return "", err
			}
			return child.Reference, nil
		},
		func(o client.Object) { o.(*skeinv1.Subagent).Spec.ParentRef.Name = "other" },
	},
	"an effect": {
		func(ctx context.Context, c client.WithWatch, db store.Store) (string, error) {
			return kube.NewEffects(c, c, db, testingclock.NewFakePassiveClock(time.Unix(1, 0)), kube.NewEffectQuota(0, 0)).
				WithQuotas(func(string) store.Quotas { return store.Quotas{store.QuotaEffects: {Hard: 1}} }).
				Schedule(ctx, parent, ports.EffectRequest{Cause: "call_1", Name: "later", Args: json.RawMessage(`{"a":1}`)})
		},
		func(o client.Object) { o.(*skeinv1.ScheduledEffect).Spec.ThreadRef.Name = "other" },
	},
	"a fork": {
		func(ctx context.Context, c client.WithWatch, _ store.Store) (string, error) {
			t, err := kube.NewThreads(c, c).CreateFork(ctx, parent, &skeinv1.Thread{
				ObjectMeta: metav1.ObjectMeta{Namespace: parent.Namespace}, Spec: skeinv1.ThreadSpec{ForkFrom: &skeinv1.ForkFrom{ThreadRef: skeinv1.LocalRef{Name: parent.Name}}},
			}, "api-key:1")
			if err != nil {
				return "", err
			}
			return t.Name, nil
		},
		func(o client.Object) { o.(*skeinv1.Thread).Spec.ForkFrom = nil },
	},
	"a handoff": {
		func(ctx context.Context, c client.WithWatch, _ store.Store) (string, error) {
			return "", kube.NewThreads(c, c).Declare(ctx, &store.Thread{ID: "66666666-2222-4333-8444-555555555555", Namespace: kubetest.Namespace, Name: "x", Agent: "worker"}, "call_1")
		},
		func(o client.Object) { o.(*skeinv1.Thread).Spec.ThreadID = "another" },
	},
	"a conversation of a gateway": {
		func(ctx context.Context, c client.WithWatch, _ store.Store) (string, error) {
			t, err := kube.NewThreads(c, c).CreateGatewayThread(ctx, &definitions.Gateway{Namespace: kubetest.Namespace, Name: "chat", Agent: "worker"}, "id", "ada")
			if err != nil {
				return "", err
			}
			return t.Name, nil
		},
		func(o client.Object) { o.SetLabels(nil) },
	},
	"a delivery": {
		func(ctx context.Context, c client.WithWatch, _ store.Store) (string, error) {
			return kube.NewThreads(c, c).CreateReceivedThread(ctx, &definitions.Receiver{Namespace: kubetest.Namespace, Name: "orders", UID: "1", Agent: "worker"}, "d-1")
		},
		func(o client.Object) { o.SetLabels(nil) },
	},
}

var _ = Describe("An object that is made for a cause", Label("SUB-03", "K8S-11"), func() {
	denied := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: reason, Message: `admission webhook "no.example.com" denied the request: no`}}
	}
	full := apierrors.NewForbidden(schema.GroupResource{Resource: "objects"}, "x", errors.New("exceeded quota: few"))
	uncounted := apierrors.NewForbidden(schema.GroupResource{Resource: "objects"}, "x", errors.New("status unknown for quota: few"))
	taken := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "objects"}, "x")

	// cluster returns an API server that refuses each object with an error while there is one. Such an admission comes before the API server
	// looks whether an object exists.
	cluster := func(refuse *error) client.WithWatch {
		var mu sync.Mutex
		c := kubetest.Cluster(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := o.(*skeinv1.Effect); !ok && *refuse != nil {
				return *refuse
			}
			o.SetUID(types.UID("uid-" + o.GetName()))
			return c.Create(ctx, o, opts...)
		}})
		return c
	}
	prepare := func(ctx context.Context, c client.Client) {
		GinkgoHelper()
		kubetest.Create(ctx, c, &skeinv1.Effect{ObjectMeta: kubetest.Meta("later")})
	}
	objectsOf := func(ctx context.Context, c client.Client) (out []client.Object) {
		GinkgoHelper()
		var threads skeinv1.ThreadList
		var children skeinv1.SubagentList
		var effects skeinv1.ScheduledEffectList
		for _, l := range []client.ObjectList{&threads, &children, &effects} {
			Expect(c.List(ctx, l)).To(Succeed())
		}
		for i := range threads.Items {
			out = append(out, &threads.Items[i])
		}
		for i := range children.Items {
			out = append(out, &children.Items[i])
		}
		for i := range effects.Items {
			out = append(out, &effects.Items[i])
		}
		return out
	}

	for what, m := range makings {
		It("is found by a repeat although the cluster would refuse it now: "+what, func(ctx SpecContext) {
			var refuse error
			c, db := cluster(&refuse), childStore(ctx)
			prepare(ctx, c)
			first, err := m.made(ctx, c, db)
			Expect(err).NotTo(HaveOccurred())
			for _, refuse = range []error{nil, full, uncounted, denied(metav1.StatusReasonForbidden), denied(metav1.StatusReasonAlreadyExists), denied(metav1.StatusReasonInvalid)} {
				Expect(m.made(ctx, c, db)).To(Equal(first), "%v", refuse)
			}
			Expect(objectsOf(ctx, c)).To(HaveLen(1))
		})

		It("is made once by twenty calls at once: "+what, func(ctx SpecContext) {
			var refuse error
			c, db := cluster(&refuse), childStore(ctx)
			prepare(ctx, c)
			names, errs := make([]string, 20), make([]error, 20)
			var wg sync.WaitGroup
			for i := range names {
				wg.Go(func() { names[i], errs[i] = m.made(ctx, c, db) })
			}
			wg.Wait()
			Expect(errs).To(HaveEach(BeNil()))
			Expect(names).To(HaveEach(names[0]))
			Expect(objectsOf(ctx, c)).To(HaveLen(1))
		})

		It("tells why it is refused, and takes no place: "+what, func(ctx SpecContext) {
			var refuse error
			c, db := cluster(&refuse), childStore(ctx)
			prepare(ctx, c)
			for _, refuse = range []error{full, denied(metav1.StatusReasonForbidden), denied(metav1.StatusReasonAlreadyExists), denied(metav1.StatusReasonConflict), denied("")} {
				_, err := m.made(ctx, c, db)
				Expect(err).To(MatchError(ContainSubstring(refuse.Error())))
				Expect(err).NotTo(MatchError(kube.ErrOtherThread))
				Expect(apierrors.IsNotFound(err)).To(BeFalse())
				Expect(db.LivingChildren(ctx, parent.Namespace, parent.ID)).To(BeEmpty())
			}
			refuse = nil
			_, err := m.made(ctx, c, db)
			Expect(err).NotTo(HaveOccurred(), "what refused it has gone, and nothing is left of the attempts")
		})

		It("is never a foreign object of its name: "+what, func(ctx SpecContext) {
			var refuse error
			c, db := cluster(&refuse), childStore(ctx)
			prepare(ctx, c)
			_, err := m.made(ctx, c, db)
			Expect(err).NotTo(HaveOccurred())
			o := objectsOf(ctx, c)[0]
			m.taint(o)
			Expect(c.Update(ctx, o)).To(Succeed())
			for _, refuse = range []error{nil, taken, full, denied(metav1.StatusReasonAlreadyExists)} {
				_, err := m.made(ctx, c, db)
				Expect(err).To(HaveOccurred(), "%v", refuse)
				if kube.IsRefused(refuse) {
					Expect(err).To(MatchError(ContainSubstring(refuse.Error())))
				}
			}
		})
	}
})
