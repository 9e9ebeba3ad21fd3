package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("kubectl skein effect", Label("EFF-07", "EFF-08"), func() {
	var c command
	var api client.Client
	daily := func(ns, name string) *skeinv1.ScheduledEffect {
		return &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.ScheduledEffectSpec{
			Effect: "e", Schedules: []string{"@daily"}, TimeZone: "Europe/Berlin"}}
	}
	get := func(ctx context.Context, name string) *skeinv1.ScheduledEffect {
		GinkgoHelper()
		o := &skeinv1.ScheduledEffect{}
		Expect(api.Get(ctx, client.ObjectKey{Namespace: c.ns, Name: name}, o)).To(Succeed())
		return o
	}

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		c = command{ctx: context.Background(), ns: ns}
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		api, err = threadObjects(cfg)
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Create(ctx, daily(ns, "daily"))).To(Succeed())
	})

	It("lists, and computes the next times", func(ctx SpecContext) {
		got := c.run("effect", "list")
		Expect(got.out).To(MatchRegexp(`NAME +SCHEDULE +NEXT +LAST +ACTIVE +OUTCOME +PHASE\ndaily +@daily \(Europe/Berlin\) +- +- +0 +- +Pending\n`), got.err)
		Expect(c.run("effect", "list", "-A").out).To(ContainSubstring(c.ns))
		greets := daily(c.ns, "greets")
		greets.Spec.Effect, greets.Spec.ThreadRef, greets.Spec.Message = "", &skeinv1.LocalRef{Name: "hello"}, &skeinv1.EffectMessage{Content: "good morning"}
		Expect(api.Create(ctx, greets)).To(Succeed())
		Expect(c.run("effect", "list", "-o", "wide").out).To(And(MatchRegexp(`(?m)^daily .* e +-$`), MatchRegexp(`(?m)^greets .* sends a message +hello$`)))
		got = c.run("effect", "next", "daily", "--count=2")
		Expect(got.out).To(MatchRegexp(`^(\S+T2[23]:00:00Z +\w{3} \S+ 00:00:00 CES?T\n){2}$`), got.err)
	})

	It("leaves out times that maxFirings does not allow any more", func(ctx SpecContext) {
		o := daily(c.ns, "thrice")
		o.Spec.MaxFirings = new(int64(3))
		Expect(api.Create(ctx, o)).To(Succeed())
		Expect(strings.Count(c.run("effect", "next", "thrice").out, "\n")).To(Equal(3))
		fired := func(n int64) {
			GinkgoHelper()
			o := get(ctx, "thrice")
			o.Status.Fired = n
			Expect(api.Status().Update(ctx, o)).To(Succeed())
		}
		fired(2)
		Expect(strings.Count(c.run("effect", "next", "thrice").out, "\n")).To(Equal(1))
		fired(4) // maxFirings was lowered
		got := c.run("effect", "next", "thrice")
		Expect(got.out + got.err).To(Equal("No due time is left.\n"))
	})

	It("asks for firings with annotations", func(ctx SpecContext) {
		got := c.run("effect", "run", "daily", "--wait=false")
		Expect(got.out).To(Equal("scheduledeffect/daily asked: kubectl skein effect history daily shows what becomes of it\n"), got.err)
		at, err := time.Parse(time.RFC3339Nano, get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt])
		Expect(err).NotTo(HaveOccurred())
		Expect(at).To(BeTemporally("~", time.Now(), patience))
		got = c.run("effect", "backfill", "daily", "--from=2026-01-01T00:00:00+01:00", "--until=2026-01-02T00:00:00Z", "--idempotency-key=k", "--wait=false")
		Expect(got.code).To(BeZero(), got.err)
		Expect(get(ctx, "daily").Annotations).To(HaveKeyWithValue(skeinv1.AnnotationBackfill, "2025-12-31T23:00:00Z/2026-01-02T00:00:00Z/k"))
		Expect(c.run("effect", "backfill", "daily").err).To(ContainSubstring("give --from a time such as"))
		Expect(c.run("effect", "backfill", "daily", "--from=2026-01-02T00:00:00Z", "--until=2026-01-01T00:00:00Z").err).To(ContainSubstring("--until is before --from"))
		Expect(c.run("effect", "run", "none").code).To(Equal(exitRefused))
	})

	// answer answers the request in an annotation as the controller does.
	answer := func(ctx context.Context, annotation string, a skeinv1.EffectRequest) {
		GinkgoHelper()
		var o *skeinv1.ScheduledEffect
		Eventually(ctx, func() string {
			o = get(ctx, "daily")
			a.Request = o.Annotations[annotation]
			return a.Request
		}).ShouldNot(BeEmpty())
		a.AnsweredAt = metav1.Now()
		o.Status.Requests = append(o.Status.Requests, a)
		Expect(api.Status().Update(ctx, o)).To(Succeed())
		delete(o.Annotations, annotation)
		Expect(api.Update(ctx, o)).To(Succeed())
	}
	days := func(day, count int, outcome, reason, message string) skeinv1.EffectRequestResult {
		at := time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
		return skeinv1.EffectRequestResult{Time: metav1.NewMicroTime(at), Until: metav1.NewMicroTime(at.AddDate(0, 0, count-1)), Count: int64(count), Outcome: outcome, Reason: reason, Message: message}
	}

	DescribeTable("says what became of each time", func(ctx SpecContext, code int, a skeinv1.EffectRequest, out, errOut string) {
		got := make(chan []any, 1)
		go func() {
			defer GinkgoRecover()
			r := c.run("effect", "backfill", "daily", "--from=2026-01-01T00:00:00Z", "--idempotency-key=k")
			got <- []any{r.code, r.out, r.err}
		}()
		answer(ctx, skeinv1.AnnotationBackfill, a)
		Eventually(ctx, got).Should(Receive(Equal([]any{code, out, errOut})))
	},
		Entry("all fire, wait or had fired", 0,
			skeinv1.EffectRequest{Results: []skeinv1.EffectRequestResult{days(1, 1, "Fired", "", ""), days(2, 3, "Queued", "", ""), days(5, 2, "FiredBefore", "", "")}},
			"scheduledeffect/daily: 2026-01-01T00:00:00Z: fires\n"+
				"scheduledeffect/daily: 2026-01-02T00:00:00Z to 2026-01-04T00:00:00Z, 3 firings: waits until an earlier firing has ended\n"+
				"scheduledeffect/daily: 2026-01-05T00:00:00Z to 2026-01-06T00:00:00Z, 2 firings: had fired already\n", ""),
		Entry("some are skipped", exitRefused,
			skeinv1.EffectRequest{Results: []skeinv1.EffectRequestResult{days(1, 1, "Fired", "", ""), days(2, 1, "Skipped", "Forbidden", "an earlier firing was under way")}},
			"scheduledeffect/daily: 2026-01-01T00:00:00Z: fires\n"+
				"scheduledeffect/daily: 2026-01-02T00:00:00Z: does not fire: Forbidden (an earlier firing was under way)\n", "error: 1 of 2 firings were skipped\n"),
		Entry("it is refused", exitRefused, skeinv1.EffectRequest{Refused: "the range has 2881 due times: choose one with at most 1000"},
			"", "error: scheduledeffect/daily refused the request: the range has 2881 due times: choose one with at most 1000\n"),
		Entry("it is a repeat", exitRefused, skeinv1.EffectRequest{Repeated: true, Results: []skeinv1.EffectRequestResult{days(1, 1, "Skipped", "Forbidden", "")}},
			"scheduledeffect/daily: 2026-01-01T00:00:00Z: does not fire: Forbidden\n",
			"This key was used before, so nothing was done. The answer was:\nerror: 1 of 1 firings were skipped\n"),
		Entry("it is a repeat of what an earlier release answered", 0, skeinv1.EffectRequest{Repeated: true}, "",
			"This key was used before, so nothing was done. The answer was:\nThe answer is not kept: see kubectl skein effect history daily\n"),
	)

	It("speaks of a key only if one was given", func(ctx SpecContext) {
		got := make(chan outputs, 1)
		repeated := skeinv1.EffectRequest{Repeated: true, Results: []skeinv1.EffectRequestResult{days(1, 1, "Fired", "", "")}}
		for key, says := range map[string]string{"": "", "k": "This key was used before, so nothing was done. The answer was:\n"} {
			go func() {
				defer GinkgoRecover()
				got <- c.run("effect", "run", "daily", "--idempotency-key="+key)
			}()
			answer(ctx, skeinv1.AnnotationRunAt, repeated)
			Eventually(ctx, got).Should(Receive(Equal(outputs{out: "scheduledeffect/daily: 2026-01-01T00:00:00Z: fires\n", err: says})))
		}
	})

	It("lists why an effect is not ready", func(ctx SpecContext) {
		o := get(ctx, "daily")
		o.Status.Phase = "Pending"
		o.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "InvalidSpec", Message: "no such time", LastTransitionTime: metav1.Now()}}
		Expect(api.Status().Update(ctx, o)).To(Succeed())
		Expect(c.run("effect", "list").out).To(MatchRegexp(`(?m)^daily .* Pending \(InvalidSpec\)$`))
	})

	It("says that there is no answer, and why", func(ctx SpecContext) {
		got := c.run("effect", "run", "daily", "--timeout=300ms")
		Expect([]any{got.code, got.err}).To(Equal([]any{exitTimeout, "error: scheduledeffect/daily has not answered within 300ms; the request stays\n"}))
		o := get(ctx, "daily")
		o.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ReferenceNotFound", Message: "create the Effect e", LastTransitionTime: metav1.Now()}}
		Expect(api.Status().Update(ctx, o)).To(Succeed())
		got = c.run("effect", "run", "daily", "--timeout=300ms")
		Expect([]any{got.code, got.err}).To(Equal([]any{exitWaits, "error: scheduledeffect/daily has not answered within 300ms; the request stays: ReferenceNotFound: create the Effect e\n"}))
		ended := make(chan []any, 1)
		go func() {
			defer GinkgoRecover()
			r := c.run("effect", "run", "daily")
			ended <- []any{r.code, r.err}
		}()
		Eventually(ctx, func() int { return strings.Count(get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt], ",") }).Should(Equal(2))
		Expect(api.Delete(ctx, get(ctx, "daily"))).To(Succeed())
		Eventually(ctx, ended).Should(Receive(Equal([]any{exitEnded, "error: scheduledeffect/daily was deleted before it answered\n"})))
	})

	It("says that there is no answer when the deadline has passed and the context has not ended yet", func(ctx SpecContext) {
		p := &plugin{flags: genericclioptions.NewConfigFlags(true)}
		p.flags.KubeConfig, p.flags.Namespace = &kubeconfig, &c.ns
		_, err := p.awaitAnswer(overdue{ctx}, get(ctx, "daily"), skeinv1.AnnotationRunAt, "r", time.Second)
		Expect(err).To(MatchError("scheduledeffect/daily has not answered within 1s; the request stays"))
	})

	It("loses no request of many at once", func(ctx SpecContext) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				got := c.run("effect", "run", "daily", "--wait=false")
				Expect(got.code).To(BeZero(), got.err)
			})
		}
		all.Wait()
		Expect(strings.Split(get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt], ",")).To(HaveLen(20))
		Expect(c.run("effect", "run", "daily", "--idempotency-key=a,b").err).To(ContainSubstring("without commas"))
		Expect(c.run("effect", "run", "daily", "--idempotency-key=a", "--wait=false").code).To(BeZero())
		Expect(get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt]).To(HaveSuffix("Z/a"))
	})

	It("resumes one that is paused after failures, and says what a daily limit needs", func(ctx SpecContext) {
		shows := func(phase string, ready metav1.Condition) {
			GinkgoHelper()
			o := get(ctx, "daily")
			ready.Type, ready.LastTransitionTime = skeinv1.ConditionReady, metav1.Now()
			o.Status.Phase, o.Status.Conditions = phase, []metav1.Condition{ready}
			Expect(api.Status().Update(ctx, o)).To(Succeed())
		}
		shows("Paused", metav1.Condition{Status: metav1.ConditionFalse, Reason: "Paused", Message: "2 firings failed in a row"})
		Expect(c.run("effect", "list").out).To(MatchRegexp(`(?m)^daily .* Paused$`))
		Expect(c.run("effect", "next", "daily").err).To(ContainSubstring("until you resume it: kubectl skein effect resume daily\n"))
		got := c.run("effect", "resume", "daily")
		Expect([]any{got.code, got.out}).To(Equal([]any{0, "scheduledeffect/daily resumed\n"}), got.err)
		Expect(get(ctx, "daily").Annotations).To(HaveKey(skeinv1.AnnotationResume))

		Expect(api.Patch(ctx, get(ctx, "daily"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null},"spec":{"suspend":true,"pauseAfterFailures":2}}`)))).To(Succeed())
		shows("Suspended", metav1.Condition{Status: metav1.ConditionTrue, Reason: "Ready"})
		Expect(c.run("effect", "resume", "--all").err).To(Equal("1 of 1 ScheduledEffects resumed.\n"))
		Expect(get(ctx, "daily")).To(And(HaveField("Spec.Suspend", false), HaveField("Annotations", HaveKey(skeinv1.AnnotationResume))), "it may be paused, too")

		shows("LimitReached", metav1.Condition{Status: metav1.ConditionTrue, Reason: "LimitReached", Message: "2 firings on Monday"})
		got = c.run("effect", "resume", "daily")
		Expect([]any{got.code, got.out, got.err}).To(Equal([]any{0, "scheduledeffect/daily unchanged\n", "Its daily limit is reached: 2 firings on Monday\n"}))
		Expect(c.run("effect", "list").out).To(MatchRegexp(`(?m)^daily .* LimitReached$`))
	})

	It("suspends, resumes and cancels", func(ctx SpecContext) {
		Expect(api.Create(ctx, daily(c.ns, "second"))).To(Succeed())
		Expect(c.run("effect", "suspend", "daily").out).To(Equal("scheduledeffect/daily suspended\n"))
		Expect(get(ctx, "daily").Spec.Suspend).To(BeTrue())
		Expect(c.run("effect", "suspend", "daily").out).To(Equal("scheduledeffect/daily unchanged\n"))
		Expect(c.run("effect", "suspend", "daily", "--output=name").out).To(BeEmpty())
		got := c.run("effect", "suspend", "--all")
		Expect(got.out).To(Equal("scheduledeffect/second suspended\n"))
		Expect(got.err).To(Equal("1 of 2 ScheduledEffects suspended.\n"))
		got = c.run("effect", "resume", "--all", "-A")
		Expect(got.out).To(And(ContainSubstring("scheduledeffect/"+c.ns+"/daily resumed\n"), ContainSubstring("scheduledeffect/"+c.ns+"/second resumed\n")), got.err)
		Expect(get(ctx, "daily").Spec.Suspend).To(BeFalse())
		Expect(c.run("effect", "suspend", "-A").err).To(ContainSubstring("-A needs --all"))
		Expect(c.run("effect", "cancel", "daily").out).To(Equal("scheduledeffect/daily deleted; its pending firings are canceled\n"))
		Expect(c.run("effect", "cancel", "daily").code).To(Equal(1))
	})

	It("leaves those that have ended out of --all", func(ctx SpecContext) {
		Expect(api.Create(ctx, daily(c.ns, "over"))).To(Succeed())
		o := get(ctx, "over")
		o.Status.ObservedGeneration, o.Status.Phase, o.Status.CompletionTime = o.Generation, "Finished", ptr.To(metav1.Now())
		Expect(api.Status().Update(ctx, o)).To(Succeed())
		for _, name := range []string{"suspend", "resume"} {
			got := c.run("effect", name, "--all")
			Expect(got.out).To(Equal("scheduledeffect/daily "+strings.TrimSuffix(name, "e")+"ed\n"), got.err)
			Expect(got.err).To(HavePrefix("1 of 1 ScheduledEffects "))
		}
		Expect(get(ctx, "over").Generation).To(Equal(o.Generation))

		Expect(api.Patch(ctx, get(ctx, "over"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeZone":"UTC"}}`)))).To(Succeed())
		Expect(c.run("effect", "suspend", "--all").out).To(ContainSubstring("scheduledeffect/over suspended\n"), "an edit that Skein has not looked at may have given it more to do")
		Expect(c.run("effect", "resume", "over").out).To(Equal("scheduledeffect/over resumed\n"))
	})

	It("cancels one firing, of the thread that it names", func(ctx SpecContext) {
		o, _, err := env.Thread(ctx, c.ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		due := func(day int) time.Time { return time.Date(2027, 1, day, 9, 0, 0, 1000, time.UTC) }
		id := "effect-" + c.ns + "-daily"
		record := store.DueRecord{Schedule: store.EffectSchedule{EffectID: id, Namespace: c.ns, Name: "daily"}}
		for day, threads := range map[int][]string{1: {""}, 2: {o.ThreadID(), "5c4fe7a4-7a7c-4c7b-9e0e-000000000001"}} {
			for _, t := range threads {
				record.Firings = append(record.Firings, store.Firing{EffectID: id, Name: "daily", Due: due(day).UnixMicro(), ThreadID: t, Namespace: c.ns})
			}
		}
		Expect(env.Threads.Store().RecordDue(ctx, record)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Threads.Store().ForgetEffect(ctx, id)).To(Succeed()) })
		cancel := func(args ...string) outputs { return c.run(append([]string{"effect", "cancel", "daily"}, args...)...) }

		Expect(cancel("--firing=2027-01-01T09:00:00.000001Z")).To(Equal(outputs{out: "scheduledeffect/daily: the firing 2027-01-01T09:00:00.000001Z is canceled\n"}))
		Expect(c.run("effect", "history", "daily").out).To(MatchRegexp(`(?m)^2027-01-01T09:00:00.000001Z +canceled .* canceled by hand$`))
		Expect(cancel("--firing=2027-01-01T09:00:00.000001Z").err).To(And(HavePrefix("Error from server (Conflict): "), ContainSubstring("has ended already: canceled")))
		Expect(cancel("--firing=2027-01-03T09:00:00Z").err).To(And(HavePrefix("Error from server (NotFound): "), ContainSubstring("has no firing of 2027-01-03T09:00:00Z")))
		Expect(cancel("--firing=2027-01-02T09:00:00.000001Z").err).To(ContainSubstring("threadId: "))
		Expect(cancel("--firing=2027-01-02T09:00:00.000001Z", "--thread=somebody").err).To(ContainSubstring(`for thread "somebody"`))
		Expect(cancel("--firing=firing/2027-01-02T09:00:00.000001Z", "--thread=hello", "-o", "name")).To(Equal(outputs{out: "firing/2027-01-02T09:00:00.000001Z\n"}))
		Expect(cancel("--firing=2027-01-02T09:00:00.000001Z", "--thread=5c4fe7a4-7a7c-4c7b-9e0e-000000000001").code).To(BeZero())
		Expect(cancel("--firing=soon").err).To(ContainSubstring("such as 2027-01-31T09:00:00Z"))
		Expect(cancel("--firing=").err).To(ContainSubstring("such as 2027-01-31T09:00:00Z"))
		Expect(cancel("--thread=hello").err).To(ContainSubstring("--thread needs --firing"))
		Expect(get(ctx, "daily").DeletionTimestamp).To(BeNil(), "the schedule is there")
	})
})

