package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/window"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// listener is a model that keeps what it was given to read, and answers by a function of the number of the call.
type listener struct {
	answer func(call int, req model.Request) *model.Response

	mu      sync.Mutex
	read    []model.Request
	clients sync.Map // by the Model's name
}

func (r *listener) Client(c model.Config) (model.Client, error) {
	client, _ := r.clients.LoadOrStore(c.Name, window.Within(r, c.Name, c.Spec))
	return client.(model.Client), nil
}

func (r *listener) Stream(_ context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	r.mu.Lock()
	call := len(r.read)
	r.read = append(r.read, req)
	r.mu.Unlock()
	res := r.answer(call, req)
	if res.Reasoning != "" {
		emit(model.Delta{Reasoning: res.Reasoning})
	}
	if res.Content != "" {
		emit(model.Delta{Text: res.Content})
	}
	return res, nil
}

// requests gives all that was read so far.
func (r *listener) requests() []model.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]model.Request(nil), r.read...)
}

// system gives the system prompts of all calls so far.
func (r *listener) system() (out []string) {
	for _, req := range r.requests() {
		out = append(out, req.Messages[0].Content)
	}
	return out
}

// listening lets a model that answers by a function take the place of the world's.
func listening(w *enginetest.World, answer func(call int, req model.Request) *model.Response) *listener {
	r := &listener{answer: answer}
	w.Models = r
	return r
}

func says(text string) func(int, model.Request) *model.Response {
	return func(int, model.Request) *model.Response { return &model.Response{Content: text} }
}

// toolCall is an answer that calls a tool.
func toolCall(name, args string) *model.Response {
	return &model.Response{ToolCalls: []model.ToolCall{{ID: "call-" + name, Name: name, Arguments: args}}}
}

// withPrompt changes the prompt of an agent.
func withPrompt(change func(*skeinv1.PromptSpec)) func(*definition.Agent) {
	return func(a *definition.Agent) { change(&a.A.Prompt.Spec) }
}

func withArguments(args string) func(*thread.NewThread) {
	return func(n *thread.NewThread) { n.Arguments = json.RawMessage(args) }
}

func schemaOf(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

var _ = Describe("The system prompt", Label("AGT-05"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		ring := &envkeys.Keyring{}
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(keyset)).To(BeTrue())
		w.Threads.ServeEnv(thread.EnvOptions{Cipher: ring})
	})

	It("has the arguments and the variables of the thread in it, in what it includes too, and its task", Label("RUN-01"), func(ctx SpecContext) {
		w.Definitions.PutPrompt("tone", skeinv1.PromptSpec{Text: "Greet {{ arguments.who }} from {{ env.CITY }}. "})
		w.Definitions.Put("a", withPrompt(func(p *skeinv1.PromptSpec) {
			p.Text, p.Parts = "", []skeinv1.PromptPart{{Include: "tone"}, {Text: "Key: "}, {Env: "KEY"}, {Text: "{{ env.NONE }}."}}
		}))
		m := listening(w, says("done"))
		start(w)
		id := makeThread(ctx, w, "a", withArguments(`{"who":"{{ env.KEY }}"}`), func(n *thread.NewThread) { n.TaskID = "T-1" })
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetEnv(ctx, "CITY", "Bern", store.EnvText)).To(Succeed())
		Expect(st.SetEnv(ctx, "KEY", "s3cr3t-value", store.EnvSecret)).To(Succeed())
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(m.system()).To(Equal([]string{"Greet {{ env.KEY }} from Bern. Key: s3cr3t-value.\n\nThis conversation belongs to the task T-1."}))
	})

	It("is that of the moment of each step", func(ctx SpecContext) {
		w.Definitions.PutPrompt("tone", skeinv1.PromptSpec{Text: "old {{ env.V }}"})
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), withPrompt(func(p *skeinv1.PromptSpec) {
			p.Text, p.Parts = "", []skeinv1.PromptPart{{Include: "tone"}}
		}))
		var id string
		m := listening(w, func(call int, _ model.Request) *model.Response {
			defer GinkgoRecover()
			if call > 0 {
				return &model.Response{Content: "done"}
			}
			w.Definitions.PutPrompt("tone", skeinv1.PromptSpec{Text: "new {{ env.V }}"})
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(st.SetEnv(ctx, "V", "2", store.EnvText)).To(Succeed())
			return toolCall("get_value", `{"key":"k"}`)
		})
		id = makeThread(ctx, w, "a")
		start(w)
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(m.system()).To(Equal([]string{"old ", "new 2"}))
	})

	It("fails the turn, saying why, where the arguments do not fit what it requires", Label("K8S-07"), func(ctx SpecContext) {
		w.Definitions.Put("a", withPrompt(func(p *skeinv1.PromptSpec) {
			p.RequiredSchema = schemaOf(`{"type":"object","required":["topic"],"properties":{"topic":{"type":"string"}},"additionalProperties":false}`)
		}))
		m := listening(w, says("done"))
		start(w)
		for args, says := range map[string]string{"": "topic", `{"topic":7}`: "/topic", `{"topic":"x","a secret":1}`: "a secret", `{"topic":"bees"}`: ""} {
			id := makeThread(ctx, w, "a", withArguments(args))
			send(ctx, w, id, "go")
			r := rest(ctx, w, id)
			if says == "" {
				Expect(r.Status).To(Equal(store.RunSucceeded))
				continue
			}
			Expect(r.Status).To(Equal(store.RunFailed), args)
			Expect(r.Reason).To(Equal(skeinv1.ReasonInvalidArguments))
			Expect(r.Message).To(And(ContainSubstring(says), ContainSubstring("Create a new thread")))
			Expect(engine.ShownMessage(&r)).NotTo(ContainSubstring(says), "objects do not show what a parent's model may have said (K8S-07)")
		}
		Expect(m.requests()).To(HaveLen(1), "no model is asked in vain")
	})

	It("refuses a subagent whose arguments do not fit what it requires", Label("SUB-06"), func(ctx SpecContext) {
		w.Definitions.Put("child", withPrompt(func(p *skeinv1.PromptSpec) {
			p.RequiredSchema = schemaOf(`{"type":"object","required":["topic"]}`)
		}))
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}}}
		})
		m := listening(w, func(call int, req model.Request) *model.Response {
			last := req.Messages[len(req.Messages)-1]
			switch {
			case req.Messages[1].Content == "help":
				return &model.Response{Content: "helped"}
			case last.Role == model.RoleUser:
				return toolCall("subagent_create", `{"agent":"helper","message":"help"}`)
			case call == 1:
				res := toolCall("subagent_create", `{"agent":"helper","message":"help","arguments":{"topic":"bees"}}`)
				res.ToolCalls[0].ID = "second"
				return res
			}
			return &model.Response{Content: "done"}
		})
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() []string { return told(ctx, w, id) }).Should(ContainElements(
			HavePrefix("tool subagent_create error: the arguments do not fit what the agent child requires: the object: missing property 'topic'"),
			HavePrefix("tool subagent_create success")))
		Expect(w.Store.Children(ctx, id)).To(HaveLen(1))
		Expect(fmt.Sprint(m.system()[0])).To(Equal("You are a test."))
	})
})
