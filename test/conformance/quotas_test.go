package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The quotas of a namespace", Label("K8S-11"), func() {
	// limit declares a ThreadQuota and waits until the manager knows it.
	limit := func(ctx SpecContext, ns, hard string) *skeinv1.ThreadQuota {
		GinkgoHelper()
		q := &skeinv1.ThreadQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "team"}}
		Expect(yaml.Unmarshal([]byte(hard), &q.Spec.Hard)).To(Succeed())
		create(ctx, q)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(q), q)).To(Succeed())
			g.Expect(q.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
		}).Should(Succeed())
		return q
	}
	raise := func(ctx SpecContext, ns, hard string) {
		GinkgoHelper()
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "threadquota", "team", "--type=merge", "-p", `{"spec":{"hard":`+hard+`}}`)
		Expect(err).NotTo(HaveOccurred())
	}
	agents := func(ctx SpecContext, ns string, steps ...skeinv1.ScriptStep) {
		GinkgoHelper()
		create(ctx, harness.Scripted(ns, "model", steps...), harness.Prompt(ns, "prompt", "model", "builtin:effects"), harness.Agent(ns, "agent", "prompt"))
	}
	// many creates twenty threads at once.
	many := func(ctx SpecContext, ns string) {
		GinkgoHelper()
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				create(ctx, harness.NewThread(ns, fmt.Sprint("t-", i), "agent"))
			})
		}
		group.Wait()
	}
	// in returns how many Threads have a condition with a reason.
	in := func(ctx SpecContext, ns, kind, reason string) (n int) {
		var list skeinv1.ThreadList
		if err := cluster.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return -1
		}
		for _, t := range list.Items {
			for _, c := range t.Status.Conditions {
				if c.Type == kind && c.Reason == reason {
					n++
				}
			}
		}
		return n
	}

	It("bound its threads, however many are created at once, and no other namespace's", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		for _, n := range []string{ns, other} {
			agents(ctx, n, harness.Echo())
		}
		q := limit(ctx, ns, `{threads: 5}`)
		many(ctx, ns)
		many(ctx, other)
		Eventually(ctx, func() int { return in(ctx, other, skeinv1.ConditionReady, skeinv1.ReasonReady) }).Should(Equal(20))
		Eventually(ctx, func() []int {
			return []int{in(ctx, ns, skeinv1.ConditionReady, skeinv1.ReasonReady), in(ctx, ns, skeinv1.ConditionReady, skeinv1.ReasonQuotaExceeded)}
		}).Should(Equal([]int{5, 15}))
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(q), q)).To(Succeed())
			g.Expect(q.Status.Summary).To(Equal("threads: 5/5"))
			g.Expect(q.Status.Used.Threads).To(HaveValue(BeEquivalentTo(5)))
			g.Expect(q.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionFull, metav1.ConditionTrue, skeinv1.ReasonQuotaExceeded)))
		}).Should(Succeed())
		Expect(cluster.Kubectl(ctx, "-n", ns, "get", "threadquotas")).To(ContainSubstring("threads: 5/5"))
		Expect(cluster.Plugin(ctx, "-n", ns, "quota")).To(MatchRegexp(`team\s+threads\s+5\s+5`))
		Expect(cluster.Kubectl(ctx, "-n", ns, "get", "threads", "-o", "jsonpath={..message}")).To(ContainSubstring(`its quota of 5 threads (ThreadQuota "team"): delete Threads`))
		raise(ctx, ns, `{"threads":20}`)
		Eventually(ctx, func() int { return in(ctx, ns, skeinv1.ConditionReady, skeinv1.ReasonReady) }).Should(Equal(20), "room was made")
	})

	It("bound the threads that run; the others say what they wait for, and follow", func(ctx SpecContext) {
		ns := namespace(ctx)
		agents(ctx, ns, harness.On("hang", harness.Slow(time.Hour, harness.Answer("never"))), harness.Echo())
		limit(ctx, ns, `{runningThreads: 2}`)
		many(ctx, ns)
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				Expect(ready(ctx, cluster.Thread(ns, fmt.Sprint("t-", i))).Say(ctx, "hang")).To(Succeed())
			})
		}
		group.Wait()
		Eventually(ctx, func() int { return in(ctx, ns, skeinv1.ConditionExecuting, skeinv1.ReasonWaitingForQuota) }).Should(Equal(18))
		Expect(in(ctx, ns, skeinv1.ConditionExecuting, skeinv1.ReasonRunning)).To(Equal(2))
		Expect(cluster.Kubectl(ctx, "-n", ns, "get", "threads", "-o", "jsonpath={..message}")).To(ContainSubstring("2 threads that run at once"))
		raise(ctx, ns, `{"runningThreads":20}`)
		Eventually(ctx, func() int { return in(ctx, ns, skeinv1.ConditionExecuting, skeinv1.ReasonRunning) }).Should(Equal(20))
	})

	DescribeTable("let no run begin once those of the day are used up, keep its message, and are measured", func(ctx SpecContext, resource, hard, more, says string, bounds []float64, used float64) {
		ns := namespace(ctx)
		paid := harness.Echo()
		paid.Usage = &skeinv1.ScriptUsage{InputTokens: 900, OutputTokens: 100}
		model := harness.Scripted(ns, "model", paid)
		model.Spec.Pricing = &skeinv1.ModelPricing{Input: "1000", Output: "6000"}
		t := converseWith(ctx, ns, model, nil)
		q := limit(ctx, ns, hard)
		measured := func(metric string) func() (float64, error) {
			return func() (float64, error) {
				return manager.Metric(ctx, figures, fmt.Sprintf("skein_quota_%s{namespace=%q,quota=%q,resource=%q}", metric, ns, q.Name, resource))
			}
		}
		Expect(last(say(ctx, t, 1, "first"))).To(Equal("echo: first"))
		Eventually(ctx, measured("used")).Should(Equal(used))
		Expect(measured("hard")()).To(Equal(bounds[0]))

		Expect(t.Say(ctx, "second")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionExecuting, metav1.ConditionFalse, skeinv1.ReasonWaitingForQuota),
				HaveField("Message", ContainSubstring(says+` (ThreadQuota "team"): wait until midnight UTC`)))))
		}).Should(Succeed())
		Expect(t.Runs(ctx)).To(HaveLen(1))

		By("beginning it when an administrator gives more")
		raise(ctx, ns, more)
		Expect(last(settled(ctx, t, 2))).To(Equal("echo: second"))
		Eventually(ctx, measured("used")).Should(Equal(2 * used))
		Expect(measured("hard")()).To(Equal(bounds[1]))
		Expect(cluster.Client.Delete(ctx, q)).To(Succeed())
		Eventually(ctx, func() error { _, err := measured("hard")(); return err }).Should(MatchError(ContainSubstring("no metric")), "a quota that is gone has no figures")
	},
		Entry("tokens", "tokensPerDay", `{tokensPerDay: 600}`, `{"tokensPerDay":5000}`, "its quota of 600 tokens a day", []float64{600, 5000}, 1000.0),
		Entry("cost", "costPerDay", `{costPerDay: "1.25"}`, `{"costPerDay":"20.5"}`, "its quota of 1.25 US dollars a day", []float64{1.25, 20.5}, 1.5),
	)

	It("refuse files and effects beyond them with an error that says what to do", func(ctx SpecContext) {
		t, raw := echoing(ctx)
		ns := t.Namespace
		create(ctx, harness.Effect(ns, "later", "export default async () => {}"))
		limit(ctx, ns, `{bytes: 50, pendingEffects: 3}`)
		var stored, scheduled atomic.Int32
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				_, err := raw.WriteFile(ctx, fmt.Sprintf("/f-%d", i), strings.NewReader("0123456789"), runtimeclient.WriteFileOptions{})
				if err == nil {
					stored.Add(1)
					return
				}
				Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
				Expect(apierrors.HasStatusCause(err, runtimev1.CauseQuotaExceeded)).To(BeTrue())
				Expect(err).To(MatchError(ContainSubstring(`its quota of 50 bytes of files (ThreadQuota "team"): delete files or Threads`)))
			})
			group.Go(func() {
				defer GinkgoRecover()
				_, err := raw.ScheduleEffect(ctx, "later", nil, time.Hour)
				if err == nil {
					scheduled.Add(1)
					return
				}
				Expect(apierrors.HasStatusCause(err, runtimev1.CauseQuotaExceeded)).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(ContainSubstring("its quota of 3 ScheduledEffects that have not ended")))
			})
		}
		group.Wait()
		Expect(stored.Load()).To(BeEquivalentTo(5))
		Expect(scheduled.Load()).To(BeEquivalentTo(3))
		Eventually(ctx, func() (string, error) { return cluster.Kubectl(ctx, "-n", ns, "get", "threadquotas") }).Should(ContainSubstring("bytes: 50/50, pendingEffects: 3/3"))
	})

	It("refuse messages once theirs are used up, let no run begin, and keep what waits", func(ctx SpecContext) {
		t, raw := echoing(ctx)
		q := limit(ctx, t.Namespace, `{messageBytes: 1Ki}`)
		long := strings.Repeat("x", 600)
		Expect(last(say(ctx, t, 1, long))).To(Equal("echo: " + long))
		var used int64
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(q), q)).To(Succeed())
			g.Expect(q.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionFull, metav1.ConditionTrue, skeinv1.ReasonQuotaExceeded),
				HaveField("Message", "the namespace has used up: messageBytes"))))
			used = q.Status.Used.MessageBytes.Value()
		}).Should(Succeed())
		Expect(used).To(BeNumerically(">", 1200), "both messages count")
		Expect(q.Status.Summary).To(Equal(fmt.Sprintf("messageBytes: %d/1024", used)))
		Expect(manager.Metric(ctx, figures, fmt.Sprintf("skein_quota_used{namespace=%q,quota=%q,resource=%q}", t.Namespace, q.Name, "messageBytes"))).To(BeEquivalentTo(used))
		Expect(cluster.Plugin(ctx, "-n", t.Namespace, "quota")).To(MatchRegexp(`team\s+messageBytes\s+\S+\s+1Ki\s+full`))

		By("refusing those of twenty clients at once, whether they are queued or stored at once")
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				write := raw.Queue
				if i%2 == 0 {
					write = raw.Inject
				}
				_, err := write(ctx, runtimev1.NewMessage{Content: "more"})
				Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
				Expect(apierrors.HasStatusCause(err, runtimev1.CauseQuotaExceeded)).To(BeTrue())
				Expect(err).To(MatchError(ContainSubstring(`its quota of 1024 bytes of messages (ThreadQuota "team"): delete messages or Threads`)))
			})
		}
		group.Wait()
		Expect(t.Messages(ctx)).To(HaveLen(2))

		By("keeping the message with which a Thread begins")
		create(ctx, harness.NewThread(t.Namespace, "later", "agent", func(s *skeinv1.ThreadSpec) { s.Message = "second" }))
		later := cluster.Thread(t.Namespace, "later")
		Eventually(ctx, func(g Gomega) {
			o, err := later.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionExecuting, metav1.ConditionFalse, skeinv1.ReasonWaitingForQuota),
				HaveField("Message", ContainSubstring("1024 bytes of messages")))))
		}).Should(Succeed())
		Expect(later.Runs(ctx)).To(BeEmpty())

		By("beginning its run when messages were removed")
		_, err := raw.Truncate(ctx, runtimev1.Truncate{MessageIndex: ptr.To[int64](0)})
		Expect(err).NotTo(HaveOccurred())
		Expect(last(settled(ctx, later, 1))).To(Equal("echo: second"))
		Expect(last(say(ctx, t, 2, "third"))).To(Equal("echo: third"))
	})

	It("cannot be raised by an editor, and are rejected when invalid", func(ctx SpecContext) {
		ns := namespace(ctx)
		out, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", harness.Root()+"/config/rbac/editor_role.yaml", "-f", harness.Root()+"/config/rbac/viewer_role.yaml")
		Expect(err).NotTo(HaveOccurred(), out)
		out, err = cluster.Kubectl(ctx, "-n", ns, "create", "rolebinding", "ed", "--clusterrole=skein-editor", "--user=ed")
		Expect(err).NotTo(HaveOccurred(), out)
		may := func(verb string, resource string) bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "ed",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Group: "skein.dev", Resource: resource, Verb: verb}}}
			Expect(cluster.Client.Create(ctx, review)).To(Succeed())
			return review.Status.Allowed
		}
		Eventually(ctx, func() bool { return may("create", "threads") }).Should(BeTrue())
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			Expect(may(verb, "threadquotas")).To(BeFalse(), verb)
		}
		for hard, why := range map[string]string{`{}`: "at least 1 properties", `{threads: -1}`: "greater than or equal to 0", `{bytes: 1.5}`: "such as 10Gi", `{messageBytes: -1}`: "such as 10Gi",
			`{costPerDay: -1}`: "an amount of US dollars"} {
			q := &skeinv1.ThreadQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "wrong"}}
			data, err := yaml.YAMLToJSON([]byte(hard))
			Expect(err).NotTo(HaveOccurred())
			Expect(json.Unmarshal(data, &q.Spec.Hard)).To(Succeed())
			Expect(cluster.Client.Create(ctx, q)).To(MatchError(ContainSubstring(why)), hard)
		}
	})

	It("can come from a ResourceQuota for Threads and pods, which refuses objects at once", func(ctx SpecContext) {
		ns := namespace(ctx)
		out, err := cluster.Kubectl(ctx, "-n", ns, "create", "quota", "objects", "--hard=count/threads.skein.dev=2")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(ctx, func() (string, error) {
			return cluster.Kubectl(ctx, "-n", ns, "get", "resourcequota", "objects", "-o", "jsonpath={.status.used}")
		}).Should(ContainSubstring("count/threads.skein.dev"))
		var refused atomic.Int32
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				if err := cluster.Client.Create(ctx, harness.NewThread(ns, fmt.Sprint("t-", i), "agent")); err != nil {
					Expect(err).To(MatchError(ContainSubstring("exceeded quota: objects")))
					refused.Add(1)
				}
			})
		}
		group.Wait()
		Expect(refused.Load()).To(BeEquivalentTo(18))
	})
})
