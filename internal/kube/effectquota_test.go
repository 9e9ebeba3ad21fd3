package kube_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

var _ = Describe("Quotas of ScheduledEffects", Label("EFF-01"), func() {
	var (
		clock   *testingclock.FakePassiveClock
		quota   *kube.EffectQuota
		port    *kube.Effects
		refuse  atomic.Bool // the API server refuses to create objects
		lists   atomic.Int64
		cluster client.Client
	)
	other := &store.Thread{ID: "o", Namespace: kubetest.Namespace, Name: "other"}
	BeforeEach(func(ctx SpecContext) {
		refuse.Store(false)
		lists.Store(0)
		var uids atomic.Int64
		c := kubetest.Cluster(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if refuse.Load() {
					return errors.New("not now")
				}
				o.SetUID(types.UID(fmt.Sprint("uid-", uids.Add(1))))
				return c.Create(ctx, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				lists.Add(1)
				return c.List(ctx, l, opts...)
			},
		}, &skeinv1.Effect{ObjectMeta: kubetest.Meta("remind")})
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		clock = testingclock.NewFakePassiveClock(time.Now())
		cluster, quota = c, kube.NewEffectQuota(3, 5)
		port = kube.NewEffects(c, c, db, clock, quota)
	})
	schedule := func(ctx context.Context, t *store.Thread, cause string) error {
		_, err := port.Schedule(ctx, t, ports.EffectRequest{Cause: cause, Name: "remind", Delay: time.Hour})
		return err
	}
	object := func(name, thread string) *skeinv1.ScheduledEffect {
		s := &skeinv1.ScheduledEffect{ObjectMeta: kubetest.Meta(name)}
		if thread != "" {
			s.Spec.ThreadRef = &skeinv1.LocalRef{Name: thread}
		}
		return s
	}
	refused := func(text string) OmegaMatcher {
		return And(BeAssignableToTypeOf(&ports.EffectQuotaError{}), MatchError(HavePrefix(text)))
	}

	It("admit as many of twenty calls at once as there is room for, on each thread and in the namespace", func(ctx SpecContext) {
		var group sync.WaitGroup
		var admitted [2]atomic.Int64
		for i := range 40 {
			t := []*store.Thread{parent, other}[i%2]
			group.Go(func() {
				defer GinkgoRecover()
				if err := schedule(ctx, t, fmt.Sprint("c", i)); err == nil {
					admitted[i%2].Add(1)
				} else {
					Expect(err).To(refused("the "))
				}
			})
		}
		group.Wait()
		Expect(admitted[0].Load() + admitted[1].Load()).To(BeEquivalentTo(5))
		for i := range admitted {
			Expect(admitted[i].Load()).To(BeNumerically("~", 2.5, 0.5), "3 and 2")
		}
		Expect(lists.Load()).To(BeZero(), "nothing is listed to count it")
	})

	It("say which quota is used up, and what to do", func(ctx SpecContext) {
		for i := range 3 {
			Expect(schedule(ctx, parent, fmt.Sprint("c", i))).To(Succeed())
		}
		Expect(schedule(ctx, parent, "c3")).To(MatchError(fmt.Sprintf("the thread %q has 3 ScheduledEffects that have not ended, and its quota is 3: "+
			"remove some with removeScheduledEffect, wait until they have ended, or raise --thread-effects of the manager", parent.Name)))
		Expect(schedule(ctx, parent, "c2")).To(Succeed(), "a repeat of a call that was admitted")
		for i := range 2 {
			Expect(schedule(ctx, other, fmt.Sprint("o", i))).To(Succeed())
		}
		Expect(schedule(ctx, other, "o2")).To(refused(fmt.Sprintf("the namespace %q has 5 ScheduledEffects", kubetest.Namespace)))
	})

	It("count what the cache shows, until it has ended or is gone", func(ctx SpecContext) {
		a, b := object("a", parent.Name), object("b", parent.Name)
		quota.OnAdd(a, true)
		quota.OnAdd(b, true)
		for i := range 3 {
			quota.OnAdd(object(fmt.Sprint("declared", i), ""), true)
		}
		Expect(schedule(ctx, other, "o0")).To(refused("the namespace"))
		ended := b.DeepCopy()
		ended.Status.CompletionTime = ptr.To(metav1.Now())
		quota.OnUpdate(b, ended)
		Expect(schedule(ctx, other, "o0")).To(Succeed())
		Expect(schedule(ctx, other, "o1")).To(refused("the namespace"))
		quota.OnDelete(ended)
		Expect(schedule(ctx, other, "o1")).To(refused("the namespace"), "it did not count")
		quota.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: a})
		Expect(schedule(ctx, other, "o1")).To(Succeed())
	})

	It("of a ThreadQuota count what the cache shows, and what was claimed and it does not show yet", Label("K8S-11"), func(ctx SpecContext) {
		port.WithQuotas(func(string) store.Quotas {
			return store.Quotas{store.QuotaEffects: {Hard: 4, By: `ThreadQuota "team"`}}
		})
		quota.PerThread, quota.PerNamespace = 0, 0
		for i := range 2 {
			quota.OnAdd(object(fmt.Sprint("declared", i), ""), true)
		}
		Expect(schedule(ctx, parent, "c0")).To(Succeed())
		var list skeinv1.ScheduledEffectList
		Expect(cluster.List(ctx, &list)).To(Succeed())
		quota.OnAdd(&list.Items[0], false)
		lists.Store(0)
		Expect(schedule(ctx, parent, "c1")).To(Succeed(), "c0 counts once")
		Expect(schedule(ctx, parent, "c2")).To(MatchError(ContainSubstring("4")))
		Expect(port.CountPending(ctx, kubetest.Namespace)).To(BeEquivalentTo(3))
		Expect(lists.Load()).To(BeZero(), "nothing is listed to count it")
		quota.OnDelete(object("declared0", ""))
		Expect(schedule(ctx, parent, "c2")).To(Succeed())
	})

	It("count an object once that was created here and that the cache shows later", func(ctx SpecContext) {
		Expect(schedule(ctx, parent, "c0")).To(Succeed())
		var list skeinv1.ScheduledEffectList
		Expect(cluster.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		quota.OnAdd(&list.Items[0], false)
		Expect(schedule(ctx, parent, "c1")).To(Succeed())
		Expect(schedule(ctx, parent, "c2")).To(Succeed())
		Expect(schedule(ctx, parent, "c3")).To(refused("the thread"))
	})

	It("do not count what was not created, nor for long what the cache never shows", func(ctx SpecContext) {
		refuse.Store(true)
		for i := range 9 {
			Expect(schedule(ctx, parent, fmt.Sprint("c", i))).To(MatchError(ContainSubstring("not now")))
		}
		refuse.Store(false)
		for i := range 3 {
			Expect(schedule(ctx, parent, fmt.Sprint("c", i))).To(Succeed())
		}
		clock.SetTime(clock.Now().Add(time.Minute))
		Expect(schedule(ctx, parent, "c3")).To(refused("the thread"))
		clock.SetTime(clock.Now().Add(time.Second))
		Expect(schedule(ctx, parent, "c3")).To(Succeed())
	})
})
