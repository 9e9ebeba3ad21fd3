package conformance

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// atOnce is how many children are asked for at the same time.
const atOnce = 20

// crowd declares an agent that starts twenty children in one step when it is told "go", and threads of it. The children run the
// agent worker, whose model plays the steps.
func crowd(ctx SpecContext, ns string, kind skeinv1.AgentSubagent, worker []skeinv1.ScriptStep, threads ...string) {
	GinkgoHelper()
	var all skeinv1.ScriptStep
	for range atOnce {
		all.ToolCalls = append(all.ToolCalls, harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "work"}).ToolCalls...)
	}
	for _, name := range []string{"parent", "worker"} {
		prompt := harness.Prompt(ns, name, name, "builtin:subagents")
		prompt.Spec.ParallelToolCalls = true
		create(ctx, prompt, harness.Agent(ns, name, name, func(s *skeinv1.AgentSpec) { s.Subagents = []skeinv1.AgentSubagent{kind} }))
	}
	create(ctx, harness.Scripted(ns, "parent", harness.On("^go$", all), always("started")), harness.Scripted(ns, "worker", worker...))
	for _, name := range threads {
		create(ctx, harness.NewThread(ns, name, "parent"))
		ready(ctx, cluster.Thread(ns, name))
	}
}

// refusals returns how many results of subagent_create in a conversation are errors with a text.
func refusals(ctx SpecContext, ns, thread, says string) (n int) {
	GinkgoHelper()
	for _, m := range must(cluster.Thread(ns, thread).Messages(ctx)) {
		if m.Role == runtimev1.RoleTool && m.Name == "subagent_create" && m.ToolStatus == runtimev1.ToolError && strings.Contains(text(m), says) {
			n++
		}
	}
	return n
}

// requested has a thread's tool start so many children at once, by requests, and returns the errors of those that were refused.
func requested(ctx SpecContext, t *runtimeclient.Thread, times int) (errors []string) {
	GinkgoHelper()
	results := make([]*runtimev1.ToolResult, times)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			defer GinkgoRecover()
			var err error
			results[i], err = t.InvokeTool(ctx, "subagent_create", map[string]any{"agent": "helper", "message": "work"})
			Expect(err).NotTo(HaveOccurred())
		})
	}
	all.Wait()
	for _, r := range results {
		if r != nil && r.Status == runtimev1.ToolError {
			errors = append(errors, r.Error)
		}
	}
	return errors
}

var _ = Describe("The limits of subagents, with twenty calls at once", Label("SUB-03"), func() {
	never := []skeinv1.ScriptStep{harness.Slow(time.Hour, harness.Answer("late"))}
	many := helper(func(s *skeinv1.AgentSubagent) { s.MaxInstances, s.Resumable = 100, true })

	It("hold for a kind, for calls of the model and by requests", func(ctx SpecContext) {
		ns := namespace(ctx)
		crowd(ctx, ns, helper(func(s *skeinv1.AgentSubagent) { s.MaxInstances = 3 }), never, "asked", "requested")
		Expect(cluster.Thread(ns, "asked").Say(ctx, "go")).To(Succeed())
		settled(ctx, cluster.Thread(ns, "asked"), 1)
		const says = "there are 3 subagents helper at the same time, which is the limit (maxInstances): wait until one is done"
		Expect(refusals(ctx, ns, "asked", says)).To(Equal(atOnce - 3))
		Expect(requested(ctx, conversation(cluster.Thread(ns, "requested")), atOnce)).To(And(HaveLen(atOnce-3), HaveEach(ContainSubstring(says))))
		Expect(subagents(ctx, ns)).To(HaveLen(6), "each parent has as many as it may")
	}, SpecTimeout(2*time.Minute))

	It("hold as the manager sets them: of depth, of a thread, and of a namespace", Serial, outages, func(ctx SpecContext) {
		ns := namespace(ctx)
		instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{
			"--subagent-depth=2", "--thread-subagents=3", "--namespace-subagents=7", "--namespaces=" + ns}})
		down := harness.On("^down$", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "down"}))
		crowd(ctx, ns, many, []skeinv1.ScriptStep{down, harness.After("subagent_create", harness.Answer("so: {{ .Last.Content }}")), never[0]}, "one", "two", "three", "four")
		// first has the parents that are told to start their children at once, and returns when all have.
		first := func(threads ...string) {
			GinkgoHelper()
			for _, name := range threads {
				Expect(cluster.Thread(ns, name).Say(ctx, "go")).To(Succeed())
			}
			for _, name := range threads {
				settled(ctx, cluster.Thread(ns, name), 1)
			}
		}

		By("starting more children of a thread than it may have")
		first("one")
		const ofThread = "this conversation has 3 subagents, which is the limit: wait until one is done, or send a message to one of them"
		Expect(refusals(ctx, ns, "one", ofThread)).To(Equal(atOnce - 3))
		Expect(subagents(ctx, ns)).To(HaveLen(3))
		Expect(requested(ctx, conversation(cluster.Thread(ns, "one")), atOnce)).To(And(HaveLen(atOnce), HaveEach(ContainSubstring(ofThread))))

		By("starting more children in a namespace than it may have, by two threads at the same time")
		first("two", "three")
		const ofNamespace = "the conversations of this namespace have 7 subagents, which is the limit: try again later, or do this task yourself"
		Expect(subagents(ctx, ns)).To(HaveLen(7))
		refused := 0
		for _, name := range []string{"two", "three"} {
			refused += refusals(ctx, ns, name, ofThread) + refusals(ctx, ns, name, ofNamespace)
		}
		Expect(refused).To(Equal(2*atOnce - 4))
		Expect(requested(ctx, conversation(cluster.Thread(ns, "four")), atOnce)).To(And(HaveLen(atOnce), HaveEach(ContainSubstring(ofNamespace))))

		By("ending one, whose place another takes")
		Expect(cluster.Thread(ns, subagents(ctx, ns)[0].Name).Terminate(ctx)).To(Succeed())
		Expect(requested(ctx, conversation(cluster.Thread(ns, "four")), atOnce)).To(And(HaveLen(atOnce-1), HaveEach(ContainSubstring(ofNamespace))))

		By("nesting deeper than a thread may")
		for _, name := range []string{"one", "two", "three"} {
			Expect(cluster.Thread(ns, name).Terminate(ctx)).To(Succeed())
		}
		four := conversation(cluster.Thread(ns, "four"))
		result, err := four.InvokeTool(ctx, "subagent_create", map[string]any{"agent": "helper", "message": "down"})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Status).To(Equal(runtimev1.ToolSuccess), result.Error)
		const ofDepth = "subagents may nest 2 levels deep, and this conversation is at level 2: do this task yourself"
		lowest := ""
		Eventually(ctx, func(g Gomega) {
			for _, s := range subagents(ctx, ns) {
				if strings.HasPrefix(s.Spec.ParentRef.Name, "four-helper-") {
					lowest = s.Name
				}
			}
			g.Expect(lowest).NotTo(BeEmpty())
			g.Expect(cluster.Thread(ns, lowest).Messages(ctx)).NotTo(BeEmpty())
			g.Expect(refusals(ctx, ns, lowest, ofDepth)).To(Equal(1))
		}).Should(Succeed())
		Expect(requested(ctx, conversation(cluster.Thread(ns, lowest)), atOnce)).To(And(HaveLen(atOnce), HaveEach(ContainSubstring(ofDepth))))
		Expect(subagents(ctx, ns)).NotTo(ContainElement(HaveField("Spec.ParentRef.Name", lowest)))
	}, SpecTimeout(5*time.Minute))
})
