package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A handoff by the spec", Label("AGT-03"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	declare := func(ctx context.Context, id, agent string) {
		GinkgoHelper()
		Expect(w.Store.Apply(ctx, id, nil, &store.Handoff{Agent: agent, Declared: true, By: store.HandoffBySpec})).To(Succeed())
	}

	It("lets the next run go on with the history under the new agent, and starts none", func(ctx SpecContext) {
		w.Definitions.Put("triage", enginetest.Script(enginetest.Say("triage: {{.Last.Content}}")))
		w.Definitions.Put("billing", enginetest.Script(enginetest.Say("billing: {{.Last.Content}}")))
		start(w)
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "hello")
		rest(ctx, w, id)
		declare(ctx, id, "billing")
		send(ctx, w, id, "my invoice")
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(2))
		Expect(rest(ctx, w, id).Agent).To(Equal("billing"))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: hello", "assistant: triage: hello", "user: my invoice", "assistant: billing: my invoice"))
	})

	It("takes effect before the next model call of a run under way", func(ctx SpecContext) {
		m := newHeld()
		w.Models = m
		w.Definitions.Put("triage", enginetest.Builtin(skeinv1.BuiltinKV))
		w.Definitions.Put("billing", func(a *definition.Agent) { a.A.Prompt.Spec.Text = "You do the billing." })
		start(w)
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "hello")
		Eventually(m.asked).Should(Receive(Equal("triage")))
		declare(ctx, id, "billing")
		m.answers <- &model.Response{ToolCalls: []model.ToolCall{{ID: "c1", Name: "set_value", Arguments: `{"key":"k","value":1}`}}}
		Eventually(m.asked).Should(Receive(Equal("billing")))
		m.answers <- &model.Response{Content: "paid"}
		r := rest(ctx, w, id)
		Expect([]any{r.Agent, r.Steps, r.Status}).To(Equal([]any{"billing", 2, store.RunSucceeded}))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: hello", "assistant ->set_value", HavePrefix("tool set_value success"), "assistant: paid"),
			"the call was made with the tools of the agent that asked for it")
		Expect(m.system()).To(HaveExactElements("You are a test.", "You do the billing."))
	})
})

// held is a model that answers with what the test gives it.
type held struct {
	asked   chan string // whose model
	answers chan *model.Response
	seen    chan string // the system prompts
	read    [][]string  // what came after them, of each call that was answered
	history chan []string
}

// says answers the next call, which is of a model by that name.
func (h *held) says(name, text string) {
	GinkgoHelper()
	Eventually(h.asked).Should(Receive(Equal(name)))
	h.read = append(h.read, <-h.history)
	h.answers <- &model.Response{Content: text}
}

// calls is says with the call of a tool.
func (h *held) calls(name, id, tool, arguments string) {
	GinkgoHelper()
	Eventually(h.asked).Should(Receive(Equal(name)))
	h.read = append(h.read, <-h.history)
	h.answers <- &model.Response{ToolCalls: []model.ToolCall{{ID: id, Name: tool, Arguments: arguments}}}
}

func newHeld() *held {
	return &held{asked: make(chan string, 10), answers: make(chan *model.Response, 10), seen: make(chan string, 100), history: make(chan []string, 100)}
}

func (h *held) Client(c model.Config) (model.Client, error) {
	return heldClient{held: h, name: c.Name}, nil
}

// system gives the system prompts of the calls so far.
func (h *held) system() (out []string) {
	for len(h.seen) > 0 {
		out = append(out, <-h.seen)
	}
	return out
}

type heldClient struct {
	held *held
	name string
}

func (c heldClient) Stream(ctx context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	c.held.seen <- req.Messages[0].Content
	lines := []string{}
	for _, m := range req.Messages[1:] {
		line := string(m.Role)
		for _, call := range m.ToolCalls {
			line += " ->" + call.Name
		}
		if m.Content != "" {
			line += ": " + m.Content
		}
		lines = append(lines, line)
	}
	c.held.history <- lines
	c.held.asked <- c.name
	select {
	case res := <-c.held.answers:
		return res, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
