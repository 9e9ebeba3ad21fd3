package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// anyTime returns a step that is played any number of times.
func anyTime(s skeinv1.ScriptStep) skeinv1.ScriptStep {
	s.Times = new(int32)
	return s
}

// summarising are the steps of a model that writes the summary of a handoff, and what else it is asked.
func summarising(summary string, steps ...skeinv1.ScriptStep) []skeinv1.ScriptStep {
	return append([]skeinv1.ScriptStep{anyTime(harness.On("^Goal of the new conversation: ", harness.Answer(summary)))}, append(steps, always("heard"))...)
}

// related gives the relationships of a thread.
func related(ctx context.Context, t *harness.Thread) []runtimev1.Relationship {
	GinkgoHelper()
	list, err := conversation(t).Relationships(ctx, runtimeclient.Page{})
	Expect(err).NotTo(HaveOccurred())
	return list.Relationships
}

// idOf gives the id of a thread.
func idOf(ctx context.Context, t *harness.Thread) string {
	GinkgoHelper()
	rec, err := conversation(t).Get(ctx)
	Expect(err).NotTo(HaveOccurred())
	return rec.ThreadID
}

// mirrored gives a relationship as the other end must have it.
func mirrored(r runtimev1.Relationship, id string) runtimev1.Relationship {
	r.ThreadID = id
	r.Role = map[string]string{"parent": "child", "child": "parent"}[r.Role]
	return r
}

