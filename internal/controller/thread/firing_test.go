package thread_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A Thread that a firing made", Label("EFF-06", "EFF-08"), func() {
	DescribeTable("cancels the firing when it is deleted, with what it has cost so far", func(ctx SpecContext, due int64, policy skeinv1.DeletionPolicy, was store.FiringStatus, want ...any) {
		e, r, _ := newController(ctx)
		e.ReadyAgent(ctx, "a")
		key := store.FiringKey{EffectID: "effect", Due: due}
		for _, other := range []int64{due + 1, due} {
			Expect(e.Store.RecordFiring(ctx, store.Firing{EffectID: "effect", Due: other, Namespace: Namespace, Name: "report", Status: store.FiringRunning})).To(BeTrue())
		}
		t := newThread(ctx, e, effectplan.ThreadName("report", due), func(t *skeinv1.Thread) {
			t.Spec.Message, t.Spec.DeletionPolicy, t.Finalizers = "go", policy, []string{skeinv1.Finalizer}
			t.OwnerReferences = []metav1.OwnerReference{{APIVersion: skeinv1.GroupVersion.String(), Kind: "ScheduledEffect", Name: "report", UID: "effect", Controller: ptr.To(true)}}
		})
		Reconcile(ctx, r, t)
		putRun(ctx, e, t, store.Run{ID: "r", Agent: "a", Status: store.RunRunning, Usage: json.RawMessage(`{"cost":0.5}`)})
		if was != store.FiringRunning {
			Expect(e.Store.EndRunning(ctx, store.FiringEnd{Key: key, Status: was})).To(Succeed())
		}
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Store.Firing(ctx, key)).To(HaveValue(And(HaveField("Cost", 0.5), HaveField("Status", want[0]), HaveField("Error", want[1]))))
		Expect(e.Store.Firing(ctx, store.FiringKey{EffectID: "effect", Due: due + 1})).To(HaveValue(HaveField("Status", store.FiringRunning)))
	},
		Entry("of a whole minute", Start.UnixMicro(), skeinv1.DeletionDelete, store.FiringRunning, store.FiringCanceled, "its Thread was deleted before its run ended"),
		Entry("of a moment", Start.UnixMicro()+7, skeinv1.DeletionDelete, store.FiringRunning, store.FiringCanceled, "its Thread was deleted before its run ended"),
		Entry("and its data stays", Start.UnixMicro(), skeinv1.DeletionRetain, store.FiringRunning, store.FiringCanceled, "its Thread was deleted before its run ended"),
		Entry("unless it has ended", Start.UnixMicro(), skeinv1.DeletionDelete, store.FiringSucceeded, store.FiringSucceeded, ""),
	)
})
