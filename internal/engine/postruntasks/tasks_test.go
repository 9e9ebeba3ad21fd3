package postruntasks_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/memory"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/postruntasks"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

func TestPostRunTasks(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute) // machines may be busy
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Tasks after runs")
}

var _ = Describe("Tasks after runs", Label("RUN-07"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		var err error
		w, err = enginetest.New(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		w.Logger = GinkgoLogr
		DeferCleanup(func() { Expect(w.Close()).To(Succeed()) })
	})
	start := func(change ...func(*engine.Options)) (stop func()) {
		GinkgoHelper()
		o := w.Options()
		for _, c := range change {
			c(&o)
		}
		if o.PostRun == nil {
			o.PostRun = postruntasks.Tasks(postruntasks.Options{Store: o.Threads.Store(), Definitions: w.Definitions, Models: w.Models})
		}
		e, err := engine.New(o)
		Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Start(ctx) }()
		stop = sync.OnceFunc(func() {
			cancel()
			Eventually(done).Should(Receive(BeNil()))
		})
		DeferCleanup(stop)
		return stop
	}
	script := func(name string, steps ...skeinv1.ScriptStep) *definition.Model {
		for i := range steps {
			steps[i].Times = ptr.To[int32](0)
		}
		return &definition.Model{Name: name, Version: name, Steps: steps, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderScripted, Pricing: &skeinv1.ModelPricing{Input: "1000"},
		}}
	}
	agent := func(name string, memory, titles *definition.Model, more ...func(*definition.Agent)) {
		answer := enginetest.Say("re: {{.Last.Content}}")
		answer.Times = ptr.To[int32](0)
		w.Definitions.Put(name, append([]func(*definition.Agent){enginetest.Script(answer), func(a *definition.Agent) { a.Memory, a.Titles = memory, titles }}, more...)...)
	}
	of := func(agent, user string) string {
		GinkgoHelper()
		id, err := w.Thread(context.Background(), agent, func(n *thread.NewThread) { n.UserID = user })
		Expect(err).NotTo(HaveOccurred())
		return id
	}
	unfinished := func(ctx context.Context) []store.RunRef {
		GinkgoHelper()
		runs, err := w.Store.PostRunPending(ctx, time.Now().Add(time.Hour).UnixMicro(), 0)
		Expect(err).NotTo(HaveOccurred())
		return runs
	}
	// say waits for the run, and for what follows it.
	say := func(ctx context.Context, id, text string) {
		GinkgoHelper()
		before, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Send(ctx, id, text)).To(Succeed())
		Eventually(func(g Gomega) {
			runs, err := w.Runs(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(runs)).To(BeNumerically(">", len(before)))
			for _, r := range runs {
				g.Expect(r.Status.Ended()).To(BeTrue())
			}
			g.Expect(unfinished(ctx)).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}
	embedder := script("embedder", enginetest.Say("unused"))
	remembered := func(ctx context.Context, agentName, user, text string) []string {
		GinkgoHelper()
		a, err := w.Definitions.Agent(ctx, enginetest.Namespace, agentName)
		Expect(err).NotTo(HaveOccurred())
		v, err := memory.Embed(ctx, w.Models, func(_, t string) string { return t }, a, text)
		Expect(err).NotTo(HaveOccurred())
		found, err := w.Store.Nearest(ctx, store.NearestQuery{Namespace: enginetest.Namespace, Agent: agentName, UserID: user, Space: v.Space, Vector: v.Vectors[0]})
		Expect(err).NotTo(HaveOccurred())
		out := []string{}
		for _, f := range found {
			out = append(out, string(f.Message.Role)+": "+*f.Message.Content)
		}
		return out
	}
	records := func(ctx context.Context, id string) (tasks []string) {
		GinkgoHelper()
		list, err := w.Store.UsageRecords(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range list {
			tasks = append(tasks, strings.TrimSpace(r.Task+" "+strings.Join(r.Usage.Models, ",")))
		}
		return tasks
	}
	title := func(ctx context.Context, id string) string {
		GinkgoHelper()
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		return t.Title
	}

	It("keep what was said last, of the user and in answer, and say what that used", func(ctx SpecContext) {
		agent("a", embedder, nil)
		start()
		id := of("a", "ada")
		say(ctx, id, "the warehouse in Oslo is closed")
		say(ctx, id, "pears cost four crowns")
		Expect(remembered(ctx, "a", "ada", "which warehouse is closed")).To(HaveExactElements(
			ContainSubstring("the warehouse in Oslo is closed"), ContainSubstring("the warehouse in Oslo is closed"),
			ContainSubstring("pears"), ContainSubstring("pears")))
		Expect(remembered(ctx, "a", "bob", "which warehouse is closed")).To(BeEmpty())
		Expect(records(ctx, id)).To(ConsistOf("a", "embeddings embedder", "a", "embeddings embedder"))
		sum, err := w.Store.Usage(ctx, store.UsageQuery{ThreadID: id})
		Expect(err).NotTo(HaveOccurred())
		Expect(sum.Cost).To(BeNumerically("~", 0.022, 1e-9), "22 words at 1000 a million")
	})

	It("give a title of three to six words once the user has said two things, and never another", func(ctx SpecContext) {
		agent("a", nil, script("namer", enginetest.Say(`Title: "**The closed warehouse in Oslo.**"`)))
		start()
		id := of("a", "")
		say(ctx, id, "one")
		Expect(title(ctx, id)).To(BeEmpty())
		say(ctx, id, "two")
		Expect(title(ctx, id)).To(Equal("The closed warehouse in Oslo"))
		Expect(w.Store.Apply(ctx, id, nil, &store.UpdateThread{Title: ptr.To("Mine")})).To(Succeed())
		say(ctx, id, "three")
		Expect(title(ctx, id)).To(Equal("Mine"))
		Expect(records(ctx, id)).To(ConsistOf("title namer", "a", "a", "a"))
	})

	It("show the model of titles no half of a secret, where what was said is cut", func(ctx SpecContext) {
		half := enginetest.Say("A half was shown")
		half.When = &skeinv1.ScriptMatch{Matches: "s3c"}
		agent("a", nil, script("namer", half, enginetest.Say("Nothing of it shown")))
		start(func(o *engine.Options) {
			o.PostRun = postruntasks.Tasks(postruntasks.Options{Store: o.Threads.Store(), Definitions: w.Definitions, Models: w.Models,
				Redact: func(_, text string) string { return strings.ReplaceAll(text, "s3cret", "[redacted]") }})
		})
		id := of("a", "")
		say(ctx, id, strings.Repeat("x", 597)+"s3cret")
		say(ctx, id, "two")
		Expect(title(ctx, id)).To(Equal("Nothing of it shown"))
	})

	It("report a failure once, without holding anything up, and go on with the next run", func(ctx SpecContext) {
		broken := script("namer", skeinv1.ScriptStep{Error: "the key s3cret is not taken"})
		agent("a", embedder, broken)
		start(func(o *engine.Options) {
			o.Redact = func(_, text string) string { return strings.ReplaceAll(text, "s3cret", "[redacted]") }
		})
		id := of("a", "")
		say(ctx, id, "one")
		say(ctx, id, "two")
		Expect(remembered(ctx, "a", "", "two")).To(HaveLen(4), "the other task was done")
		failures := func() (out []string) {
			events, err := w.Store.Events(ctx, id, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			for _, e := range events {
				if e.Type == store.EventTaskFailed {
					out = append(out, string(e.Data))
				}
			}
			return out
		}
		Expect(failures()).To(ConsistOf(MatchJSON(`{"task":"title","error":"the key [redacted] is not taken"}`)))
		agent("a", embedder, script("namer2", enginetest.Say("no")))
		say(ctx, id, "three")
		Expect(failures()).To(HaveLen(2))
		Expect(failures()[1]).To(ContainSubstring("a title has 3 to 6"))
		agent("a", embedder, script("namer3", enginetest.Say("Counting up to four")))
		say(ctx, id, "four")
		Expect(title(ctx, id)).To(Equal("Counting up to four"))
	})

	It("are done again, and counted once, when the manager is lost among them", func(ctx SpecContext) {
		agent("a", embedder, script("namer", enginetest.Say("Counting up to two")))
		id := of("a", "")
		gate := &enginetest.Gate{Store: w.Store}
		runs := 0
		var mu sync.Mutex
		stop := start(func(o *engine.Options) {
			o.Threads = w.Over(gate)
			o.Faults = func(p string) {
				if p == "tasks.before" {
					mu.Lock()
					defer mu.Unlock()
					if runs++; runs == 2 {
						gate.Cut()
					}
				}
			}
		})
		say(ctx, id, "one")
		Expect(w.Send(ctx, id, "two")).To(Succeed())
		Eventually(gate.IsCut).Should(BeTrue())
		stop()
		Expect(unfinished(ctx)).To(HaveLen(1), "the manager was lost before it was known that all is done")
		want := []string{"a", "a", "embeddings embedder", "embeddings embedder", "title namer"}
		Expect(records(ctx, id)).To(ConsistOf(want))
		start(func(o *engine.Options) {
			o.PostRunTimeout, o.LeaseTTL, o.SweepInterval = 50*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond
			tasks := postruntasks.Tasks(postruntasks.Options{Store: w.Store, Definitions: w.Definitions, Models: w.Models})
			o.PostRun = tasks
		})
		Eventually(unfinished).WithContext(ctx).Should(BeEmpty())
		Expect(records(ctx, id)).To(ConsistOf(want))
		Expect(remembered(ctx, "a", "", "two")).To(HaveLen(4))
		Expect(title(ctx, id)).To(Equal("Counting up to two"))
	})

	It("cost a run nothing that has none to follow it", func(ctx SpecContext) {
		agent("a", nil, nil)
		start(func(o *engine.Options) {
			tasks := postruntasks.Tasks(postruntasks.Options{Store: w.Store, Definitions: w.Definitions, Models: w.Models})
			for i := range tasks {
				tasks[i].Do = func(context.Context, postrun.Run) error { panic("not due") }
			}
			o.PostRun = tasks
		})
		id := of("a", "")
		say(ctx, id, "one")
		run, err := w.Store.Run(ctx, id, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(run.State).To(BeNil())
	})

	It("let a model find what was said, to its own user only", Label("RUN-08"), func(ctx SpecContext) {
		search := enginetest.Call("search_memory", map[string]any{"query": "closed warehouse", "limit": 2})
		search.When = &skeinv1.ScriptMatch{Role: "user", Matches: "^search"}
		search.Times = ptr.To[int32](0)
		agent("a", embedder, nil, enginetest.Builtin(skeinv1.BuiltinMemory), func(a *definition.Agent) {
			a.A.Model.Steps = append([]skeinv1.ScriptStep{search}, a.A.Model.Steps...)
		})
		start()
		for _, user := range []string{"ada", "bob"} {
			id := of("a", user)
			say(ctx, id, "the warehouse in "+user+" town is closed")
			say(ctx, id, "pears cost four crowns")
		}
		id := of("a", "ada")
		say(ctx, id, "search")
		messages, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		var found struct {
			Messages []struct {
				Thread, Role, Content, At string
				Score                     float64
			} `json:"messages"`
		}
		Expect(messages[2].ToolStatus).To(Equal("success"), *messages[2].Content)
		Expect(json.Unmarshal([]byte(*messages[2].Content), &found)).To(Succeed())
		Expect(found.Messages).To(HaveLen(2))
		for _, m := range found.Messages {
			Expect(m.Content).To(ContainSubstring("the warehouse in ada town is closed"))
			Expect(m.Score).To(BeNumerically(">", 0.4))
		}
		Expect(records(ctx, id)).To(ContainElement(And(HavePrefix("search "), HaveSuffix(" embedder"))))
	})
})