var _ = Describe("A context handoff", Label("REL-03", "REL-01"), func() {
	It("starts a thread from a goal, a summary and files, and leaves the old one as it was", Label("K8S-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		canary := newCanaries("goal", "summary", "title", "comment")
		old := converse(ctx, ns, nil, summarising("apples cost 3 "+canary["summary"]))
		create(ctx, harness.Scripted(ns, "next", always("next: {{.Last.Content}}")), harness.Prompt(ns, "next", "next"), harness.Agent(ns, "next", "next"))
		ms := say(ctx, old, 1, "what do apples cost?")
		Expect(old.WriteFile(ctx, "/price.csv", "text/csv", []byte("apples;3"))).To(Succeed())
		Eventually(ctx, func() (string, error) {
			return cluster.Kubectl(ctx, "-n", ns, "get", "agent", "next", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		}).Should(Equal("True"))
		request := []string{"-n", ns, "handoff", "thread", "--goal", "sell apples " + canary["goal"], "--agent", "next", "--file", "/price.csv",
			"--comment", canary["comment"], "--title", canary["title"], "--idempotency-key", "k"}
		out, err := cluster.Plugin(ctx, request...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`^thread/thread-handoff-\S+ created with the agent next\n$`))
		name := strings.Fields(strings.TrimPrefix(out, "thread/"))[0]
		next := ready(ctx, cluster.Thread(ns, name))

		By("reading both conversations")
		said := settled(ctx, next, 1)
		Expect(said).To(HaveLen(2))
		Expect(text(said[0])).To(And(HavePrefix("user: sell apples "+canary["goal"]), ContainSubstring("apples cost 3 "+canary["summary"]), ContainSubstring("T-"+idOf(ctx, old))))
		Expect(said[0].Attachments).To(HaveExactElements(HaveField("Path", "/attachments/price.csv")))
		Expect(next.ReadFile(ctx, "/attachments/price.csv")).To(BeEquivalentTo("apples;3"))
		Expect(old.Messages(ctx)).To(Equal(ms), "the old thread stays as it was")
		own := related(ctx, old)
		Expect(own).To(HaveExactElements(And(HaveField("Type", "handoff"), HaveField("Role", "parent"), HaveField("ThreadID", idOf(ctx, next)),
			HaveField("MessageIndex", HaveValue(BeEquivalentTo(len(ms)-1))), HaveField("Comment", canary["comment"]), HaveField("CreatedAt", BeNumerically(">", 0)))))
		Expect(related(ctx, next)).To(HaveExactElements(mirrored(own[0], idOf(ctx, old))))
		rec, err := conversation(next).Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(*rec).To(And(HaveField("Title", canary["title"]), HaveField("AgentID", "next"), HaveField("ParentID", "")))

		By("looking for what was said in the objects")
		all, err := cluster.Kubectl(ctx, "-n", ns, "get", "threads,subagents,events", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(ContainSubstring(name))
		Expect(canary.in(all)).To(BeEmpty())

		By("counting the summary with the old thread")
		used, err := cluster.Plugin(ctx, "-n", ns, "usage", "thread", "--records")
		Expect(err).NotTo(HaveOccurred())
		Expect(used).To(ContainSubstring("handoff "))

		By("repeating it")
		again, err := cluster.Plugin(ctx, request...)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(ContainSubstring(name))
		_, err = cluster.Plugin(ctx, "-n", ns, "handoff", "thread", "--goal", "sell pears", "--idempotency-key", "k")
		Expect(err).To(MatchError(ContainSubstring("this key was used for another request")))

		By("drawing it")
		drawn, err := cluster.Plugin(ctx, "-n", ns, "map", name)
		Expect(err).NotTo(HaveOccurred())
		Expect(drawn).To(MatchRegexp(`^thread  .*\n└─handoff at message \d+: ` + name + `  \(this thread\)`))
		Expect(cluster.Plugin(ctx, "-n", ns, "map", name, "-o", "mermaid")).To(ContainSubstring("==>|handoff at message"))
		Expect(cluster.Plugin(ctx, "-n", ns, "map", name, "-o", "dot")).To(ContainSubstring("style=bold"))

		By("deleting the new thread with all that is stored of it")
		Expect(next.Delete(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := conversation(next).Get(ctx); return err }).Should(MatchError(runtimeclient.ErrNotFound))
		Expect(cluster.Plugin(ctx, "-n", ns, "retained")).To(ContainSubstring("No retained threads"))
	}, SpecTimeout(4*time.Minute))

	It("is made once for each key, twenty at once", func(ctx SpecContext) {
		ns := namespace(ctx)
		old := converse(ctx, ns, nil, summarising("short"))
		say(ctx, old, 1, "hello")
		var mu sync.Mutex
		names := map[string]int{}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				made, err := conversation(old).HandOff(ctx, runtimev1.ContextHandoff{Goal: "go on", IdempotencyKey: fmt.Sprint("k", i%4)})
				Expect(err).NotTo(HaveOccurred())
				mu.Lock()
				defer mu.Unlock()
				names[made.Name]++
			})
		}
		all.Wait()
		Expect(names).To(HaveLen(4))
		id, own := idOf(ctx, old), related(ctx, old)
		Expect(own).To(HaveLen(4))
		for name, n := range names {
			Expect(n).To(Equal(5))
			next := ready(ctx, cluster.Thread(ns, name))
			Expect(settled(ctx, next, 1)).To(HaveLen(2))
			Expect(own).To(ContainElement(mirrored(related(ctx, next)[0], idOf(ctx, next))))
			Expect(related(ctx, next)).To(HaveExactElements(HaveField("ThreadID", id)))
		}
	}, SpecTimeout(4*time.Minute))

	It("is made by a model, whose thread goes on", func(ctx SpecContext) {
		ns := namespace(ctx)
		old := converse(ctx, ns, []string{"builtin:handoff"}, summarising("short",
			harness.On("^go$", harness.Calls("handoff", map[string]any{"goal": "buy pears", "comment": "other fruit"})),
			harness.On("^shy$", harness.Calls("handoff", map[string]any{"goal": "x", "agent": "shy"}))))
		create(ctx, harness.Scripted(ns, "shy", always("shy")), harness.Prompt(ns, "shy", "shy"), harness.Agent(ns, "shy", "shy"))
		ms := say(ctx, old, 1, "go")
		content, outcome := result(ms, "handoff")
		Expect(outcome).To(Equal("success"), content)
		Expect(last(ms)).To(Equal("heard"))
		own := related(ctx, old)
		Expect(own).To(HaveExactElements(And(HaveField("Type", "handoff"), HaveField("Comment", "other fruit"))))
		Expect(content).To(ContainSubstring(own[0].ThreadID))
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() (int, error) {
			list, err := c.Thread(ns, own[0].ThreadID).Messages(ctx, runtimeclient.MessageOptions{})
			if err != nil {
				return 0, err
			}
			return len(list.Messages), nil
		}).Should(Equal(2))
		content, outcome = result(say(ctx, old, 2, "shy"), "handoff")
		Expect(outcome).To(Equal("error"))
		Expect(content).To(Or(ContainSubstring("exposeAsTool"), ContainSubstring("shy cannot take the thread")))
	}, SpecTimeout(3*time.Minute))

	It("is refused with what to do instead", func(ctx SpecContext) {
		ns := namespace(ctx)
		old := converse(ctx, ns, nil, summarising("short"))
		refused := func(kind error, text string, h runtimev1.ContextHandoff) {
			GinkgoHelper()
			_, err := conversation(old).HandOff(ctx, h)
			Expect(err).To(MatchError(kind))
			Expect(err).To(MatchError(ContainSubstring(text)))
		}
		refused(runtimeclient.ErrInvalid, "no messages to hand off", runtimev1.ContextHandoff{Goal: "x"})
		say(ctx, old, 1, "hello")
		refused(runtimeclient.ErrInvalid, "say what the new thread is to do", runtimev1.ContextHandoff{})
		refused(runtimeclient.ErrInvalid, `"nobody" does not exist`, runtimev1.ContextHandoff{Goal: "x", Agent: "nobody"})
		refused(runtimeclient.ErrInvalid, "no file /none", runtimev1.ContextHandoff{Goal: "x", Files: []string{"/none"}})
		refused(runtimeclient.ErrInvalid, "at most 10", runtimev1.ContextHandoff{Goal: "x", Files: strings.Split(strings.Repeat("/f,", 10)+"/f", ",")})
		_, err := cluster.Plugin(ctx, "-n", ns, "handoff", "thread")
		Expect(err).To(MatchError(ContainSubstring("--goal is missing")))
		Expect(old.Terminate(ctx)).To(Succeed())
		refused(runtimeclient.ErrTerminated, "terminated", runtimev1.ContextHandoff{Goal: "x"})
		Expect(related(ctx, old)).To(BeEmpty())
	}, SpecTimeout(3*time.Minute))
})

