package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Compaction", Label("MSG-12"), func() {
	// everything returns all messages of a thread, and the summaries among them.
	everything := func(ctx context.Context, t *harness.Thread) (all, summaries []runtimev1.Message) {
		GinkgoHelper()
		page, err := t.Page(ctx, "includeSilent=true&limit=1000&order=asc")
		Expect(err).NotTo(HaveOccurred())
		for _, m := range page.Messages {
			if m.Summary != nil {
				summaries = append(summaries, m)
			}
		}
		return page.Messages, summaries
	}
	// outcome returns the data of the event that says what came of a request.
	outcome := func(ctx context.Context, t *harness.Thread, request string) map[string]any {
		GinkgoHelper()
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range log {
			if e.Type != runtimev1.EventContextCompacted && e.Type != runtimev1.EventCompactionFailed {
				continue
			}
			var data map[string]any
			Expect(json.Unmarshal(e.Data, &data)).To(Succeed())
			if requests, _ := data["requests"].([]any); slices.Contains(requests, any(request)) {
				return data
			}
		}
		return nil
	}
	talk := func(ctx context.Context, policy *skeinv1.PromptCompaction, window int64) (*harness.Thread, *harness.ChatServer) {
		GinkgoHelper()
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			harness.Say(w, req.Model, "answer "+strings.Repeat("y", 300))
		})
		DeferCleanup(server.Close)
		m := harness.OpenAI(ns, "model", server.URL, "")
		if window > 0 {
			m.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: window, MaxOutputTokens: 100}
		}
		summer := harness.Scripted(ns, "summer", skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "THE SUMMARY", Usage: &skeinv1.ScriptUsage{InputTokens: 5000, OutputTokens: 3}})
		p := harness.Prompt(ns, "prompt", "model")
		p.Spec.Compaction = policy
		create(ctx, m, summer, p, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		if window > 0 { // a Prompt is Ready before the model that sums up is
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				g.Expect(p.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionCompactionReady, metav1.ConditionTrue)))
			}).Should(Succeed())
		}
		return ready(ctx, cluster.Thread(ns, "thread")), server
	}
	line := func(n int) string { return fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 300)) }
	lastRead := func(server *harness.ChatServer) (out string) {
		asked, _ := server.Requests()
		for _, m := range asked[len(asked)-1].Messages {
			out += m.Role + ": " + string(m.Content) + "\n"
		}
		return out
	}

	It("sums up older turns near the end of the window, and the originals stay", func(ctx SpecContext) {
		t, server := talk(ctx, &skeinv1.PromptCompaction{Threshold: ptr.To[int32](60), Keep: ptr.To[int32](30), ModelRef: &skeinv1.LocalRef{Name: "summer"}}, 700)
		for n := range 8 {
			say(ctx, t, n+1, line(n))
		}
		all, summaries := everything(ctx, t)
		Expect(summaries).NotTo(BeEmpty())
		Expect(all).To(HaveLen(16 + len(summaries)))
		s := summaries[len(summaries)-1]
		Expect(s).To(And(HaveField("Role", runtimev1.RoleSystem), HaveField("Silent", true), HaveField("Content", HaveValue(Equal("THE SUMMARY")))))
		Expect(s.Summary).To(HaveValue(And(HaveField("From", all[0].ID), HaveField("Agent", "agent"), HaveField("Prompt", "prompt"), HaveField("Model", "summer"))))
		to := slices.IndexFunc(all, func(m runtimev1.Message) bool { return m.ID == s.Summary.To })
		Expect(to).To(BeNumerically(">", 1))
		Expect(lastRead(server)).To(And(ContainSubstring("THE SUMMARY"), ContainSubstring("number-7."), Not(ContainSubstring("number-0."))))
		seen, err := t.Page(ctx, "limit=1000")
		Expect(err).NotTo(HaveOccurred())
		Expect(seen.Messages).To(HaveLen(16), "it is not among what people see")
		out, err := cluster.Plugin(ctx, "messages", "-n", t.Namespace, t.Name)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring(fmt.Sprintf("summary (of %d messages, from %s to %s): THE SUMMARY", s.Summary.Messages, s.Summary.From, s.Summary.To)))

		By("counting what it used in the run")
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(ContainElement(HaveField("Usage", WithTransform(func(raw json.RawMessage) string { return string(raw) }, ContainSubstring("summer")))))

		By("leaving a fork its summary when what it stands for is changed in the origin")
		r := runtimeAs("").Thread(t.Namespace, t.Name)
		_, err = r.Fork(ctx, runtimev1.NewFork{Name: "fork"})
		Expect(err).NotTo(HaveOccurred())
		fork := ready(ctx, cluster.Thread(t.Namespace, "fork"))
		text := "taken back"
		_, err = r.UpdateMessage(ctx, all[0].ID, runtimev1.MessageUpdates{Content: &text})
		Expect(err).NotTo(HaveOccurred())
		_, after := everything(ctx, t)
		Expect(after).To(BeEmpty())
		_, kept := everything(ctx, fork)
		Expect(kept).To(HaveLen(len(summaries)))
		say(ctx, t, 9, line(8))
		Expect(lastRead(server)).NotTo(ContainSubstring("number-0."))

		By("losing it with a truncation before its end")
		Expect(runtimeAs("").Thread(t.Namespace, "fork").Truncate(ctx, runtimev1.Truncate{MessageIndex: ptr.To[int64](1)})).Error().NotTo(HaveOccurred())
		_, kept = everything(ctx, fork)
		Expect(kept).To(BeEmpty())
	}, SpecTimeout(3*time.Minute))

	It("sums up by hand, once for twenty that ask, and says why not", func(ctx SpecContext) {
		t, server := talk(ctx, &skeinv1.PromptCompaction{Mode: skeinv1.CompactionManual, ModelRef: &skeinv1.LocalRef{Name: "summer"}}, 0)
		r := runtimeAs("").Thread(t.Namespace, t.Name)
		asked, err := r.Compact(ctx, runtimev1.Compact{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() map[string]any { return outcome(ctx, t, asked.Request) }).Should(HaveKeyWithValue("reason", "NothingToCompact"))
		for n := range 4 {
			say(ctx, t, n+1, line(n))
		}
		requests := make(chan string, 20)
		for range 20 {
			go func() {
				defer GinkgoRecover()
				asked, err := r.Compact(ctx, runtimev1.Compact{})
				Expect(err).NotTo(HaveOccurred())
				requests <- asked.Request
			}()
		}
		for range 20 {
			var request string
			Eventually(ctx, requests).Should(Receive(&request))
			Eventually(ctx, func() map[string]any { return outcome(ctx, t, request) }).ShouldNot(BeNil())
		}
		_, summaries := everything(ctx, t)
		Expect(len(summaries)).To(And(BeNumerically(">=", 1), BeNumerically("<=", 4)))
		say(ctx, t, 5, line(4))
		Expect(lastRead(server)).To(And(ContainSubstring("THE SUMMARY"), Not(ContainSubstring("number-0."))))

		By("refusing a side that there is not, and those without the right")
		_, err = r.Compact(ctx, runtimev1.Compact{Side: "b"})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`the agent agent has no side "b"`)))
		reader, writer := holding(ctx, t.Namespace, "reader-of-"+t.Namespace, "conversation_reader_role.yaml"), holding(ctx, t.Namespace, "writer-of-"+t.Namespace, "conversation_writer_role.yaml")
		Eventually(ctx, func() error { // until the role is known
			_, err := writer.Thread(t.Namespace, t.Name).Compact(ctx, runtimev1.Compact{})
			return err
		}).Should(Succeed())
		_, err = reader.Thread(t.Namespace, t.Name).Compact(ctx, runtimev1.Compact{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

		By("printing the summary with kubectl")
		for n := range 4 {
			say(ctx, t, n+6, line(n+5))
		}
		out, err := cluster.Plugin(ctx, "compact", "-n", t.Namespace, t.Name)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("): THE SUMMARY"))
	}, SpecTimeout(3*time.Minute))

	It("is refused, or reported, where a policy cannot work", func(ctx SpecContext) {
		ns := namespace(ctx)
		for want, policy := range map[string]*skeinv1.PromptCompaction{
			"keep must be at least 10 below threshold":    {Threshold: ptr.To[int32](40), Keep: ptr.To[int32](35)},
			`supported values: "auto", "manual", "never"`: {Mode: "sometimes"},
			"should be less than or equal to 95":          {Threshold: ptr.To[int32](100)},
		} {
			p := harness.Prompt(ns, "bad", "model")
			p.Spec.Compaction = policy
			Expect(cluster.Client.Create(ctx, p)).To(MatchError(ContainSubstring(want)))
		}
		m := harness.Scripted(ns, "model", skeinv1.ScriptStep{Content: "x"})
		p := harness.Prompt(ns, "prompt", "model")
		p.Spec.Compaction = &skeinv1.PromptCompaction{}
		create(ctx, m, p)
		compactionReady := func(status metav1.ConditionStatus, message string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				g.Expect(meta.FindStatusCondition(p.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
				g.Expect(meta.FindStatusCondition(p.Status.Conditions, skeinv1.ConditionCompactionReady)).To(HaveValue(And(
					HaveField("Status", status), HaveField("Message", ContainSubstring(message)))))
			}).Should(Succeed())
		}
		compactionReady(metav1.ConditionFalse, "set its spec.capabilities.contextWindow in tokens")
		Expect(p.Spec.Compaction).To(HaveValue(And(HaveField("Mode", skeinv1.CompactionAuto), HaveField("Threshold", HaveValue(BeEquivalentTo(80))), HaveField("Keep", HaveValue(BeEquivalentTo(30))))))
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
			m.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: 8000}
			g.Expect(cluster.Client.Update(ctx, m)).To(Succeed())
		}).Should(Succeed())
		compactionReady(metav1.ConditionTrue, "")
	}, SpecTimeout(2*time.Minute))
})
