package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("What follows a run", Label("RUN-07"), func() {
	records := func(ctx context.Context, t *runtimeclient.Thread) map[string][]runtimev1.UsageRecord {
		GinkgoHelper()
		list, err := t.UsageRecords(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		out := map[string][]runtimev1.UsageRecord{}
		for _, r := range list.Records {
			out[r.Task] = append(out[r.Task], r)
		}
		return out
	}

	It("is a record of what it used, a title, and vectors of what was said", func(ctx SpecContext) {
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			harness.Say(w, req.Model, "counted")
		})
		DeferCleanup(server.Close)
		m := harness.OpenAI(ns, "model", server.URL, "")
		m.Spec.Pricing = &skeinv1.ModelPricing{Input: "100", Output: "1000"}
		create(ctx, m, harness.Embedder(ns, "embedder"), harness.Scripted(ns, "namer", always("\"Counting sheep at night.\"")),
			harness.Prompt(ns, "prompt", "model"),
			harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) {
				a.TitlePolicy, a.TitleModelRef = skeinv1.TitleAuto, &skeinv1.LocalRef{Name: "namer"}
				a.Memory = &skeinv1.AgentMemory{EmbeddingModelRef: skeinv1.LocalRef{Name: "embedder"}}
			}),
			harness.NewThread(ns, "thread", "agent"))
		h := ready(ctx, cluster.Thread(ns, "thread"))
		t := conversation(h)
		say(ctx, h, 1, "one sheep")
		Expect(t.Get(ctx)).To(HaveField("Title", BeEmpty()), "the user has said one thing only")
		say(ctx, h, 2, "two sheep")

		Eventually(ctx, func(g Gomega) {
			g.Expect(t.Get(ctx)).To(HaveField("Title", "Counting sheep at night"))
			found := records(ctx, t)
			g.Expect(found[""]).To(HaveLen(2))
			// The task of the first run too may come only when both things are said.
			g.Expect(found["title"]).To(And(Not(BeEmpty()), HaveEach(HaveField("Models", []string{"namer"}))))
			g.Expect(found["embeddings"]).To(HaveLen(2))
		}).Should(Succeed())
		for _, r := range records(ctx, t)[""] {
			Expect(r).To(And(HaveField("Models", []string{"model"}), HaveField("Status", "succeeded"), HaveField("Turns", int64(1)),
				HaveField("InputTokens", int64(10)), HaveField("OutputTokens", int64(5)), HaveField("Cost", BeNumerically("~", 0.006, 1e-9)),
				HaveField("EndedAt", BeNumerically(">=", r.StartedAt)), HaveField("RunID", HavePrefix("sess_"))))
		}
		words := records(ctx, t)["embeddings"]
		Expect(words[0].InputTokens + words[1].InputTokens).To(Equal(int64(6)))
		Eventually(ctx, func(g Gomega) {
			o, err := h.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Usage).To(HaveValue(And(HaveField("Runs", int64(2)), HaveField("Turns", int64(2)), HaveField("OutputTokens", int64(10)))))
			g.Expect(o.Spec.Title).To(BeEmpty(), "controllers write no spec")
		}).Should(Succeed())
		out, err := cluster.Plugin(ctx, "-n", ns, "usage", "thread", "--records")
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(out, "run succeeded")).To(Equal(2), out)
		Expect(out).To(MatchRegexp(`(?m)title +namer`))
		out, err = cluster.Plugin(ctx, "-n", ns, "usage", "--agent", "agent")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("COST"))
	}, SpecTimeout(5*time.Minute))

	It("delays no run, and a failing task stops no other and shows no secret", func(ctx SpecContext) {
		ns := namespace(ctx)
		const key = "sk-canary-of-the-title"
		goOn := make(chan struct{})
		server := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, _ harness.ChatRequest) {
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"the key ` + key + ` is wrong"}}`))
		})
		DeferCleanup(server.Close)
		namer := harness.OpenAI(ns, "namer", server.URL, "key")
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": key}}, namer, harness.Embedder(ns, "embedder"),
			harness.Scripted(ns, "model", always("noted")), harness.Prompt(ns, "prompt", "model"),
			harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) {
				a.TitlePolicy, a.TitleModelRef = skeinv1.TitleAuto, &skeinv1.LocalRef{Name: "namer"}
				a.Memory = &skeinv1.AgentMemory{EmbeddingModelRef: skeinv1.LocalRef{Name: "embedder"}}
			}),
			harness.NewThread(ns, "thread", "agent"))
		h := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, h, 1, "one")
		say(ctx, h, 2, "two")
		say(ctx, h, 3, "three, while the title of the second run hangs")
		t := conversation(h)
		Eventually(ctx, func() int { return len(records(ctx, t)["embeddings"]) }).Should(BeNumerically(">=", 1))
		close(goOn)
		Eventually(ctx, func(g Gomega) {
			var failed []string
			for e, err := range t.Events(ctx, runtimeclient.EventOptions{NoFollow: true}) {
				g.Expect(err).NotTo(HaveOccurred())
				if e.Type == runtimev1.EventTaskFailed {
					failed = append(failed, string(e.Data))
				}
			}
			g.Expect(failed).NotTo(BeEmpty())
			for _, f := range failed {
				g.Expect(f).To(And(ContainSubstring(`"title"`), Not(ContainSubstring(key))))
			}
		}).Should(Succeed())
		Expect(t.Get(ctx)).To(HaveField("Title", BeEmpty()))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("The memory of an agent", Label("RUN-08"), func() {
	It("finds what the same user said in other threads, and forgets what is deleted", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Embedder(ns, "embedder"),
			harness.Scripted(ns, "model", harness.On("^search", harness.Calls("search_memory", map[string]any{"query": "which warehouse is closed", "limit": 4})),
				always("noted")),
			harness.Prompt(ns, "prompt", "model", "builtin:memory"),
			harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) {
				a.Memory = &skeinv1.AgentMemory{EmbeddingModelRef: skeinv1.LocalRef{Name: "embedder"}}
			}))
		of := func(name, user string) *harness.Thread {
			GinkgoHelper()
			create(ctx, harness.NewThread(ns, name, "agent", func(s *skeinv1.ThreadSpec) { s.UserID = user }))
			return ready(ctx, cluster.Thread(ns, name))
		}
		said := map[string]*harness.Thread{}
		for _, user := range []string{"ada", "bob"} {
			said[user] = of(user+"-1", user)
			say(ctx, said[user], 1, "the warehouse in the town of "+user+" is closed")
			Eventually(ctx, func(g Gomega) {
				l, err := conversation(said[user]).UsageRecords(ctx, runtimeclient.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.Records).To(ContainElement(HaveField("Task", "embeddings")))
			}).Should(Succeed())
		}
		asking := of("ada-2", "ada")
		content, status := result(say(ctx, asking, 1, "search"), "search_memory")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(And(ContainSubstring("the town of ada"), Not(ContainSubstring("bob"))))
		var found struct{ Messages []map[string]any }
		Expect(json.Unmarshal([]byte(content), &found)).To(Succeed())
		Expect(found.Messages[0]).To(And(HaveKeyWithValue("thread", "ada-1"), HaveKeyWithValue("role", "user"), HaveKey("at"), HaveKey("score")))

		t := conversation(asking)
		hits := func(g Gomega, o runtimeclient.MemoryOptions) (out []string) {
			l, err := t.SearchMemory(ctx, "warehouse closed", o)
			g.Expect(err).NotTo(HaveOccurred())
			for _, h := range l.Hits {
				if strings.Contains(text(h.Message), "warehouse") {
					out = append(out, h.Thread+" "+text(h.Message))
				}
			}
			return out
		}
		here := NewWithT(GinkgoT())
		Expect(hits(here, runtimeclient.MemoryOptions{})).To(Equal([]string{"ada-1 user: the warehouse in the town of ada is closed"}))
		Expect(hits(here, runtimeclient.MemoryOptions{Since: time.Now().Add(time.Hour)})).To(BeEmpty())
		Expect(hits(here, runtimeclient.MemoryOptions{Until: time.Now().Add(-time.Hour)})).To(BeEmpty())
		out, err := cluster.Plugin(ctx, "-n", ns, "memory", "ada-2", "warehouse closed")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("town of ada"), Not(ContainSubstring("bob"))))
		_, err = t.SearchMemory(ctx, " ", runtimeclient.MemoryOptions{})
		Expect(err).To(Satisfy(apierrors.IsInvalid), "%v", err)

		ms, err := said["ada"].Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(conversation(said["ada"]).DeleteMessage(ctx, ms[0].ID)).To(BeTrue())
		Expect(hits(here, runtimeclient.MemoryOptions{})).To(BeEmpty())
		Expect(said["bob"].Delete(ctx)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("keeps apart what two visitors of a gateway said, whom it does not know", Label("IDS-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		g := gatewayOf(ns, "chat", "agent")
		create(ctx, gatewayKeys(ns), harness.Embedder(ns, "embedder"),
			harness.Scripted(ns, "model", harness.On("^search", harness.Calls("search_memory", map[string]any{"query": "which warehouse is closed"})), always("noted")),
			harness.Prompt(ns, "prompt", "model", "builtin:memory"),
			harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) {
				a.Memory = &skeinv1.AgentMemory{EmbeddingModelRef: skeinv1.LocalRef{Name: "embedder"}}
			}), g)
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		tells := func(c *http.Client, text string) {
			GinkgoHelper()
			Expect(knock(ctx, c, "POST", ns, "chat/v1/message", said(text)).status).To(Equal(200))
		}
		first, second := browser(), browser()
		tells(first, "the warehouse in the town of ada is closed")
		made := madeThreads(ctx, ns)
		Expect(made).To(HaveLen(1))
		Eventually(ctx, func(g Gomega) {
			l, err := conversation(cluster.Thread(ns, made[0].Name)).UsageRecords(ctx, runtimeclient.Page{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(l.Records).To(ContainElement(HaveField("Task", "embeddings")))
		}).Should(Succeed())
		tells(first, "search")
		tells(second, "search")
		found := map[bool]string{}
		for _, t := range madeThreads(ctx, ns) {
			ms, err := cluster.Thread(ns, t.Name).Messages(ctx)
			Expect(err).NotTo(HaveOccurred())
			content, status := result(ms, "search_memory")
			Expect(status).To(Equal("success"), content)
			found[t.Name == made[0].Name] = content
		}
		Expect(found).To(HaveLen(2))
		Expect(found[true]).To(ContainSubstring("the town of ada"))
		Expect(found[false]).NotTo(ContainSubstring("ada"))
	}, SpecTimeout(5*time.Minute))

	It("leaves Models for embeddings to memory: what has to write is not Ready with one, until it is corrected", Label("AGT-06", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		vectors := harness.Scripted(ns, "vectors", always("noted"))
		vectors.Spec.Capabilities = &skeinv1.ModelCapabilities{Embeddings: ptr.To(true)}
		model, prompt := harness.Scripted(ns, "model", always("noted")), harness.Prompt(ns, "prompt", "vectors")
		model.Spec.Fallbacks = []skeinv1.LocalRef{{Name: "vectors"}}
		create(ctx, vectors)
		all := func(each map[client.Object]func() []metav1.Condition, matches OmegaMatcher) {
			GinkgoHelper()
			for o, conditions := range each {
				Eventually(ctx, func(g Gomega) {
					g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
					g.Expect(conditions()).To(ContainElement(matches))
				}).Should(Succeed(), "%T", o)
			}
		}
		all(map[client.Object]func() []metav1.Condition{vectors: func() []metav1.Condition { return vectors.Status.Conditions }}, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		create(ctx, model, prompt)
		both := map[client.Object]func() []metav1.Condition{
			model: func() []metav1.Condition { return model.Status.Conditions }, prompt: func() []metav1.Condition { return prompt.Status.Conditions },
		}
		all(both, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring(`names Model "vectors", which is for embeddings only`))))
		was := vectors.DeepCopy()
		vectors.Spec.Capabilities = nil
		Expect(cluster.Client.Patch(ctx, vectors, client.MergeFrom(was))).To(Succeed())
		all(both, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}, SpecTimeout(5*time.Minute))

	It("needs a model that gives embeddings, and says so until it has one", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", always("noted")), harness.Scripted(ns, "vectors", harness.Answer("none")),
			harness.Prompt(ns, "prompt", "model", "builtin:memory"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		agent := &skeinv1.Agent{}
		said := func(message string) func(Gomega) {
			return func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "agent"}, agent)).To(Succeed())
				g.Expect(agent.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse), HaveField("Message", ContainSubstring(message)))))
			}
		}
		Eventually(ctx, said("set spec.memory.embeddingModelRef")).Should(Succeed())
		before := agent.DeepCopy()
		agent.Spec.Memory = &skeinv1.AgentMemory{EmbeddingModelRef: skeinv1.LocalRef{Name: "vectors"}}
		Expect(cluster.Client.Patch(ctx, agent, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, said("spec.capabilities.embeddings: true")).Should(Succeed())
		model := &skeinv1.Model{}
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "vectors"}, model)).To(Succeed())
		was := model.DeepCopy()
		model.Spec.Capabilities = &skeinv1.ModelCapabilities{Embeddings: ptr.To(true)}
		Expect(cluster.Client.Patch(ctx, model, client.MergeFrom(was))).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "agent"}, agent)).To(Succeed())
			g.Expect(agent.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
		}).Should(Succeed(), "it heals by itself")
	}, SpecTimeout(5*time.Minute))
})
