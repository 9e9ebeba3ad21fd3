package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// argsRead counts which arguments are read.
type argsRead struct {
	kube.EffectStore
	read int
}

func (a *argsRead) EffectArgs(ctx context.Context, threadID, id string) (json.RawMessage, error) {
	a.read++
	return a.EffectStore.EffectArgs(ctx, threadID, id)
}

var _ = Describe("A page of effects", Label("EFF-01"), func() {
	It("has the same effects as the list, and reads the arguments of no others", func(ctx SpecContext) {
		uid := 0
		c := kubetest.Cluster(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			uid++
			o.SetUID(types.UID(fmt.Sprint("uid-", uid)))
			return c.Create(ctx, o, opts...)
		}})
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		counted := &argsRead{EffectStore: db}
		port := kube.NewEffects(c, c, counted, testingclock.NewFakePassiveClock(time.Unix(1, 0)), kube.NewEffectQuota(0, 0))
		Expect(c.Create(ctx, &skeinv1.Effect{ObjectMeta: kubetest.Meta("later")})).To(Succeed())
		for i := range 6 {
			_, err := port.Schedule(ctx, parent, ports.EffectRequest{
				Cause: fmt.Sprint("c", i), Name: "later", Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), Delay: time.Duration(6-i) * time.Hour,
			})
			Expect(err).NotTo(HaveOccurred())
		}
		all, err := port.List(ctx, parent, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveExactElements(HaveField("Args", MatchJSON(`{"n":5}`)), HaveField("Args", MatchJSON(`{"n":4}`)),
			HaveField("Args", MatchJSON(`{"n":3}`)), HaveField("Args", MatchJSON(`{"n":2}`)), HaveField("Args", MatchJSON(`{"n":1}`)), HaveField("Args", MatchJSON(`{"n":0}`))))

		By("leaving out an effect whose arguments are lost from every page")
		var lost skeinv1.ScheduledEffect
		var objects skeinv1.ScheduledEffectList
		Expect(c.List(ctx, &objects)).To(Succeed())
		for _, o := range objects.Items {
			if string(o.UID) == all[0].ID {
				lost = o
			}
		}
		Expect(db.RemoveEffectArgs(ctx, parent.ID, lost.Spec.ArgsRef)).To(Succeed())
		page := func(q ports.EffectPage) (ids []string, more bool) {
			GinkgoHelper()
			counted.read = 0
			effects, more, err := port.Page(ctx, parent, q)
			Expect(err).NotTo(HaveOccurred())
			Expect(counted.read).To(Equal(len(effects)))
			for _, e := range effects {
				ids = append(ids, e.ID)
			}
			return ids, more
		}
		for offset, want := range []ports.ScheduledEffect{all[1], all[2], all[3], all[4], all[5]} {
			ids, more := page(ports.EffectPage{Name: "later", Limit: 1, Offset: offset, MaxBytes: 1 << 20})
			Expect(ids).To(Equal([]string{want.ID}))
			Expect(more).To(Equal(offset < 4))
		}
		ids, more := page(ports.EffectPage{Limit: 10, Offset: 5, MaxBytes: 1 << 20})
		Expect(ids).To(BeEmpty())
		Expect(more).To(BeFalse())

		By("ending a page early once its arguments are large")
		ids, more = page(ports.EffectPage{Limit: 10, Offset: 1, MaxBytes: 8})
		Expect(ids).To(Equal([]string{all[2].ID, all[3].ID}))
		Expect(more).To(BeTrue())
	})
})
