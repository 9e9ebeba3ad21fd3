package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The children in a Thread's status", Label("SUB-01", "K8S-07"), func() {
	// starts is a step that starts so many children at once, with a message and a title each.
	starts := func(n int, message, title string) (s skeinv1.ScriptStep) {
		for i := range n {
			s.ToolCalls = append(s.ToolCalls, harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": message, "name": fmt.Sprint(title, i)}).ToolCalls...)
		}
		return s
	}
	worker := []skeinv1.ScriptStep{
		harness.On("^hang$", harness.Slow(time.Hour, harness.Answer("late"))),
		harness.On("^fail$", skeinv1.ScriptStep{Error: "no", Status: 400}),
		always("5"),
	}
	many := func(s *skeinv1.AgentSubagent) {
		s.MaxInstances, s.ParentCommunication = 100, skeinv1.CommunicationExplicit
	}
	ended := func(c skeinv1.ChildStatus) int {
		if c.Status == "pending" || c.Status == "running" {
			return 0
		}
		return 1
	}

	It("are the unfinished first, then the newest, as many as fit, with the numbers of all by their state", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("^hang$", starts(4, "hang", "h")), harness.On("^fail$", starts(3, "fail", "f")), harness.On("^done$", starts(30, "work", "w")), always("ok")}, worker, helper(many))
		for i, text := range []string{"hang", "fail", "done", "done"} { // those that are not finished are the oldest
			say(ctx, t, i+1, text)
		}
		first := subagents(ctx, ns)
		slices.SortFunc(first, func(a, b skeinv1.Subagent) int { return cmp.Compare(a.Spec.Title, b.Spec.Title) })
		Expect(cluster.Thread(ns, first[slices.IndexFunc(first, func(s skeinv1.Subagent) bool { return s.Spec.Title == "h3" })].Name).Terminate(ctx)).To(Succeed())
		var status skeinv1.ThreadStatus
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			status = o.Status
			g.Expect(status.ChildCount).To(BeEquivalentTo(67))
			g.Expect(status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Running: 3, Failed: 3, Completed: 60, Terminated: 1})))
			g.Expect(len(status.Children)).To(And(BeNumerically(">", 40), BeNumerically("<=", skeinv1.MaxStatusChildren)), "as many as fit")
			g.Expect(status.Children[:3]).To(HaveEach(HaveField("Status", "running")))
		}).Should(Succeed())
		shown := status.Children
		for _, c := range shown[:3] {
			Expect(c.Title).To(BeElementOf("h0", "h1", "h2"))
		}
		Expect(shown[3:]).To(HaveEach(HaveField("Status", Not(Equal("running")))))
		Expect(slices.IsSortedFunc(shown, func(a, b skeinv1.ChildStatus) int {
			return cmp.Or(cmp.Compare(ended(a), ended(b)), cmp.Compare(b.CreatedAt, a.CreatedAt))
		})).To(BeTrue(), "%+v", shown)
		oldest := shown[len(shown)-1].CreatedAt
		left := 0
		for _, s := range subagents(ctx, ns) {
			if !slices.ContainsFunc(shown, func(c skeinv1.ChildStatus) bool { return c.Reference == s.Name }) {
				left++
				Expect(s.Status.Entry.CreatedAt).To(BeNumerically("<=", oldest), "what is left out is older")
			}
		}
		Expect(left).To(Equal(67 - len(shown)))
		Expect(cluster.Kubectl(ctx, "-n", ns, "get", "subagents", "-o", "name")).To(WithTransform(func(s string) int { return strings.Count(s, "\n") }, Equal(67)), "kubectl get subagents lists all")
	}, SpecTimeout(4*time.Minute))

	It("take at most 16 KiB, however long their titles and descriptions are", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("^hang$", starts(2, "hang", "h")), harness.On("^done$", starts(32, "work", strings.Repeat("t", 400))), always("ok")}, worker,
			helper(many, func(s *skeinv1.AgentSubagent) { s.Description = strings.Repeat("d", 4000) }))
		say(ctx, t, 1, "hang")
		say(ctx, t, 2, "done")
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Running: 2, Completed: 32})))
			size, err := json.Marshal(o.Status.Children)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(size)).To(BeNumerically("<=", skeinv1.MaxStatusChildrenBytes+skeinv1.MaxStatusChildren))
			g.Expect(len(o.Status.Children)).To(And(BeNumerically(">", 10), BeNumerically("<", 34)))
			g.Expect(o.Status.Children[:2]).To(HaveEach(HaveField("Status", "running")))
			g.Expect(o.Status.Children[2]).To(And(HaveField("Description", HaveSuffix("d…")), HaveField("Title", HaveSuffix("t…"))))
		}).Should(Succeed())
	}, SpecTimeout(3*time.Minute))
})
