package scheduledeffect_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An effect that code scheduled", func() {
	It("keeps its arguments when it is suspended and resumed", Label("EFF-01", "EFF-03"), func(ctx SpecContext) {
		w := newWorld(ctx)
		t := w.thread(ctx)
		row, err := w.Store.Thread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		_, err = kube.NewEffects(w.Client, w.Client, w.Store, w.Clock, kube.NewEffectQuota(0, 0)).Schedule(ctx, row,
			ports.EffectRequest{Cause: "call-1", Name: "tick", Args: json.RawMessage(`{"x":1}`), Delay: time.Minute})
		Expect(err).NotTo(HaveOccurred())
		var list skeinv1.ScheduledEffectList
		Expect(w.Client.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		w.s = &list.Items[0]
		w.s.Spec.Suspend = true
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, time.Second)
		Expect(w.s.Status.Phase).To(Equal("Suspended"))
		w.s.Spec.Suspend = false
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, time.Minute)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Args", MatchJSON(`{"x":1}`))))
		_, err = w.Store.EffectArgs(ctx, row.ID, w.s.Spec.ArgsRef)
		Expect(err).To(MatchError(store.ErrNotFound), "the firing has them")
	})
})

var _ = Describe("A schedule whose Thread is refused", Label("EFF-03", "EFF-07"), func() {
	DescribeTable("says so, is not late for its other due times, and creates it when there is room", func(ctx SpecContext, refusal error, says string) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect = ""
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
				return refusal
			}
			return nil
		})
		w.pass(ctx, 3*time.Minute)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule running", "2m0s schedule running", "3m0s schedule running"}))
		Expect(w.firings(ctx)).To(HaveEach(HaveField("Waiting", ContainSubstring(says))))
		Expect(w.s.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Reason", skeinv1.ReasonWaiting), HaveField("Message", ContainSubstring(says)))))
		w.Fail(nil)
		w.pass(ctx, 35*time.Second)
		var list skeinv1.ThreadList
		Expect(w.Client.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(3))
		Expect(w.firings(ctx)).To(HaveEach(HaveField("Waiting", "")))
	},
		Entry("by a quota", apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, "s", fmt.Errorf("exceeded quota")), "exceeded quota"),
		Entry("by a webhook that answers that it exists", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonAlreadyExists, Message: `admission webhook "no.example.com" denied the request: no`,
		}}, "denied the request: no"),
	)

	It("does not create it after its deadline", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.StartingDeadlineSeconds = "", ptr.To(int64(20))
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, "s", fmt.Errorf("exceeded quota"))
			}
			return nil
		})
		w.pass(ctx, 110*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringCanceled), HaveField("Error", And(ContainSubstring("within 20s"), ContainSubstring("exceeded quota"))))))
		Expect(w.skipped(ctx)).To(ConsistOf(HaveField("Reason", skeinv1.ReasonMissed)))
	})
})