var _ = Describe("Reading another thread", Label("REL-04", "REL-01"), func() {
	// readers declares an agent that reads the thread that a message names.
	readers := func(ctx SpecContext, ns string, rights skeinv1.ReadThreads) {
		GinkgoHelper()
		read := harness.Calls("read_thread", map[string]any{"thread": "{{.Last.Content}}", "goal": "the price of apples"})
		read.When = &skeinv1.ScriptMatch{Role: "user"}
		create(ctx, harness.Scripted(ns, "reader", anyTime(read), always("read")), harness.Prompt(ns, "reader", "reader", "builtin:threads"),
			harness.Agent(ns, "reader", "reader", func(s *skeinv1.AgentSpec) { s.ReadThreads = rights }))
	}
	reader := func(ctx SpecContext, ns, name string, edit ...func(*skeinv1.ThreadSpec)) *harness.Thread {
		GinkgoHelper()
		create(ctx, harness.NewThread(ns, name, "reader", edit...))
		return ready(ctx, cluster.Thread(ns, name))
	}
	ada := func(s *skeinv1.ThreadSpec) { s.UserID = "ada" }

	It("gives the conversation and keeps one mention, under the agent's rights", func(ctx SpecContext) {
		ns, abroad := namespace(ctx), namespace(ctx)
		shop := converse(ctx, ns, nil, []skeinv1.ScriptStep{always("apples cost 3")}, ada)
		create(ctx, harness.NewThread(ns, "nobodys", "agent"))
		foreign := converse(ctx, abroad, nil, []skeinv1.ScriptStep{always("apples cost 4")}, ada)
		say(ctx, shop, 1, "what do apples cost?")
		say(ctx, foreign, 1, "what do apples cost?")
		readers(ctx, ns, skeinv1.ReadThreadsSameUser)
		r := reader(ctx, ns, "reader", ada)
		id := idOf(ctx, shop)
		var first []runtimev1.Relationship
		for i, name := range []string{"thread", "@T-" + id, id[len(id)-12:]} {
			content, outcome := result(say(ctx, r, i+1, name), "read_thread")
			Expect(outcome).To(Equal("success"), content)
			Expect(content).To(And(ContainSubstring("what do apples cost?"), ContainSubstring("apples cost 3")))
			own := related(ctx, r)
			if first == nil {
				first = own
			}
			Expect(own).To(Equal(first), "a repeated mention changes nothing")
		}
		Expect(first).To(HaveExactElements(And(HaveField("Type", "mention"), HaveField("Role", "parent"), HaveField("ThreadID", id),
			HaveField("MessageIndex", HaveValue(BeEquivalentTo(1))))))
		Expect(related(ctx, shop)).To(HaveExactElements(mirrored(first[0], idOf(ctx, r))))

		for i, name := range []string{"nobodys", "no-such-thread", idOf(ctx, foreign), "reader"} {
			content, outcome := result(say(ctx, r, i+4, name), "read_thread")
			Expect(outcome).To(Equal("error"))
			if name == "reader" {
				Expect(content).To(ContainSubstring("this conversation itself"))
			} else {
				Expect(content).To(And(ContainSubstring("there is no thread"), ContainSubstring("same user"), ContainSubstring("readThreads")))
			}
		}
		Expect(related(ctx, r)).To(Equal(first))
		Expect(related(ctx, foreign)).To(BeEmpty())

		By("mentioning it by the API, which keeps the first too")
		kept, err := conversation(r).Relate(ctx, runtimev1.Relationship{ThreadID: id, Type: "mention", Role: "parent"})
		Expect(err).NotTo(HaveOccurred())
		Expect(*kept).To(Equal(first[0]))
	}, SpecTimeout(4*time.Minute))

	It("is for the family alone unless the agent says more", func(ctx SpecContext) {
		ns := namespace(ctx)
		say(ctx, converse(ctx, ns, nil, []skeinv1.ScriptStep{always("apples cost 3")}, ada), 1, "hello")
		readers(ctx, ns, "")
		content, outcome := result(say(ctx, reader(ctx, ns, "reader", ada), 1, "thread"), "read_thread")
		Expect(outcome).To(Equal("error"))
		Expect(content).To(ContainSubstring("family"))
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "agent", "reader", "--type=merge", "-p", `{"spec":{"readThreads":"Everything"}}`)
		Expect(err).To(MatchError(ContainSubstring(`"Namespace"`)), "admission says which values there are")
	}, SpecTimeout(3*time.Minute))

	It("lets parent and child read each other, unless the agent may read nothing", Label("SUB-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		read := harness.Calls("read_thread", map[string]any{"thread": "{{.Last.Content}}", "goal": "the price of apples"})
		start := func(kind string) skeinv1.ScriptStep {
			return harness.Calls("subagent_create", map[string]any{"agent": kind, "message": "thread", "name": kind})
		}
		mute := helper(func(s *skeinv1.AgentSubagent) { s.Name, s.AgentRef.Name, s.Blocking = "mute", "mute", true })
		create(ctx, harness.Scripted(ns, "parent", harness.On("apples cost 3", start("helper")), harness.On("^mute$", start("mute")), harness.On("^thread-helper-", read), always("heard")),
			harness.Prompt(ns, "parent", "parent", "builtin:threads", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true }), mute}
			}),
			harness.Scripted(ns, "worker", harness.On("^thread$", read), always("pears cost 4")), harness.Prompt(ns, "worker", "worker", "builtin:threads"), harness.Agent(ns, "worker", "worker"),
			harness.Agent(ns, "mute", "worker", func(s *skeinv1.AgentSpec) { s.ReadThreads = skeinv1.ReadThreadsNone }),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, t, 1, "apples cost 3")
		child := onlyChild(ctx, ns)
		content, outcome := result(settled(ctx, child, 1), "read_thread")
		Expect(outcome).To(Equal("success"), content)
		Expect(content).To(ContainSubstring("apples cost 3"))
		above := related(ctx, child)
		Expect(above).To(HaveExactElements(And(HaveField("Type", "mention"), HaveField("Role", "parent"), HaveField("ThreadID", idOf(ctx, t)))))
		Expect(related(ctx, t)).To(HaveExactElements(mirrored(above[0], idOf(ctx, child))))

		content, outcome = result(say(ctx, t, 2, child.Name), "read_thread")
		Expect(outcome).To(Equal("success"), content)
		Expect(content).To(ContainSubstring("pears cost 4"))
		Expect(related(ctx, t)).To(ContainElement(And(HaveField("Type", "mention"), HaveField("Role", "parent"), HaveField("ThreadID", idOf(ctx, child)))))

		By("reading with None")
		say(ctx, t, 3, "mute")
		for _, s := range subagents(ctx, ns) {
			if s.Spec.Name != "mute" {
				continue
			}
			below := cluster.Thread(ns, s.Name)
			content, outcome := result(settled(ctx, below, 1), "read_thread")
			Expect(outcome).To(Equal("error"))
			Expect(content).To(And(ContainSubstring("may read no other threads"), Not(ContainSubstring("apples"))))
			Expect(related(ctx, below)).To(BeEmpty())
			return
		}
		Fail("there is no child that may read nothing")
	}, SpecTimeout(3*time.Minute))

	It("keeps one mention each when twenty threads read one at once", func(ctx SpecContext) {
		ns := namespace(ctx)
		shop := converse(ctx, ns, nil, []skeinv1.ScriptStep{always("apples cost 3")})
		say(ctx, shop, 1, "hello")
		readers(ctx, ns, skeinv1.ReadThreadsNamespace)
		var threads []*harness.Thread
		for i := range 20 {
			create(ctx, harness.NewThread(ns, fmt.Sprint("reader-", i), "reader", func(s *skeinv1.ThreadSpec) { s.Message = "thread" }))
			threads = append(threads, cluster.Thread(ns, fmt.Sprint("reader-", i)))
		}
		id := idOf(ctx, shop)
		var want []runtimev1.Relationship
		for _, r := range threads {
			Eventually(ctx, func(g Gomega) {
				o, err := r.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
			}).Should(Succeed())
			_, outcome := result(settled(ctx, r, 1), "read_thread")
			Expect(outcome).To(Equal("success"))
			own := related(ctx, r)
			Expect(own).To(HaveExactElements(HaveField("ThreadID", id)))
			want = append(want, mirrored(own[0], idOf(ctx, r)))
		}
		Expect(related(ctx, shop)).To(ConsistOf(want))
	}, SpecTimeout(4*time.Minute))
})
