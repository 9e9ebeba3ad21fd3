package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
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

var _ = Describe("A repeat of a call that scheduled an effect", Label("EFF-01", "EFF-04", "MSG-10"), func() {
	var (
		cluster client.Client
		db      store.Store
		port    *kube.Effects
		thread  *store.Thread
		down    atomic.Bool // the API server creates nothing
	)
	BeforeEach(func(ctx SpecContext) {
		var uids atomic.Int64
		down.Store(false)
		cluster = kubetest.Cluster(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if down.Load() {
					return fmt.Errorf("not now")
				}
				o.SetUID(types.UID(fmt.Sprint("uid-", uids.Add(1))))
				return c.Create(ctx, o, opts...)
			},
		}, &skeinv1.Effect{ObjectMeta: kubetest.Meta("remind")}, &skeinv1.Effect{ObjectMeta: kubetest.Meta("count")})
		st, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(st.Close)
		db = st
		thread = &store.Thread{ID: "t", Namespace: kubetest.Namespace, Name: "t", Agent: "a"}
		_, _, err = db.CreateThread(ctx, *thread)
		Expect(err).NotTo(HaveOccurred())
		port = kube.NewEffects(cluster, cluster, db, testingclock.NewFakePassiveClock(time.Now()), kube.NewEffectQuota(0, 0))
	})
	schedule := func(ctx context.Context, cause, name string) (string, error) {
		return port.Schedule(ctx, thread, ports.EffectRequest{Cause: cause, Name: name, Args: json.RawMessage(`{"x":1}`)})
	}
	objects := func(ctx context.Context) []skeinv1.ScheduledEffect {
		GinkgoHelper()
		var list skeinv1.ScheduledEffectList
		Expect(cluster.List(ctx, &list)).To(Succeed())
		return list.Items
	}
	scheduled := func(ctx context.Context, cause, name string) string {
		GinkgoHelper()
		id, err := schedule(ctx, cause, name)
		Expect(err).NotTo(HaveOccurred())
		return id
	}
	// expire deletes the objects, as their TTL does once they have ended.
	expire := func(ctx context.Context) {
		GinkgoHelper()
		Expect(cluster.DeleteAllOf(ctx, &skeinv1.ScheduledEffect{}, client.InNamespace(kubetest.Namespace))).To(Succeed())
	}

	It("schedules nothing new after the object of the first one is gone", func(ctx SpecContext) {
		id := scheduled(ctx, "k", "remind")
		expire(ctx)
		Expect(scheduled(ctx, "k", "remind")).To(Equal(id))
		Expect(objects(ctx)).To(BeEmpty())
		Expect(scheduled(ctx, "other", "remind")).NotTo(Equal(id))
		Expect(scheduled(ctx, "k", "count")).NotTo(Equal(id), "another effect")
		Expect(objects(ctx)).To(HaveLen(2))
	})

	It("schedules nothing new after the first one was removed", Label("EFF-05"), func(ctx SpecContext) {
		id := scheduled(ctx, "k", "remind")
		Expect(port.Remove(ctx, thread, id)).To(BeTrue())
		Expect(scheduled(ctx, "k", "remind")).To(Equal(id))
		Expect(objects(ctx)).To(BeEmpty())
	})

	It("schedules it when the first one could not", func(ctx SpecContext) {
		down.Store(true)
		_, err := schedule(ctx, "k", "remind")
		Expect(err).To(MatchError(ContainSubstring("not now")))
		down.Store(false)
		Expect(scheduled(ctx, "k", "remind")).To(Equal("uid-1"))
	})

	It("has the result of one that was cut off after it had created the object", func(ctx SpecContext) {
		cut, cancel := context.WithCancel(ctx)
		port = kube.NewEffects(cluster, cluster, cutStore{db, cancel}, testingclock.NewFakePassiveClock(time.Now()), kube.NewEffectQuota(0, 0))
		_, err := schedule(cut, "k", "remind")
		Expect(err).To(HaveOccurred())
		Expect(objects(ctx)).To(HaveLen(1))
		port = kube.NewEffects(cluster, cluster, db, testingclock.NewFakePassiveClock(time.Now()), kube.NewEffectQuota(0, 0))
		id := scheduled(ctx, "k", "remind")
		expire(ctx)
		Expect(scheduled(ctx, "k", "remind")).To(Equal(id))
		Expect(objects(ctx)).To(BeEmpty())
	})

	It("has the id that the object got by a restore", Label("K8S-09"), func(ctx SpecContext) {
		scheduled(ctx, "k", "remind")
		restored := objects(ctx)[0]
		expire(ctx)
		restored.ResourceVersion = ""
		Expect(cluster.Create(ctx, &restored)).To(Succeed())
		Expect(scheduled(ctx, "k", "remind")).To(Equal(string(restored.UID)))
		Expect(objects(ctx)).To(HaveLen(1))
	})
})

// cutStore is a store whose caller is cut off when it applies something.
type cutStore struct {
	store.Store
	cut func()
}

func (s cutStore) Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error {
	s.cut()
	return s.Store.Apply(ctx, threadID, fence, ops...)
}
