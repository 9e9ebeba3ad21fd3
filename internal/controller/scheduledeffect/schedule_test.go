package scheduledeffect_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A ScheduledEffect with schedules", func() {
	var (
		e *Env
		r *scheduledeffect.Reconciler
	)
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		r = newReconciler(e)
		effect := &skeinv1.Effect{ObjectMeta: Meta("tick")}
		e.Create(ctx, effect)
		e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		e.ReadyAgent(ctx, "analyst")
	})
	// reconcile reconciles until there is nothing more to do at once.
	reconcile := func(ctx context.Context, s *skeinv1.ScheduledEffect) ctrl.Result {
		GinkgoHelper()
		var result ctrl.Result
		for range 10 {
			result = Reconcile(ctx, r, s)
			if result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Millisecond {
				break
			}
		}
		Get(ctx, e, s)
		return result
	}
	// pass lets time pass, a reconcile at each due time, as the workqueue would.
	pass := func(ctx context.Context, s *skeinv1.ScheduledEffect, d time.Duration) {
		GinkgoHelper()
		for end := e.Clock.Now().Add(d); ; {
			result := reconcile(ctx, s)
			rest := end.Sub(e.Clock.Now())
			if rest <= 0 {
				return
			}
			step := rest
			if result.RequeueAfter > 0 && result.RequeueAfter < rest {
				step = result.RequeueAfter
			}
			e.Clock.Step(step)
		}
	}
	clock := func(d time.Duration) string { return Start.Add(d).UTC().Format("15:04:05") }

	It("fires at each due time, once, and shows the next and the last", Label("EFF-03", "EFF-04"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e)
		pass(ctx, s, 150*time.Second)
		Expect(duesOf(ctx, e, s)).To(Equal([]string{clock(time.Minute) + " schedule pending", clock(2*time.Minute) + " schedule pending"}))
		Expect(s.Status).To(And(HaveField("Phase", "Active"), HaveField("Active", int32(2)), HaveField("NextTime.Time", BeTemporally("==", Start.Add(3*time.Minute))),
			HaveField("LastTime.Time", BeTemporally("==", Start.Add(2*time.Minute)))))
		Finish(ctx, e, s, store.FiringSucceeded, "")
		pass(ctx, s, 2*time.Second)
		Expect(s.Status).To(And(HaveField("Active", int32(0)), HaveField("LastOutcome", "Succeeded")))
	})

	It("fires each due time once when its manager crashes after every reconcile", Label("EFF-04"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e)
		for range 40 {
			r = newReconciler(e)
			_, _ = r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			e.Clock.Step(7 * time.Second)
		}
		reconcile(ctx, s)
		Expect(duesOf(ctx, e, s)).To(HaveLen(4))
	})

	It("records what is due before its Effect exists, says what is missing, and heals", Label("EFF-07", "K8S-02"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.Effect = "comes-later" })
		pass(ctx, s, 61*time.Second)
		ready := func() *metav1.Condition { return meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionReady) }
		Expect(ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Effect "comes-later" does not exist`)))))
		Expect(duesOf(ctx, e, s)).To(Equal([]string{clock(time.Minute) + " schedule pending"}), "the engine waits for the Effect")
		effect := &skeinv1.Effect{ObjectMeta: Meta("comes-later")}
		e.Create(ctx, effect)
		e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		pass(ctx, s, 2*time.Second)
		Expect(ready()).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(duesOf(ctx, e, s)).To(HaveLen(1))
	})

	It("counts from now after an edit, and fires nothing again", Label("EFF-03"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e)
		pass(ctx, s, 70*time.Second)
		s.Spec.Schedules = []string{"@every 20s"}
		s.Generation++
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		pass(ctx, s, 20*time.Second)
		Expect(duesOf(ctx, e, s)).To(Equal([]string{clock(time.Minute) + " schedule pending", clock(80*time.Second) + " schedule pending"}))
	})

	It("fires the newest missed time after an outage, and records the others", Label("EFF-05", "EFF-07"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e)
		reconcile(ctx, s)
		e.Clock.Step(time.Hour + 30*time.Second)
		pass(ctx, s, 2*time.Second)
		Expect(duesOf(ctx, e, s)).To(Equal([]string{clock(time.Hour) + " catch-up pending"}))
		Expect(skipsOf(ctx, e, s)).To(ConsistOf(And(HaveField("Count", int64(59)), HaveField("Reason", "Missed"))))
		Expect(s.Status.Skipped).To(Equal(int64(59)))
		Expect(s.Status.LastSkip).To(HaveValue(And(HaveField("Reason", "Missed"), HaveField("Count", int64(59)))))
	})

	DescribeTable("follows its catch-up policy", Label("EFF-05"), func(ctx SpecContext, c *skeinv1.CatchUp, deadline *int64, fired int, missed int) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.CatchUp, spec.StartingDeadlineSeconds = c, deadline })
		reconcile(ctx, s)
		e.Clock.Step(time.Hour + 30*time.Second)
		pass(ctx, s, 2*time.Second)
		Expect(duesOf(ctx, e, s)).To(HaveLen(fired))
		Expect(s.Status.Skipped).To(Equal(int64(missed)))
	},
		Entry("None", &skeinv1.CatchUp{Policy: skeinv1.CatchUpNone}, nil, 0, 60),
		Entry("All", &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 100}, nil, 60, 0),
		Entry("All, at most ten", &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 10}, nil, 10, 50),
		Entry("All within a window", &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 100, Window: &metav1.Duration{Duration: 10 * time.Minute}}, nil, 10, 50),
		Entry("a deadline", nil, ptr.To(int64(10)), 0, 60),
	)

	It("survives a month away with a schedule of every second", Label("EFF-05"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.Schedules = []string{"@every 1s"} })
		reconcile(ctx, s)
		e.Clock.Step(30*24*time.Hour + 500*time.Millisecond)
		r = newReconciler(e)
		pass(ctx, s, 400*time.Millisecond)
		// The punctual ones fire: those of the last ten seconds.
		Expect(len(duesOf(ctx, e, s))).To(BeNumerically("~", 10, 1))
		pass(ctx, s, 2*time.Second)
		Expect(s.Status.Skipped).To(BeNumerically("~", 30*86400-10, 3))
		Expect(skipsOf(ctx, e, s)).To(HaveLen(1))
	})

	It("skips while it is suspended, and says so", Label("EFF-03", "EFF-07"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.Suspend = true })
		pass(ctx, s, 130*time.Second)
		Expect(duesOf(ctx, e, s)).To(BeEmpty())
		Expect(s.Status).To(And(HaveField("Phase", "Suspended"), HaveField("Skipped", int64(2)), HaveField("LastSkip.Reason", "Suspended")))
	})

	DescribeTable("follows its concurrency policy", Label("EFF-03"), func(ctx SpecContext, policy skeinv1.ConcurrencyPolicy, want ...string) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.ConcurrencyPolicy = policy })
		pass(ctx, s, 190*time.Second)
		var got []string
		for _, d := range duesOf(ctx, e, s) {
			got = append(got, d[9:])
		}
		Expect(got).To(Equal(want))
		if policy == skeinv1.ConcurrencyQueue {
			Finish(ctx, e, s, store.FiringSucceeded, "")
			reconcile(ctx, s)
			Expect(duesOf(ctx, e, s)[1]).To(ContainSubstring("pending"))
		}
	},
		Entry("Allow", skeinv1.ConcurrencyAllow, "schedule pending", "schedule pending", "schedule pending"),
		Entry("Forbid", skeinv1.ConcurrencyForbid, "schedule pending"),
		Entry("Replace", skeinv1.ConcurrencyReplace, "schedule canceled", "schedule canceled", "schedule pending"),
		Entry("Queue", skeinv1.ConcurrencyQueue, "schedule pending", "schedule queued"),
	)

	It("pauses after failures in a row, and continues after an edit", Label("EFF-08"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.PauseAfterFailures = ptr.To(int32(2)) })
		for range 4 {
			pass(ctx, s, time.Minute)
			Finish(ctx, e, s, store.FiringFailed, "Error: no tea")
		}
		reconcile(ctx, s)
		Expect(duesOf(ctx, e, s)).To(HaveLen(2))
		Expect(s.Status).To(And(HaveField("Phase", "Paused"), HaveField("LastSkip.Reason", "Paused"), HaveField("NextTime", BeNil())))
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonPaused), HaveField("Message", ContainSubstring("2 firings failed in a row")))))
		s.Spec.Schedules = []string{"@every 30s"}
		s.Generation++
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		pass(ctx, s, time.Minute)
		Expect(duesOf(ctx, e, s)).To(HaveLen(4))
		Expect(s.Status).To(And(HaveField("Phase", "Active"), HaveField("NextTime", Not(BeNil()))))
	})

	It("keeps to a number of firings a day", Label("EFF-08"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.DailyLimit = &skeinv1.DailyLimit{Firings: ptr.To(int64(2))}
		})
		pass(ctx, s, 5*time.Minute)
		Expect(duesOf(ctx, e, s)).To(HaveLen(2))
		Expect(s.Status.LastSkip.Reason).To(Equal("LimitReached"))
	})

	It("ends after a number of firings, and is deleted after its TTL only if it has one", Label("EFF-03"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.MaxFirings, spec.TTLSecondsAfterFinished = ptr.To(int64(2)), ptr.To(int32(60))
		})
		pass(ctx, s, 5*time.Minute)
		Expect(duesOf(ctx, e, s)).To(HaveLen(2))
		Finish(ctx, e, s, store.FiringSucceeded, "")
		reconcile(ctx, s)
		Expect(s.Status).To(And(HaveField("Phase", "Finished"), HaveField("NextTime", BeNil()), HaveField("CompletionTime", Not(BeNil())), HaveField("Fired", int64(2))))
		e.Clock.Step(2 * time.Minute)
		Reconcile(ctx, r, s)
		Expect(client.IgnoreNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s))).To(Succeed())
	})

	It("fires on creation, and delays by its jitter", Label("EFF-03"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.RunOnCreation, spec.Jitter = true, &metav1.Duration{Duration: 30 * time.Second}
		})
		reconcile(ctx, s)
		Expect(duesOf(ctx, e, s)).To(Equal([]string{clock(0) + " creation pending"}))
		delay := s.Status.NextTime.Sub(Start.Add(time.Minute))
		Expect(delay).To(And(BeNumerically(">=", 0), BeNumerically("<", 30*time.Second)))
		pass(ctx, s, 59*time.Second)
		Expect(duesOf(ctx, e, s)).To(HaveLen(1))
		pass(ctx, s, 31*time.Second)
		Expect(duesOf(ctx, e, s)).To(HaveLen(2))
	})

	It("fires for each thread that a selector matches, as they are then", Label("EFF-03"), func(ctx SpecContext) {
		for _, name := range []string{"b", "a", "c", "other"} {
			t := &skeinv1.Thread{ObjectMeta: Meta(name)}
			if name != "other" {
				t.Labels = map[string]string{"team": "x"}
			}
			e.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(e.Client.Status().Update(ctx, t)).To(Succeed())
		}
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.ThreadSelector, spec.MaxThreads, spec.ThreadsPerSecond = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}, 2, 20
		})
		pass(ctx, s, time.Minute)
		Expect(duesOf(ctx, e, s)).To(HaveLen(2))
		Expect(skipsOf(ctx, e, s)).To(ConsistOf(HaveField("Reason", "TooManyThreads")))
	})

	It("creates a Thread for each due time, follows its run, and keeps as many as its history", Label("EFF-03"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.Effect, spec.SuccessfulHistoryLimit = "", ptr.To(int32(1))
			spec.ThreadTemplate = &skeinv1.ThreadTemplate{Labels: map[string]string{"report": "daily"}, Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		threads := func() (out []skeinv1.Thread) {
			GinkgoHelper()
			var list skeinv1.ThreadList
			Expect(e.Client.List(ctx, &list, client.MatchingLabels{"report": "daily"})).To(Succeed())
			return list.Items
		}
		for i := range 3 {
			pass(ctx, s, time.Minute)
			for _, t := range threads() {
				Expect(metav1.IsControlledBy(&t, s)).To(BeTrue())
				Expect(t.Spec.Message).To(Equal("go"))
				if t.Status.LastRun == nil {
					t.Status.LastRun = &skeinv1.RunStatus{ID: "r", Outcome: skeinv1.RunSucceeded}
					Expect(e.Client.Status().Update(ctx, &t)).To(Succeed())
				}
			}
			pass(ctx, s, 2*time.Second)
			Expect(s.Status.LastOutcome).To(Equal("Succeeded"), "due time %d", i)
		}
		Expect(threads()).To(HaveLen(1))
	})

	It("replaces the Thread of an earlier due time", Label("EFF-03"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.Effect, spec.ConcurrencyPolicy = "", skeinv1.ConcurrencyReplace
			spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		pass(ctx, s, 3*time.Minute)
		Expect(duesOf(ctx, e, s)).To(HaveExactElements(HaveSuffix("canceled"), HaveSuffix("canceled"), HaveSuffix("running")))
		var list skeinv1.ThreadList
		Expect(e.Client.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1), "the others would go on, and be paid for")
	})

	DescribeTable("of a single time for a thread follows its policies too", Label("EFF-03", "EFF-07"), func(ctx SpecContext, edit func(*skeinv1.ScheduledEffectSpec), reason string) {
		t := &skeinv1.Thread{ObjectMeta: Meta("t")}
		e.Create(ctx, t)
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: string(t.UID), Namespace: Namespace, Name: "t", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.Schedules, spec.ThreadRef, spec.At = nil, &skeinv1.LocalRef{Name: "t"}, ptr.To(skeinv1.NewTimestamp(Start.Add(time.Minute)))
			edit(spec)
		})
		reconcile(ctx, s)
		e.Clock.Step(2 * time.Minute)
		pass(ctx, s, 2*time.Second)
		Expect(duesOf(ctx, e, s)).To(BeEmpty())
		Expect(skipsOf(ctx, e, s)).To(ConsistOf(HaveField("Reason", reason)))
		s.Spec.Suspend, s.Spec.StartingDeadlineSeconds = false, nil
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		pass(ctx, s, 2*time.Second)
		Expect(duesOf(ctx, e, s)).To(BeEmpty(), "what was skipped stays skipped")
	},
		Entry("suspend", func(s *skeinv1.ScheduledEffectSpec) { s.Suspend = true }, "Suspended"),
		Entry("a deadline", func(s *skeinv1.ScheduledEffectSpec) { s.StartingDeadlineSeconds = ptr.To(int64(10)) }, "Missed"),
	)

	It("keeps a history longer than what its status reads", Label("EFF-07"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.SuccessfulHistoryLimit = ptr.To(int32(30)) })
		for range 45 {
			pass(ctx, s, time.Minute)
			Finish(ctx, e, s, store.FiringSucceeded, "")
		}
		pass(ctx, s, time.Minute)
		Expect(duesOf(ctx, e, s)).To(HaveLen(31), "thirty that ended, and the one that is under way")
	})

	It("keeps to a cost a day, which its history does not make it forget", Label("EFF-08"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) {
			spec.Effect, spec.SuccessfulHistoryLimit, spec.DailyLimit = "", ptr.To(int32(1)), &skeinv1.DailyLimit{Cost: ptr.To("1.00")}
			spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		for range 6 {
			pass(ctx, s, time.Minute)
			active, err := e.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.UID), Active: true})
			Expect(err).NotTo(HaveOccurred())
			for _, f := range active {
				Expect(e.Store.EndRunning(ctx, store.FiringEnd{Key: f.Key(), Status: store.FiringSucceeded, Cost: 0.4})).To(Succeed())
			}
		}
		pass(ctx, s, 2*time.Second)
		Expect(duesOf(ctx, e, s)).To(HaveLen(3), "1.20 is over the limit")
		Expect(s.Status.LastSkip.Reason).To(Equal("LimitReached"))
	})

	It("is not forgotten when the cache lacks its namespace", Label("EFF-06"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e)
		pass(ctx, s, time.Minute)
		e.Clock.Step(time.Hour)
		narrow := scheduledeffect.New(scheduledeffect.Options{Client: noLists{e.Client}, Live: e.Client, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
		Expect(narrow.Sweep(ctx)).To(Succeed())
		Expect(duesOf(ctx, e, s)).To(HaveLen(1))
	})

	DescribeTable("that is wrong says what to write", Label("EFF-03"), func(ctx SpecContext, edit func(*skeinv1.ScheduledEffectSpec), want string) {
		s := declareSchedule(ctx, e, edit)
		reconcile(ctx, s)
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring(want)))))
		e.Clock.Step(time.Hour)
		reconcile(ctx, s)
		Expect(duesOf(ctx, e, s)).To(BeEmpty())
	},
		Entry("30 February", func(s *skeinv1.ScheduledEffectSpec) { s.Schedules = []string{"0 0 30 2 *"} }, "spec.schedules[0]: schedule \"0 0 30 2 *\" is never due"),
		Entry("a schedule that is none", func(s *skeinv1.ScheduledEffectSpec) { s.Schedules = []string{"0 25 * * *"} }, "spec.schedules[0]: schedule \"0 25 * * *\""),
		Entry("arguments over the limit", func(s *skeinv1.ScheduledEffectSpec) {
			s.Args = &runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)}
		}, "spec.args: the arguments have 1048584 bytes, more than the limit of 1048576: put large data into a file"),
		Entry("an unknown zone", func(s *skeinv1.ScheduledEffectSpec) { s.TimeZone = "Europe/Berln" }, "spec.timeZone: time zone \"Europe/Berln\" is unknown"),
		Entry("an exclusion", func(s *skeinv1.ScheduledEffectSpec) {
			s.Exclusions = []skeinv1.ScheduleExclusion{{Schedule: "@every 1h"}}
		}, "spec.exclusions[0]"),
	)

	It("fires by hand, once for each request, and backfills what did not fire", Label("EFF-08"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e, func(spec *skeinv1.ScheduledEffectSpec) { spec.Suspend = true })
		pass(ctx, s, 3*time.Minute)
		s.Annotations = map[string]string{skeinv1.AnnotationRunAt: "2026-03-01T12:02:30.5Z", skeinv1.AnnotationBackfill: Start.Format(time.RFC3339) + "/" + Start.Add(2*time.Minute).Format(time.RFC3339)}
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		reconcile(ctx, s)
		Expect(s.Annotations).To(BeEmpty())
		Expect(duesOf(ctx, e, s)).To(ContainElements(ContainSubstring("12:02:30 manual pending"), ContainSubstring(clock(time.Minute)+" backfill pending"), ContainSubstring(clock(2*time.Minute)+" backfill pending")))
		n := len(duesOf(ctx, e, s))
		s.Annotations = map[string]string{skeinv1.AnnotationRunAt: "2026-03-01T12:02:30.5Z"}
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		reconcile(ctx, s)
		Expect(duesOf(ctx, e, s)).To(HaveLen(n), "a repeat of a request fires nothing")
	})

	It("is forgotten when it is deleted, also by a sweep", Label("EFF-06"), func(ctx SpecContext) {
		s := declareSchedule(ctx, e)
		pass(ctx, s, time.Minute)
		Finish(ctx, e, s, store.FiringSucceeded, "")
		Expect(duesOf(ctx, e, s)).To(HaveLen(1))
		Expect(e.Client.Delete(ctx, s)).To(Succeed())
		Expect(r.Sweep(ctx)).To(Succeed())
		Expect(duesOf(ctx, e, s)).To(HaveLen(1), "nothing is under way, so there is no hurry")
		e.Clock.Step(time.Hour)
		Expect(r.Sweep(ctx)).To(Succeed())
		Expect(duesOf(ctx, e, s)).To(BeEmpty())
	})
})
