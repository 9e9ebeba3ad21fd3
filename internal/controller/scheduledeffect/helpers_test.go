package scheduledeffect_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

func TestScheduledEffect(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "scheduledeffect controller")
}

// Finish claims the firings of an effect that are due, and records how each ended.
func Finish(ctx context.Context, e *Env, s *skeinv1.ScheduledEffect, status store.FiringStatus, text string) {
	GinkgoHelper()
	claimed, err := e.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{s.Namespace: 100})
	Expect(err).NotTo(HaveOccurred())
	for _, f := range claimed {
		Expect(f.EffectID).To(Equal(string(s.UID)))
		Expect(e.Store.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: status, Error: text, Counts: len(s.Spec.Schedules) > 0})).To(Succeed())
	}
}

// noLists is a client whose cache has no objects to list.
type noLists struct{ client.Client }

func (noLists) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// newReconciler returns a reconciler of ScheduledEffects. It remembers nothing of an earlier one.
func newReconciler(e *Env) *scheduledeffect.Reconciler {
	return scheduledeffect.New(scheduledeffect.Options{Client: e.Client, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
}

// declareSchedule creates the ScheduledEffect s, which fires each minute.
func declareSchedule(ctx context.Context, e *Env, edit ...func(*skeinv1.ScheduledEffectSpec)) *skeinv1.ScheduledEffect {
	GinkgoHelper()
	s := &skeinv1.ScheduledEffect{ObjectMeta: Meta("s"), Spec: skeinv1.ScheduledEffectSpec{Effect: "tick", Schedules: []string{"@every 1m"}}}
	for _, f := range edit {
		f(&s.Spec)
	}
	e.Create(ctx, s)
	return s
}

// duesOf returns the due times of the firings of an effect, with their origin and status, the oldest first.
func duesOf(ctx context.Context, e *Env, s *skeinv1.ScheduledEffect) (out []string) {
	GinkgoHelper()
	all, err := e.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.UID), Limit: 1000})
	Expect(err).NotTo(HaveOccurred())
	for i := len(all) - 1; i >= 0; i-- {
		out = append(out, time.UnixMicro(all[i].Due).UTC().Format("15:04:05")+" "+string(all[i].Origin)+" "+string(all[i].Status))
	}
	return out
}

// skipsOf returns the records of due times of an effect that did not fire.
func skipsOf(ctx context.Context, e *Env, s *skeinv1.ScheduledEffect) []store.EffectSkip {
	GinkgoHelper()
	all, err := e.Store.EffectSkips(ctx, string(s.UID), 100)
	Expect(err).NotTo(HaveOccurred())
	return all
}

// setUp creates a Thread, which is stored, and an Effect that is ready.
func setUp(ctx context.Context, e *Env, thread *skeinv1.Thread) {
	GinkgoHelper()
	effect := &skeinv1.Effect{ObjectMeta: Meta("remind-me")}
	e.Create(ctx, thread, effect)
	e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: string(thread.UID), Namespace: Namespace, Name: "t", Agent: "a"})
	Expect(err).NotTo(HaveOccurred())
}

// declareEffect creates the ScheduledEffect s, which fires for the Thread t in ten seconds.
func declareEffect(ctx context.Context, e *Env, edit ...func(*skeinv1.ScheduledEffect)) *skeinv1.ScheduledEffect {
	GinkgoHelper()
	s := &skeinv1.ScheduledEffect{ObjectMeta: Meta("s"), Spec: skeinv1.ScheduledEffectSpec{
		ThreadRef: &skeinv1.LocalRef{Name: "t"}, Effect: "remind_me", HookDepth: 3, Args: &runtime.RawExtension{Raw: []byte(`{"x":1}`)},
		TTLSecondsAfterFinished: ptr.To(int32(60)), At: ptr.To(skeinv1.NewTimestamp(Start.Add(10 * time.Second)))}}
	for _, f := range edit {
		f(s)
	}
	e.Create(ctx, s)
	return s
}

// firingFor returns the firing of an effect for a thread at a due time.
func firingFor(ctx context.Context, e *Env, thread *skeinv1.Thread, s *skeinv1.ScheduledEffect, due time.Time) *store.Firing {
	GinkgoHelper()
	f, err := e.Store.Firing(ctx, store.FiringKey{EffectID: string(s.UID), Due: due.UnixMicro(), ThreadID: string(thread.UID)})
	Expect(err).NotTo(HaveOccurred())
	return f
}

// ready returns the Ready condition of a ScheduledEffect.
func ready(s *skeinv1.ScheduledEffect) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionReady)
}

// scheduleByRun has a run schedule an effect with arguments, for ten seconds from now.
func scheduleByRun(ctx context.Context, e *Env, thread *skeinv1.Thread) *skeinv1.ScheduledEffect {
	GinkgoHelper()
	row, err := e.Store.Thread(ctx, string(thread.UID))
	Expect(err).NotTo(HaveOccurred())
	_, err = kube.NewEffects(e.Client, e.Client, e.Store, e.Clock, kube.NewEffectQuota(0, 0)).Schedule(ctx, row,
		ports.EffectRequest{Cause: "call", Name: "remind_me", Args: []byte(`{"x":2}`), Delay: 10 * time.Second})
	Expect(err).NotTo(HaveOccurred())
	var list skeinv1.ScheduledEffectList
	Expect(e.Client.List(ctx, &list)).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// declareOrphan creates an effect that a run of the thread scheduled, after --cascade=orphan has taken its owner away.
func declareOrphan(ctx context.Context, e *Env, thread *skeinv1.Thread) *skeinv1.ScheduledEffect {
	GinkgoHelper()
	return declareEffect(ctx, e, func(s *skeinv1.ScheduledEffect) {
		s.Labels = map[string]string{skeinv1.LabelThreadID: string(thread.UID)}
		s.Annotations = map[string]string{skeinv1.AnnotationIdempotencyKey: "cause"}
	})
}
