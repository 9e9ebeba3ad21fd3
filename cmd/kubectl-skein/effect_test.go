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
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
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

	It("lists, and computes the next times", func() {
		got := c.run("effect", "list")
		Expect(got.out).To(MatchRegexp(`NAME +SCHEDULE +NEXT +LAST +ACTIVE +OUTCOME +PHASE\ndaily +@daily \(Europe/Berlin\) +- +- +0 +- +Pending\n`), got.err)
		Expect(c.run("effect", "list", "-A").out).To(ContainSubstring(c.ns))
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
		got := c.run("effect", "run", "daily")
		Expect(got.out).To(Equal("scheduledeffect/daily fires now\n"), got.err)
		at, err := time.Parse(time.RFC3339Nano, get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt])
		Expect(err).NotTo(HaveOccurred())
		Expect(at).To(BeTemporally("~", time.Now(), patience))
		got = c.run("effect", "backfill", "daily", "--from=2026-01-01T00:00:00+01:00", "--until=2026-01-02T00:00:00Z")
		Expect(got.out).To(Equal("scheduledeffect/daily is backfilled\n"), got.err)
		Expect(get(ctx, "daily").Annotations).To(HaveKeyWithValue(skeinv1.AnnotationBackfill, "2025-12-31T23:00:00Z/2026-01-02T00:00:00Z"))
		Expect(c.run("effect", "backfill", "daily").err).To(ContainSubstring("give --from a time such as"))
		Expect(c.run("effect", "backfill", "daily", "--from=2026-01-02T00:00:00Z", "--until=2026-01-01T00:00:00Z").err).To(ContainSubstring("--until is before --from"))
	})

	It("loses no request of many at once", func(ctx SpecContext) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				got := c.run("effect", "run", "daily")
				Expect(got.code).To(BeZero(), got.err)
			})
		}
		all.Wait()
		Expect(strings.Split(get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt], ",")).To(HaveLen(20))
		Expect(c.run("effect", "run", "daily", "--idempotency-key=a,b").err).To(ContainSubstring("without commas"))
		Expect(c.run("effect", "run", "daily", "--idempotency-key=a").code).To(BeZero())
		Expect(get(ctx, "daily").Annotations[skeinv1.AnnotationRunAt]).To(HaveSuffix("Z/a"))
	})

	It("suspends, resumes and cancels", func(ctx SpecContext) {
		Expect(api.Create(ctx, daily(c.ns, "second"))).To(Succeed())
		Expect(c.run("effect", "suspend", "daily").out).To(Equal("scheduledeffect/daily suspended\n"))
		Expect(get(ctx, "daily").Spec.Suspend).To(BeTrue())
		Expect(c.run("effect", "suspend", "daily").out).To(Equal("scheduledeffect/daily unchanged\n"))
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
