package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("What subagents are to their parents", func() {
	starts := func(message, title string) skeinv1.ScriptStep {
		return harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": message, "name": title})
	}

	for _, blocking := range []bool{true, false} {
		for _, resumable := range []bool{true, false} {
			It(fmt.Sprintf("is the same in each mode but for waiting and living on: blocking %t, resumable %t", blocking, resumable), Label("SUB-02", "SUB-03", "FIL-07"), func(ctx SpecContext) {
				ns := namespace(ctx)
				more := harness.Calls("subagent_message", map[string]any{"reference": "{{ .Last.Content }}", "message": "and more", "attachments": []string{"/n.csv"}})
				t := family(ctx, ns,
					[]skeinv1.ScriptStep{harness.On("^go$", starts("add", "Sum")), harness.On("^thread-helper-", more), always("noted")},
					[]skeinv1.ScriptStep{harness.On("more", harness.Answer("the sum is seven")), harness.On("add", harness.Answer("the sum is five"))},
					helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = blocking, resumable }))
				// told waits for a result of the child, as the mode has it.
				told := func(tool, sum string) {
					GinkgoHelper()
					if !blocking {
						takenIn(ctx, t, And(reported, HaveSuffix(sum)))
						return
					}
					content, outcome := result(takenIn(ctx, t, Equal("tool: "+sum)), tool)
					Expect(outcome).To(Equal("success"))
					Expect(content).To(Equal(sum))
				}
				Expect(t.Say(ctx, "go")).To(Succeed())
				told("subagent_create", "the sum is five")
				child := onlyChild(ctx, ns)
				if !resumable {
					Eventually(ctx, func(g Gomega) {
						o, err := child.Object(ctx)
						g.Expect(err).NotTo(HaveOccurred())
						g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonSessionEnded)))
					}).Should(Succeed())
					Expect(child.Queue(ctx, runtimev1.NewMessage{Content: "more"})).Error().To(MatchError(ContainSubstring("terminated")))
					return
				}
				Expect(t.WriteFile(ctx, "/n.csv", "text/csv", []byte("3;4"))).To(Succeed())
				Expect(t.Say(ctx, subagents(ctx, ns)[0].Name)).To(Succeed())
				told("subagent_message", "the sum is seven")
				said := settled(ctx, child, 2)
				Expect(texts(said)).To(Equal([]string{"user: add", "assistant: the sum is five", "user: and more", "assistant: the sum is seven"}))
				Expect(said[2].Attachments).To(HaveExactElements(HaveField("Path", "/attachments/n.csv")))
				Expect(child.ReadFile(ctx, "/attachments/n.csv")).To(BeEquivalentTo("3;4"))
				Expect(child.Queue(ctx, runtimev1.NewMessage{Content: "add"})).Error().NotTo(HaveOccurred(), "it lives on")
			}, SpecTimeout(2*time.Minute))
		}
	}

	It("has every message that a child accepts answered before the child ends", Label("SUB-02", "MSG-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		worker := newGate(func(w http.ResponseWriter, req harness.ChatRequest, last string) {
			harness.Say(w, req.Model, "heard "+last)
		})
		t := familyWith(ctx, ns, []skeinv1.ScriptStep{harness.On("^go$", starts("add", "Sum")), always("noted")}, worker.model(ns, "worker"),
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true }))
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, worker.asked.Load).Should(BeEquivalentTo(1))
		child := onlyChild(ctx, ns)
		Expect(child.Queue(ctx, runtimev1.NewMessage{Content: "more"})).Error().NotTo(HaveOccurred())
		worker.open()
		takenIn(ctx, t, Equal("tool: heard user add"))
		takenIn(ctx, t, And(reported, HaveSuffix("heard user more")))
		Eventually(ctx, func(g Gomega) {
			o, err := child.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonSessionEnded)))
		}).Should(Succeed())
		Expect(texts(must(child.Messages(ctx)))).To(Equal([]string{"user: add", "assistant: heard user add", "user: more", "assistant: heard user more"}))
		Expect(child.Queue(ctx, runtimev1.NewMessage{Content: "too late"})).Error().To(MatchError(ContainSubstring("terminated")))
	}, SpecTimeout(2*time.Minute))

	It("is only what the child sends when its communication is explicit", Label("SUB-04", "SUB-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, fixtureTool(ns, "report-up"),
			harness.Scripted(ns, "parent", harness.On("^go$", starts("add", "Sum")), always("noted")),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) {
					s.Resumable, s.ParentCommunication = true, skeinv1.CommunicationExplicit
				})}
			}),
			harness.Scripted(ns, "worker", harness.On("add", harness.Answer("the sum is five")), harness.On("fail", harness.Calls("give_up", map[string]any{"message": "no idea"})),
				harness.On("speak", harness.Calls("report_up", nil)), harness.After("report_up", harness.Answer("I have said it"))),
			harness.Prompt(ns, "worker", "worker", "report-up"),
			harness.Agent(ns, "worker", "worker", func(s *skeinv1.AgentSpec) { s.SideA.SessionFail = &skeinv1.SessionTool{Name: "give_up"} }),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, t, 1, "go")
		child := onlyChild(ctx, ns)
		Expect(texts(settled(ctx, child, 1))).To(ContainElement("assistant: the sum is five"))
		say(ctx, child, 2, "fail")
		Expect(texts(say(ctx, child, 3, "speak"))).To(ContainElement("assistant: I have said it"))
		takenIn(ctx, t, Equal("user: halfway"))
		// The results of all three runs would have come before or with what the child said, or wait to be taken in.
		var said []string
		for _, m := range must(t.Messages(ctx)) {
			if m.Role == runtimev1.RoleUser {
				said = append(said, text(m))
			}
		}
		Expect(said).To(Equal([]string{"user: go", "user: halfway"}))
	}, SpecTimeout(2*time.Minute))

	It("is listed for the model, with the status of each", Label("SUB-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		both := skeinv1.ScriptStep{ToolCalls: append(starts("hang", "Old").ToolCalls, starts("add", "New").ToolCalls...)}
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("^go$", both), harness.On("^all$", harness.Calls("subagent_list", nil)),
				harness.On("^done$", harness.Calls("subagent_list", map[string]any{"status": "completed"})), always("noted")},
			[]skeinv1.ScriptStep{harness.On("hang", harness.Slow(time.Hour, harness.Answer("late"))), harness.On("add", harness.Answer("the sum is five"))},
			helper(func(s *skeinv1.AgentSubagent) { s.Resumable = true }))
		Expect(t.Say(ctx, "go")).To(Succeed())
		takenIn(ctx, t, reported)
		Eventually(ctx, func(g Gomega) {
			list, err := conversation(t).Children(ctx, runtimeclient.Page{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Children).To(ConsistOf(And(HaveField("Title", "Old"), HaveField("Status", "running")), And(HaveField("Title", "New"), HaveField("Status", "completed"))))
		}).Should(Succeed())
		type entry struct {
			Reference, Name, Title, Description, Status string
			Resumable, Blocking                         bool
		}
		listed := func(which string) (list struct {
			Subagents []entry
			HasMore   bool
		}) {
			GinkgoHelper()
			Expect(t.Say(ctx, which)).To(Succeed())
			content, outcome := result(takenIn(ctx, t, Equal("user: "+which)), "subagent_list")
			Expect(outcome).To(Equal("success"), content)
			Expect(json.Unmarshal([]byte(content), &list)).To(Succeed())
			Expect(list.HasMore).To(BeFalse())
			return list
		}
		references := map[string]string{}
		for _, s := range subagents(ctx, ns) {
			references[s.Spec.Title] = s.Name
		}
		finished := entry{Reference: references["New"], Name: "helper", Title: "New", Description: "does part of the work", Status: "completed", Resumable: true}
		working := entry{Reference: references["Old"], Name: "helper", Title: "Old", Description: "does part of the work", Status: "running", Resumable: true}
		Expect(listed("all").Subagents).To(Equal([]entry{working, finished}))
		Expect(listed("done").Subagents).To(Equal([]entry{finished}))
	}, SpecTimeout(2*time.Minute))

	It("shows in the record, the status and the history of each descendant, which name the outermost thread", Label("THR-14", "THR-15"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("^go$", starts("deep", "Child")), always("noted")},
			[]skeinv1.ScriptStep{harness.On("deep", starts("bottom", "Grandchild")), harness.On("bottom", harness.Answer("here")), always("done")},
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true }))
		say(ctx, t, 1, "go")
		root := idOf(ctx, t)
		main := map[string]string{root: ""}
		parents := map[string]string{}
		for _, s := range subagents(ctx, ns) {
			parents[s.Spec.Title] = s.Spec.ParentRef.Name
			below := cluster.Thread(ns, s.Name)
			rec, err := conversation(below).Get(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(rec.MainThreadID).To(Equal(root), s.Spec.Title)
			main[rec.ThreadID] = root
			Eventually(ctx, func() (string, error) {
				o, err := below.Object(ctx)
				if err != nil {
					return "", err
				}
				return o.Status.MainThreadID, nil
			}).Should(Equal(root), s.Spec.Title)
		}
		Expect(parents).To(And(HaveLen(2), HaveKeyWithValue("Child", "thread"), HaveKeyWithValue("Grandchild", HavePrefix("thread-helper-"))))
		rec, err := conversation(t).Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.MainThreadID).To(BeEmpty())
		list, err := runtimeAs("").History(ctx, ns, runtimeclient.HistoryOptions{})
		Expect(err).NotTo(HaveOccurred())
		shown := map[string]string{}
		for _, i := range list.Items {
			shown[i.ThreadID] = i.MainThreadID
		}
		Expect(shown).To(Equal(main))
	}, SpecTimeout(2*time.Minute))
})
