package scheduledeffect_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The scheduledeffect controller", func() {
	var (
		e      *Env
		r      *scheduledeffect.Reconciler
		thread *skeinv1.Thread
	)
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		r = newReconciler(e)
		thread = &skeinv1.Thread{ObjectMeta: Meta("t")}
	})

	after := func(d time.Duration) func(*skeinv1.ScheduledEffect) {
		return func(s *skeinv1.ScheduledEffect) { s.Spec.At, s.Spec.After = nil, &metav1.Duration{Duration: d} }
	}

	It("fires nothing before a restore has brought what it fired", Label("K8S-09"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e, func(s *skeinv1.ScheduledEffect) {
			s.Spec.At = ptr.To(skeinv1.NewTimestamp(Start.Add(-time.Minute)))
			s.Annotations = map[string]string{skeinv1.AnnotationRestoring: "b1"}
		})
		e.Writes()
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(BeEmpty())
		Expect(e.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.UID)})).To(BeEmpty())
	})

	It("records the firing exactly when it is due, and shows how the handler ended", Label("EFF-01", "EFF-04"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		result := Reconcile(ctx, r, s)
		Expect(result.RequeueAfter).To(Equal(10*time.Second), "it shows that it is pending at once, as that will last")
		Expect(*result.Priority).To(BeNumerically(">", 0))
		Get(ctx, e, s)
		Expect(s.Status).To(And(HaveField("Phase", "Pending"), HaveField("ScheduledAt", Start.Add(10*time.Second).UnixMicro())))
		Expect(ready(s)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(metav1.IsControlledBy(s, thread)).To(BeTrue())

		e.Clock.Step(10*time.Second - time.Microsecond)
		Reconcile(ctx, r, s)
		Expect(e.Engine.EffectsWoke).To(BeZero())
		e.Clock.Step(time.Microsecond)
		e.Writes()
		Reconcile(ctx, r, s)
		Expect(e.Engine.EffectsWoke).To(Equal(1))
		due := Start.Add(10 * time.Second)
		Expect(*firingFor(ctx, e, thread, s, due)).To(And(HaveField("Status", store.FiringPending), HaveField("ThreadID", string(thread.UID)), HaveField("Effect", "remind_me"), HaveField("HookDepth", 3),
			HaveField("Args", MatchJSON(`{"x":1}`)), HaveField("Name", "s"), HaveField("Namespace", Namespace)))

		e.Clock.Step(50 * time.Millisecond)
		Finish(ctx, e, s, store.FiringSucceeded, "")
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 1}), "one that is over soon makes one write more")
		Get(ctx, e, s)
		Expect(s.Status).To(And(HaveField("Phase", "Succeeded"), HaveField("FiredAt", BeNumerically(">=", s.Status.ScheduledAt))))
		Expect(meta.IsStatusConditionTrue(s.Status.Conditions, skeinv1.ConditionFired)).To(BeTrue())
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonSucceeded))))
	})

	It("shows that it is under way after ten seconds, and costs one write when it ends before", Label("EFF-01", "K8S-07"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		Reconcile(ctx, r, s)
		e.Clock.Step(10 * time.Second)
		e.Writes()
		Expect(Reconcile(ctx, r, s).RequeueAfter).To(Equal(10 * time.Second))
		e.Clock.Step(9 * time.Second)
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(BeEmpty())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		Get(ctx, e, s)
		Expect(s.Status.Phase).To(Equal("Fired"))
		Finish(ctx, e, s, store.FiringSucceeded, "")
		Reconcile(ctx, r, s)
		Get(ctx, e, s)
		Expect(s.Status.Phase).To(Equal("Succeeded"), "the end is shown at once")
		Expect(e.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 2}))
	})

	It("is not late by the time that its status takes to write", Label("EFF-04"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		e.Fail(func(verb string, _ client.Object) error {
			if verb == "status" {
				e.Clock.Step(400 * time.Millisecond)
			}
			return nil
		})
		Expect(Reconcile(ctx, r, s).RequeueAfter).To(Equal(9600 * time.Millisecond))
	})

	It("fires once over crashes of the manager", Label("EFF-04"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e, after(0))
		for range 5 { // each stands for a manager that dies after one reconcile
			_, _ = newReconciler(e).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			e.Clock.Step(1500 * time.Millisecond)
		}
		Expect(e.Engine.EffectsWoke).To(Equal(1))
		firings, err := e.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{s.Namespace: 10})
		Expect(err).NotTo(HaveOccurred())
		Expect(firings).To(HaveLen(1))
	})

	It("counts a delay from when it saw the object, and keeps to that", Label("EFF-01"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		e.Clock.Step(300 * time.Millisecond) // the object's time is rounded down to the second
		s := declareEffect(ctx, e, after(3*time.Second))
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.ScheduledAt).To(Equal(Start.Add(3300 * time.Millisecond).UnixMicro()))
		e.Clock.Step(2 * time.Second)
		Expect(Reconcile(ctx, newReconciler(e), s).RequeueAfter).To(Equal(time.Second))
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		firingFor(ctx, e, thread, s, Start.Add(3300*time.Millisecond))
	})

	It("is late, but fires, after the manager was away", func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e, after(3*time.Second))
		e.Clock.Step(time.Hour)
		Reconcile(ctx, r, s)
		Reconcile(ctx, r, s)
		firingFor(ctx, e, thread, s, Start.Add(4*time.Second))
	})

	It("says what is missing, fires nothing meanwhile, and heals", Label("K8S-02", "EFF-01"), func(ctx SpecContext) {
		s := declareEffect(ctx, e)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Thread "t"`)))))
		e.Create(ctx, thread)
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: string(thread.UID), Namespace: Namespace, Name: "t", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring(`Effect "remind-me" does not exist`))))
		effect := &skeinv1.Effect{ObjectMeta: Meta("remind-me")}
		e.Create(ctx, effect)
		e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonCompileFailed, "x.ts:1:1: no")
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotReady), HaveField("Message", ContainSubstring("x.ts:1:1")))))
		Expect(e.Engine.EffectsWoke).To(BeZero())
		e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		Reconcile(ctx, r, s)
		Expect(e.Engine.EffectsWoke).To(Equal(1))
	})

	It("says that its arguments are over the limit, and does not fire", Label("EFF-01"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Args = &runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)}
		})
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("spec.args: the arguments have 1048584 bytes, more than the limit")))))
		Expect(e.Engine.EffectsWoke).To(BeZero())
	})

	It("is canceled when the thread is terminated before it was due", Label("EFF-06"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		Reconcile(ctx, r, s)
		Expect(e.Store.Apply(ctx, string(thread.UID), nil, &store.Terminate{})).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Get(ctx, e, s)
		Expect(s.Status.Phase).To(Equal("Canceled"))
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(HaveField("Reason", skeinv1.ReasonCanceled)))
		Expect(e.Engine.EffectsWoke).To(BeZero())
	})

	It("that has fired shows how that ended when its thread is terminated", Label("EFF-04", "EFF-06"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		e.Clock.Step(10 * time.Second)
		Reconcile(ctx, r, s)
		Expect(e.Store.Apply(ctx, string(thread.UID), nil, &store.Terminate{})).To(Succeed())
		e.Clock.Step(11 * time.Second)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Phase).To(Equal("Fired"))
		Finish(ctx, e, s, store.FiringCanceled, "the thread is terminated")
		Reconcile(ctx, r, s)
		Get(ctx, e, s)
		Expect(s.Status.Phase).To(Equal("Canceled"))
		Expect(s.Status.CompletionTime).NotTo(BeNil(), "its time to live begins")
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonCanceled), HaveField("Message", "the firing was canceled before it had ended: kubectl skein effect history s says why"))))
	})

	It("shows that the handler failed, and where to read why, without what it said", Label("K8S-07"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		e.Clock.Step(10 * time.Second)
		Reconcile(ctx, r, s)
		Finish(ctx, e, s, store.FiringFailed, "Error: no tea")
		Reconcile(ctx, r, s)
		Get(ctx, e, s)
		Expect(s.Status.Phase).To(Equal("Failed"))
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonFailed), HaveField("Message", "the handler failed: kubectl skein effect history s says why"))))
	})

	It("deletes the object when it has been finished for its time", func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareEffect(ctx, e)
		e.Clock.Step(10 * time.Second)
		Reconcile(ctx, r, s)
		Finish(ctx, e, s, store.FiringSucceeded, "")
		Reconcile(ctx, r, s)
		e.Writes()
		Expect(Reconcile(ctx, r, s).RequeueAfter).To(Equal(time.Minute))
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(Equal(map[string]int{"delete ScheduledEffect": 1}))
		Expect(apierrors.IsNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s))).To(BeTrue())
		Reconcile(ctx, r, s)
	})

	It("that code scheduled has its end written, and before that only what is wrong", Label("EFF-01", "K8S-07"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		byCode := func(s *skeinv1.ScheduledEffect) {
			s.Annotations = map[string]string{skeinv1.AnnotationIdempotencyKey: "call-1"}
			s.Labels = map[string]string{skeinv1.LabelThreadID: string(thread.UID)}
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("t", string(thread.UID))}
		}
		s := declareEffect(ctx, e, byCode)
		e.Writes()
		Expect(Reconcile(ctx, r, s).RequeueAfter).To(Equal(10 * time.Second))
		e.Clock.Step(10 * time.Second)
		Reconcile(ctx, r, s)
		Finish(ctx, e, s, store.FiringSucceeded, "")
		Reconcile(ctx, r, s)
		Get(ctx, e, s)
		Expect(s.Status.Phase).To(Equal("Succeeded"))
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 1, "delete ScheduledEffect": 1}))

		unknown := declareEffect(ctx, e, byCode, func(s *skeinv1.ScheduledEffect) { s.Name, s.UID, s.Spec.Effect = "unknown", "unknown", "gone" })
		Reconcile(ctx, r, unknown)
		Expect(e.Writes()).To(HaveKeyWithValue("status ScheduledEffect", 1))
		Get(ctx, e, unknown)
		Expect(ready(unknown)).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
	})

	It("shows its end at once, or when it has waited for ten seconds while many others are under way", Label("EFF-01", "K8S-07"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		var all []*skeinv1.ScheduledEffect
		for n := range 102 {
			all = append(all, declareEffect(ctx, e, func(s *skeinv1.ScheduledEffect) {
				s.Name, s.UID = fmt.Sprintf("s-%d", n), types.UID(fmt.Sprintf("s-%d", n))
			}))
			Reconcile(ctx, r, all[n])
		}
		e.Clock.Step(10 * time.Second)
		for _, s := range all {
			Reconcile(ctx, r, s)
		}
		Expect(e.Store.ClaimFirings(ctx, "engine", time.Hour, map[string]int{Namespace: len(all)})).To(HaveLen(len(all)))
		ends := func(n int) *skeinv1.ScheduledEffect {
			GinkgoHelper()
			Expect(e.Store.FinishFiring(ctx, store.FiringEnd{Key: firingFor(ctx, e, thread, all[n], Start.Add(10*time.Second)).Key(), Epoch: 1, Status: store.FiringSucceeded})).To(Succeed())
			Reconcile(ctx, r, all[n])
			return Get(ctx, e, all[n])
		}
		e.Clock.Step(time.Second)
		Expect(ends(0).Status.CompletionTime).To(BeNil(), "101 are under way")
		Expect(ends(1).Status.Phase).To(Equal("Succeeded"), "100 are under way")
		e.Clock.Step(9 * time.Second)
		Reconcile(ctx, r, all[0])
		Expect(Get(ctx, e, all[0]).Status.Phase).To(Equal("Succeeded"))
	})

	It("fires with arguments that were stored for it, and with no other's", Label("EFF-01", "K8S-07"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		own := scheduleByRun(ctx, e, thread)
		Expect(own.Spec.ArgsRef).NotTo(BeEmpty())
		other := &skeinv1.Thread{ObjectMeta: Meta("other")}
		e.Create(ctx, other)
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: string(other.UID), Namespace: Namespace, Name: "other", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		for i, of := range []string{"t", "other"} { // of the same thread and of another, declared as a run does it
			s := declareEffect(ctx, e, func(s *skeinv1.ScheduledEffect) {
				s.Name, s.Annotations, s.Labels = fmt.Sprint("spy-", i), own.Annotations, map[string]string{skeinv1.LabelThreadID: string(thread.UID)}
				s.Spec.ThreadRef.Name, s.Spec.Args, s.Spec.ArgsRef = of, nil, own.Spec.ArgsRef
				if of == "other" {
					s.Labels[skeinv1.LabelThreadID] = string(other.UID)
				}
			})
			Reconcile(ctx, r, s)
			e.Clock.Step(10 * time.Second)
			Reconcile(ctx, r, s)
			Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", fmt.Sprintf(
				"spec.argsRef names arguments that were not stored for this effect of Thread %q: delete this ScheduledEffect, and create it with spec.args", of)))))
			Expect(e.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.UID)})).To(BeEmpty())
		}
		Expect(e.Store.EffectArgs(ctx, string(thread.UID), own.Spec.ArgsRef)).To(MatchJSON(`{"x":2}`))
	})

	It("keeps what is stored of its firing for an hour, and then as long as its object", Label("EFF-01"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := scheduleByRun(ctx, e, thread)
		stored := func() []store.Firing {
			GinkgoHelper()
			all, err := e.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.UID)})
			Expect(err).NotTo(HaveOccurred())
			return all
		}
		Reconcile(ctx, r, s)
		e.Clock.Step(10 * time.Second)
		Reconcile(ctx, r, s)
		Expect(stored()).To(ConsistOf(HaveField("Args", MatchJSON(`{"x":2}`))))
		_, err := e.Store.EffectArgs(ctx, string(thread.UID), s.Spec.ArgsRef)
		Expect(err).To(MatchError(store.ErrNotFound), "the firing has them")
		Finish(ctx, e, s, store.FiringSucceeded, "")
		Reconcile(ctx, r, s)
		e.Clock.Step(2 * time.Hour)
		Expect(r.Sweep(ctx)).To(Succeed())
		Expect(stored()).To(HaveLen(1), "its object is there")
		e.Clock.Step(-2 * time.Hour)
		Expect(e.Client.Delete(ctx, s)).To(Succeed())
		e.Clock.Step(59 * time.Minute)
		Expect(r.Sweep(ctx)).To(Succeed())
		Expect(stored()).To(HaveLen(1), "a replica that stood still may not know that it has fired")
		e.Clock.Step(2 * time.Minute)
		Expect(r.Sweep(ctx)).To(Succeed())
		Expect(stored()).To(BeEmpty())
	})

	It("deletes what a purged thread scheduled, although nothing owns it any more", Label("EFF-06", "THR-09"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s, own := declareOrphan(ctx, e, thread), &skeinv1.ScheduledEffect{ObjectMeta: Meta("declared")}
		s.DeepCopy().Spec.DeepCopyInto(&own.Spec)
		e.Create(ctx, own)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.CompletionTime).To(BeNil(), "it waits")

		Expect(e.Store.PurgeThread(ctx, string(thread.UID))).Error().NotTo(HaveOccurred())
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).DeletionTimestamp).To(BeNil(), "the Thread is there: it is not stored yet, or the garbage collector is about it")
		Expect(e.Client.Delete(ctx, thread)).To(Succeed())
		e.Create(ctx, &skeinv1.Thread{ObjectMeta: Meta("t")}) // another one, of the same name
		Reconcile(ctx, r, s)
		Expect(apierrors.IsNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s))).To(BeTrue())
		Reconcile(ctx, r, own)
		Expect(Get(ctx, e, own).DeletionTimestamp).To(BeNil(), "a person declared it")
	})

	It("fires nothing that a retained thread scheduled for another Thread of its name", Label("EFF-06", "THR-09"), func(ctx SpecContext) {
		setUp(ctx, e, thread)
		s := declareOrphan(ctx, e, thread)
		Expect(e.Store.Apply(ctx, string(thread.UID), nil, &store.Retain{})).To(Succeed())
		Expect(e.Client.Delete(ctx, thread)).To(Succeed())
		other := &skeinv1.Thread{ObjectMeta: Meta("t")}
		e.Create(ctx, other)
		Expect(e.Store.CreateThread(ctx, store.Thread{ID: string(other.UID), Namespace: Namespace, Name: "t", Agent: "a"})).Error().NotTo(HaveOccurred())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Thread "t" is another one`)))))
		Expect(e.Engine.EffectsWoke).To(BeZero())
		Expect(metav1.GetControllerOf(s)).To(BeNil())
	})
})