var _ = Describe("Firings by hand", Label("EFF-08"), func() {
	at := func(d time.Duration) string { return Start.Add(d).Format(time.RFC3339Nano) }
	requests := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, at(time.Duration(i)*time.Nanosecond)) // they differ by less than the store tells apart
		}
		return strings.Join(all, ",")
	}

	DescribeTable("are as many as were asked for at once, as the concurrency policy says", func(ctx SpecContext, policy skeinv1.ConcurrencyPolicy, under, skipped int) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ConcurrencyPolicy = []string{"@yearly"}, policy
		})
		w.ask(ctx, skeinv1.AnnotationRunAt, requests(20))
		w.settle(ctx)
		Expect(w.s.Annotations).To(BeEmpty())
		active, err := w.Store.Firings(ctx, store.FiringQuery{EffectID: string(w.s.UID), Active: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(active).To(HaveLen(under))
		Expect(w.skipped(ctx)).To(HaveLen(min(skipped, 10)), "as many as the history keeps")
		Expect(w.s.Status.Skipped).To(Equal(int64(skipped)))
		n := len(w.firings(ctx))
		w.ask(ctx, skeinv1.AnnotationRunAt, requests(20))
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveLen(n), "a repeat has the first result")
		Expect(w.s.Status.Skipped).To(Equal(int64(skipped)))
	},
		Entry("Allow", skeinv1.ConcurrencyAllow, 20, 0),
		Entry("Forbid", skeinv1.ConcurrencyForbid, 1, 19),
		Entry("Replace", skeinv1.ConcurrencyReplace, 1, 0),
		Entry("Queue", skeinv1.ConcurrencyQueue, 2, 18),
	)

	It("are once for each key, and at the present time only", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx)
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0)+"/a,"+at(time.Microsecond)+"/a,"+at(0)+"/b,2099-01-01T00:00:00Z,nonsense")
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveLen(2))
		w.ask(ctx, skeinv1.AnnotationRunAt, at(5*time.Second)+"/a")
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveLen(2))
	})

	DescribeTable("have an Event that fits an Event when they are wrong", func(ctx SpecContext, value string) {
		w := newWorld(ctx)
		o := w.r.Options
		o.Recorder = w.Recorder
		w.r = scheduledeffect.New(o)
		w.declare(ctx)
		w.ask(ctx, skeinv1.AnnotationRunAt, value)
		w.settle(ctx)
		Expect(w.s.Annotations).To(BeEmpty())
		var event string
		Expect(w.Recorder.Events).To(Receive(&event))
		Expect(event).To(And(HavePrefix("Warning InvalidRequest annotation skein.dev/run-at: "), ContainSubstring("write the present time, such as")))
		Expect(len(event)).To(BeNumerically("<=", 1024), "the API server refuses a longer note")
	},
		Entry("long", strings.Repeat("tomorrow", 1000)),
		Entry("long, and of what is quoted at length", strings.Repeat("\U0010ffff", 1000)),
		Entry("with a long key", at(0)+"/"+strings.Repeat("k", 5000)),
	)

	It("backfill what is later than the deadline", Label("EFF-08"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.StartingDeadlineSeconds = ptr.To(int64(20)) })
		w.ask(ctx, skeinv1.AnnotationBackfill, at(-3*time.Minute)+"/"+at(-2*time.Minute))
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(Equal([]string{"-3m0s backfill pending", "-2m0s backfill pending", "1m0s schedule pending"}))
		var deadlines []time.Duration
		for _, f := range w.firings(ctx) {
			target, err := effects.TargetOf(&f)
			Expect(err).NotTo(HaveOccurred())
			deadlines = append(deadlines, target.Deadline)
		}
		Expect(deadlines).To(Equal([]time.Duration{0, 0, 20 * time.Second}))
	})

	It("wait for the agent of a template, however long ago they were due", Label("EFF-08"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ThreadTemplate.Spec.AgentRef.Name, s.Spec.StartingDeadlineSeconds = "late", ptr.To(int64(20))
		})
		w.ask(ctx, skeinv1.AnnotationBackfill, at(-3*time.Minute)+"/"+at(-3*time.Minute))
		w.pass(ctx, 40*time.Second)
		Expect(w.fired(ctx)).To(Equal([]string{"-3m0s backfill running"}))
		w.ReadyAgent(ctx, "late")
		w.pass(ctx, 10*time.Second)
		Expect(w.firings(ctx)).To(HaveEach(HaveField("StartedAt", Not(BeZero()))))
	})

	DescribeTable("refuse a range with too many due times at once, however long it is", Label("EFF-08"), func(ctx SpecContext, schedule string) {
		w := newWorld(ctx)
		o := w.r.Options
		o.Recorder = w.Recorder
		w.r = scheduledeffect.New(o)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules = []string{schedule} })
		w.ask(ctx, skeinv1.AnnotationBackfill, "1000-01-01T00:00:00Z/"+at(0))
		w.settle(ctx)
		Expect(w.s.Annotations).To(BeEmpty())
		Expect(w.Recorder.Events).To(Receive(Equal(
			"Warning InvalidRequest annotation skein.dev/backfill: the range has more than 1000 due times: choose a shorter one")))
		Expect(w.firings(ctx)).To(BeEmpty())
	},
		Entry("of an interval", "@every 1m"),
		Entry("of a cron expression", "* * * * *"),
	)

	It("say in the status what became of each", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyForbid })
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0)+"/a,"+at(time.Millisecond)+"/b,"+at(2*time.Millisecond)+"/b,"+at(48*time.Hour)+",soon")
		w.settle(ctx)
		Expect(w.answers(at(0)+"/a", at(time.Millisecond)+"/b", at(2*time.Millisecond)+"/b", at(48*time.Hour), "soon")).To(Equal([]string{
			"1 Fired", "1 Skipped Forbidden an earlier firing was under way", "again: 1 Skipped Forbidden an earlier firing was under way",
			"refused: 2026-03-03T12:00:00Z is not the present time: a run by hand fires now, so write the present time",
			`refused: "soon": write the present time, such as 2027-01-31T09:00:00Z. A slash and a key of at most 128 bytes may follow it`,
		}))
		w.ask(ctx, skeinv1.AnnotationRunAt, at(3*time.Millisecond)+"/b")
		w.settle(ctx)
		Expect(w.answers(at(3*time.Millisecond) + "/b")).To(Equal([]string{"again: 1 Skipped Forbidden an earlier firing was under way"}))
		Expect(w.s.Status.Requests).To(HaveLen(6))
	})

	It("say in the status what became of each due time of a backfill", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.SuccessfulHistoryLimit = ptr.To(int32(1)) })
		for range 4 {
			w.pass(ctx, time.Minute)
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		}
		span := func(from, until time.Duration, key string) string {
			return Start.Add(from).Format(time.RFC3339) + "/" + Start.Add(until).Format(time.RFC3339) + key
		}
		some := span(-2*time.Minute, 3*time.Minute, "/k")
		none, future, many := span(-90*time.Second, -61*time.Second, ""), span(time.Hour, 2*time.Hour, ""), span(-48*time.Hour, 0, "")
		w.ask(ctx, skeinv1.AnnotationBackfill, strings.Join([]string{some, none, future, many, "x"}, ","))
		w.settle(ctx)
		Expect(w.answers(some, none, future, many, "x")).To(Equal([]string{
			"3 Fired; 3 FiredBefore", "refused: the range has no past due time of this schedule", "refused: the range has no past due time of this schedule",
			"refused: the range has more than 1000 due times: choose a shorter one",
			`refused: "x": write the first and the last time with a slash between them, such as 2027-01-01T00:00:00Z/2027-01-31T00:00:00Z`,
		}))
		Expect(w.s.Status.Requests[0].Results[0]).To(And(
			HaveField("Time.Time", BeTemporally("==", Start.Add(-2*time.Minute))), HaveField("Until.Time", BeTemporally("==", Start))))
		w.ask(ctx, skeinv1.AnnotationBackfill, some)
		w.settle(ctx)
		Expect(w.answers(some)).To(Equal([]string{"again: 3 Fired; 3 FiredBefore"}))
		again := span(-2*time.Minute, 3*time.Minute, "/l")
		w.ask(ctx, skeinv1.AnnotationBackfill, again)
		w.settle(ctx)
		Expect(w.answers(again)).To(Equal([]string{"6 FiredBefore"}))
	})

	It("say that a backfill waits in turn, and that nothing matches a selector", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyForbid })
		value := Start.Add(-3*time.Minute).Format(time.RFC3339) + "/" + Start.Format(time.RFC3339)
		w.ask(ctx, skeinv1.AnnotationBackfill, value)
		w.settle(ctx)
		Expect(w.answers(value)).To(Equal([]string{"1 Fired; 3 Queued"}))

		w = newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.ThreadSelector = &metav1.LabelSelector{} })
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0))
		w.settle(ctx)
		Expect(w.answers(at(0))).To(Equal([]string{"refused: no living Thread of the namespace matches spec.threadSelector"}))
	})

	It("have bounded answers, the newest", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx)
		w.ask(ctx, skeinv1.AnnotationRunAt, requests(150))
		w.settle(ctx)
		Expect(w.s.Status.Requests).To(HaveLen(100))
		Expect(w.answers(at(149 * time.Nanosecond))).To(Equal([]string{"1 Fired"}))
	})

	It("keep their answer when its status could not be written at first", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyForbid })
		w.settle(ctx)
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0)+"/a,"+at(time.Millisecond)+"/b")
		failed := false
		w.Fail(func(verb string, o client.Object) error {
			if s, ok := o.(*skeinv1.ScheduledEffect); ok && strings.HasPrefix(verb, "patch") && !failed {
				failed = true
				return apierrors.NewConflict(schema.GroupResource{Resource: "scheduledeffects"}, s.Name, nil)
			}
			return nil
		})
		w.settle(ctx)
		Expect(failed).To(BeTrue())
		Expect(w.s.Annotations).To(BeEmpty())
		Expect(w.answers(at(0)+"/a", at(time.Millisecond)+"/b")).To(Equal([]string{"again: 1 Fired", "again: 1 Skipped Forbidden an earlier firing was under way"}))
	})

	It("keep a request that is added while others are answered", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx)
		w.settle(ctx)
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0))
		added := false
		w.Fail(func(verb string, o client.Object) error {
			if s, ok := o.(*skeinv1.ScheduledEffect); ok && verb == "patch" && !added {
				added = true
				now := Get(ctx, w.Env, &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}})
				now.Annotations[skeinv1.AnnotationRunAt] += "," + at(time.Second)
				return w.Client.Update(ctx, now)
			}
			return nil
		})
		w.settle(ctx)
		Expect(w.s.Annotations).To(BeEmpty())
		Expect(w.firings(ctx)).To(HaveLen(2))
	})

	It("are possible for an effect of one time, beside its own time", func(ctx SpecContext) {
		w := newWorld(ctx)
		row, err := w.Store.Thread(ctx, string(w.thread(ctx).UID))
		Expect(err).NotTo(HaveOccurred())
		port := kube.NewEffects(w.Client, w.Client, w.Store, w.Clock, kube.NewEffectQuota(0, 0))
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, ptr.To(skeinv1.NewTimestamp(Start.Add(time.Minute)))
		})
		w.settle(ctx)
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0))
		w.pass(ctx, 2*time.Second)
		Expect(w.fired(ctx)).To(Equal([]string{"0s manual pending"}))
		Expect(port.List(ctx, row, "")).To(ConsistOf(HaveField("ScheduledAt", Start.Add(time.Minute).UnixMicro())), "its own time is still to come")
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(Equal([]string{"0s manual pending", "1m0s schedule pending"}))
		Expect(port.List(ctx, row, "")).To(BeEmpty())
	})

	It("are no firing of its own time for an effect whose status could not be written at once", Label("EFF-04"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, once(time.Minute), forThread)
		w.settle(ctx)
		tick := Get(ctx, w.Env, &skeinv1.Effect{ObjectMeta: Meta("tick")})
		for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} { // two statuses, and the next waits
			w.SetReady(ctx, tick, &tick.Status.Conditions, status, skeinv1.ReasonReady, "")
			w.settle(ctx)
		}
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0))
		w.settle(ctx)
		Expect(w.s.Status.Phase).To(Equal("Pending"))
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(Equal([]string{"0s manual pending", "1m0s schedule pending"}))
	})

	It("are no firing of its own time for an effect that was restored without its status", Label("EFF-04"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, once(time.Minute), forThread)
		w.ask(ctx, skeinv1.AnnotationRunAt, at(0))
		w.settle(ctx)
		w.s.Status = skeinv1.ScheduledEffectStatus{}
		Expect(w.Client.Status().Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(ConsistOf("0s manual pending", HavePrefix("1m0s ")))
	})

	It("fire nothing again that the history has forgotten", Label("EFF-04"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.SuccessfulHistoryLimit = ptr.To(int32(1)) })
		for range 5 {
			w.pass(ctx, time.Minute)
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		}
		w.pass(ctx, time.Minute)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		n := len(w.firings(ctx))
		Expect(n).To(BeNumerically("<", 5))
		w.ask(ctx, skeinv1.AnnotationBackfill, Start.Add(-time.Minute).Format(time.RFC3339)+"/"+Start.Add(5*time.Minute).Format(time.RFC3339))
		w.settle(ctx)
		Expect(w.fired(ctx)).To(ContainElements("-1m0s backfill pending", "0s backfill pending"), "what was due before the object existed")
		Expect(w.fired(ctx)).NotTo(ContainElement(MatchRegexp("^[1-5]m0s backfill")))
	})
})