// These need no server.
var _ = Describe("The next times of a file", Label("EFF-07"), func() {
	next := func(spec string, args ...string) (int, string, string) {
		GinkgoHelper()
		file := filepath.Join(GinkgoT().TempDir(), "effect.yaml")
		Expect(os.WriteFile(file, []byte("apiVersion: skein.dev/v1alpha1\nkind: ScheduledEffect\nmetadata: {name: x}\nspec: "+spec), 0o600)).To(Succeed())
		var out, errOut bytes.Buffer
		code := run(context.Background(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut}, append([]string{"effect", "next", "-f", file}, args...))
		return code, out.String(), errOut.String()
	}

	It("are computed without a server", func() {
		code, out, errOut := next(`{effect: e, schedules: ["0 0 29 2 *"], startTime: "2090-01-01T00:00:00Z"}`, "--count=2")
		Expect(code).To(BeZero(), errOut)
		Expect(out).To(Equal("2092-02-29T00:00:00Z\n2096-02-29T00:00:00Z\n"))
		_, out, _ = next(`{effect: e, schedules: ["@daily"], maxFirings: 3, startTime: "2090-01-01T00:00:00Z"}`)
		Expect(out).To(Equal("2090-01-01T00:00:00Z\n2090-01-02T00:00:00Z\n2090-01-03T00:00:00Z\n"))
		_, out, _ = next(`{effect: e, schedules: ["@daily"], maxFirings: 3, runOnCreation: true, startTime: "2090-01-01T00:00:00Z"}`)
		Expect(strings.Count(out, "\n")).To(Equal(2), "one is used by its creation")
		_, out, _ = next(`{effect: e, at: "2090-01-01T00:00:00Z"}`)
		Expect(out).To(Equal("2090-01-01T00:00:00Z\n"))
		before := time.Now().Truncate(time.Second)
		_, out, errOut = next(`{effect: e, after: 0s}`)
		due, err := time.Parse(time.RFC3339, strings.TrimSpace(out))
		Expect(err).NotTo(HaveOccurred(), errOut)
		Expect(due).To(BeTemporally(">=", before))
		_, out, errOut = next(`{effect: e, at: "2020-01-01T00:00:00Z"}`)
		Expect(out + errOut).To(Equal("No due time is left.\n"))
	})

	DescribeTable("say what is wrong as the condition does", func(spec, want string) {
		code, _, errOut := next(spec)
		Expect(code).To(Equal(1))
		Expect(errOut).To(Equal("error: " + want + "\n"))
	},
		Entry("a schedule", `{effect: e, schedules: ["@daily", "0 0 30 2 *"]}`, `spec.schedules[1]: schedule "0 0 30 2 *" is never due: none of its months has such a day`),
		Entry("a time zone", `{effect: e, schedules: ["@daily"], timeZone: Europe/Berln}`,
			`spec.timeZone: time zone "Europe/Berln" is unknown: write a name of the IANA database such as Europe/Berlin, or UTC`),
		Entry("no time", `{effect: e}`, "spec: set exactly one of at, after and schedules"),
		Entry("two times", `{effect: e, schedules: ["@daily"], after: 1h}`, "spec: set exactly one of at, after and schedules"),
		Entry("a delay of more than a year", `{effect: e, after: 8761h}`, "spec.after: give a delay from 0s, which is now, to 8760h, which is a year, or set at"),
		Entry("a negative jitter", `{effect: e, schedules: ["@daily"], jitter: -5s}`, "spec.jitter: give a duration up to 24h such as 30s"),
		Entry("a jitter of two days", `{effect: e, schedules: ["@daily"], jitter: 48h}`, "spec.jitter: give a duration up to 24h such as 30s"),
		Entry("no firings", `{effect: e, schedules: ["@daily"], maxFirings: 0}`, "spec.maxFirings: give a number from 1"),
	)

	It("are not computed from a misspelt field, or from one object of several", func() {
		code, out, errOut := next(`{effect: e, schedules: ["@daily"], exclusionss: []}`)
		Expect(code).To(Equal(1), out)
		Expect(errOut).To(ContainSubstring(`unknown field "exclusionss"`))
		code, out, errOut = next("{effect: e, schedules: [\"@daily\"]}\n---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\n")
		Expect(code).To(Equal(1), out)
		Expect(errOut).To(ContainSubstring("it holds several objects: give a file with one ScheduledEffect"))
		code, out, errOut = next("{effect: e, at: \"2090-01-01T00:00:00Z\"}\n---\n# nothing\n")
		Expect(code).To(BeZero(), errOut)
		Expect(out).To(Equal("2090-01-01T00:00:00Z\n"))
	})
})

// overdue is a context whose deadline has passed, before its timer fires.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }
