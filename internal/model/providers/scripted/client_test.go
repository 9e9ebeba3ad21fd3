package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/scripted"
)

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

var _ = Describe("A scripted model", Label("AGT-06"), func() {
	client := func(clk clock.Clock, steps ...skeinv1.ScriptStep) *scripted.Client {
		GinkgoHelper()
		c, err := scripted.New(model.Config{Name: "s", Steps: steps, Spec: skeinv1.ModelSpec{Timeout: duration(time.Minute)}}, clk)
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	ignore := func(model.Delta) {}
	ctx := context.Background()
	// talk holds a conversation. It answers each user line and stores the answer as a thread does.
	talk := func(c model.Client, lines ...string) []string {
		GinkgoHelper()
		msgs := []model.Message{{Role: model.RoleSystem, Content: "sys"}}
		var out []string
		for _, l := range lines {
			msgs = append(msgs, model.Message{Role: model.RoleUser, Content: l})
			res, err := c.Stream(ctx, model.Request{Messages: msgs}, ignore)
			if err != nil {
				var e *model.Error
				Expect(errors.As(err, &e)).To(BeTrue())
				out = append(out, "error: "+e.Message)
				msgs = append(msgs, model.Message{Role: model.RoleAssistant, Metadata: e.Metadata})
				continue
			}
			out = append(out, res.Content)
			// Metadata passes through JSON, as in the store.
			var kept map[string]any
			data, err := json.Marshal(res.Metadata)
			Expect(err).NotTo(HaveOccurred())
			Expect(json.Unmarshal(data, &kept)).To(Succeed())
			msgs = append(msgs, model.Message{Role: model.RoleAssistant, Content: res.Content, Metadata: kept})
		}
		return out
	}

	It("plays the first step that matches and is not used up", func() {
		c := client(clock.RealClock{},
			skeinv1.ScriptStep{Content: "once"},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user", Matches: "^sum"}, Content: "twice", Times: ptr.To[int32](2)},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "fail"}, Error: "broken"},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "any|sum|fail"}, Content: "always", Times: ptr.To[int32](0)})
		Expect(talk(c, "sum", "sum", "sum", "sum", "fail", "fail", "any", "else")).To(Equal([]string{
			"once", "twice", "twice", "always", "error: broken", "always", "always",
			`error: the script of model s has no step left that answers a last message of the role "user": add one to spec.script.steps, or raise times of a step`,
		}))
	})

	It("keeps no state between calls: its position follows from the conversation", func() {
		steps := []skeinv1.ScriptStep{{Content: "one"}, {Content: "two"}}
		msgs := []model.Message{{Role: model.RoleUser, Content: "x"}, {Role: model.RoleAssistant, Metadata: map[string]any{"script_step": "0"}}, {Role: model.RoleUser, Content: "y"}}
		for range 3 {
			res, err := client(clock.RealClock{}, steps...).Stream(ctx, model.Request{Messages: msgs}, ignore)
			Expect(err).NotTo(HaveOccurred())
			Expect(res.Content).To(Equal("two"))
		}
	})

	It("fills in results of tools, with numbers in plain notation", func() {
		c := client(clock.RealClock{}, skeinv1.ScriptStep{
			When:    &skeinv1.ScriptMatch{Tool: "totals"},
			Content: `{{with toolResult "totals"}}{{.total}} of {{.count}}, {{index .regions "north"}}, {{printf "%.1f" .total}}{{end}}; {{.Last.Role}} {{.Last.Name}}; {{.Arguments.lang}}; {{(fromJSON "[7]") | toJSON}}; {{toolResult "plain"}}`,
			ToolCalls: []skeinv1.ScriptToolCall{
				{Name: "next", Arguments: raw(`{"text":"{{(toolResult \"totals\").total}}","list":["{{.Last.Name}}",1.50,true,null]}`)},
				{Name: "odd", RawArguments: `{"unfinished`},
				{Name: "bare"},
			},
		})
		res, err := c.Stream(ctx, model.Request{Arguments: json.RawMessage(`{"lang":"la"}`), Messages: []model.Message{
			{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "call_1"}, {ID: "call_2"}}},
			{Role: model.RoleTool, Name: "totals", Content: `{"total":1}`},
			{Role: model.RoleTool, Name: "plain", Content: "not JSON"},
			{Role: model.RoleTool, Name: "totals", Content: `{"total":12345678.25,"count":4000000000,"regions":{"north":100000000}}`},
		}}, ignore)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(Equal("12345678.25 of 4000000000, 100000000, 12345678.2; tool totals; la; [7]; not JSON"))
		Expect(res.ToolCalls).To(Equal([]model.ToolCall{
			{ID: "call_3", Name: "next", Arguments: `{"list":["totals",1.5,true,null],"text":"12345678.25"}`},
			{ID: "call_4", Name: "odd", Arguments: `{"unfinished`},
			{ID: "call_5", Name: "bare", Arguments: `{}`},
		}))
		Expect(res.FinishReason).To(Equal("tool_calls"))
	})

	DescribeTable("reports what cannot be filled in", func(content, want string) {
		_, err := client(clock.RealClock{}, skeinv1.ScriptStep{Content: content}).Stream(ctx, model.Request{}, ignore)
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry(nil, `{{toolResult "none"}}`, `no result of the tool "none" yet`),
		Entry(nil, `{{.Arguments.none}}`, `step 1 of the script of model s cannot be played`),
	)

	It("delays by the clock, and streams in pieces", func() {
		clk := clocktesting.NewFakeClock(time.Now())
		c := client(clk, skeinv1.ScriptStep{Content: "twenty characters ..", Latency: duration(30 * time.Second), ChunkDelay: duration(time.Second)})
		pieces, finished := make(chan string, 10), make(chan *model.Response, 1)
		go func() {
			defer GinkgoRecover()
			res, err := c.Stream(ctx, model.Request{}, func(d model.Delta) { pieces <- d.Text })
			Expect(err).NotTo(HaveOccurred())
			finished <- res
		}()
		Eventually(clk.HasWaiters, "20s", "1ms").Should(BeTrue())
		clk.Step(29 * time.Second)
		Consistently(pieces, "50ms").ShouldNot(Receive())
		clk.Step(time.Second)
		Eventually(pieces, "20s").Should(Receive(Equal("twenty character")))
		Eventually(clk.HasWaiters, "20s", "1ms").Should(BeTrue())
		Expect(finished).NotTo(Receive())
		clk.Step(time.Second)
		Eventually(pieces, "20s").Should(Receive(Equal("s ..")))
		Eventually(finished, "20s").Should(Receive(HaveField("Content", "twenty characters ..")))
	})

	It("times out as a real model would", func() {
		clk := clocktesting.NewFakeClock(time.Now())
		c := client(clk, skeinv1.ScriptStep{Content: "x", Latency: duration(time.Hour)})
		failed := make(chan error, 1)
		go func() { _, err := c.Stream(ctx, model.Request{}, ignore); failed <- err }()
		Eventually(clk.HasWaiters, "20s", "1ms").Should(BeTrue())
		clk.Step(time.Minute)
		var e *model.Error
		Expect(errors.As(<-failed, &e)).To(BeTrue())
		Expect(e.Kind).To(Equal(model.KindTimeout))
	})

	It("ends with the context, and returns its cause", func() {
		c := client(clocktesting.NewFakeClock(time.Now()), skeinv1.ScriptStep{Content: "x", Latency: duration(time.Second)})
		cause := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(cause)
		_, err := c.Stream(ctx, model.Request{}, ignore)
		Expect(err).To(MatchError(cause))
	})

	DescribeTable("is refused with the step and the mistake", func(step skeinv1.ScriptStep, want string) {
		err := scripted.Validate([]skeinv1.ScriptStep{{Content: "fine"}, step})
		Expect(err).To(MatchError(And(HavePrefix("step 2: "), ContainSubstring(want))))
	},
		Entry("bad expression", skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "("}}, "when.matches is not a regular expression"),
		Entry("bad template", skeinv1.ScriptStep{Content: "{{ .Last"}, "content is not a template"),
		Entry("bad template in arguments", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: "t", Arguments: raw(`{"a":["{{end}}"]}`)}}}, "toolCalls[0].arguments.a[0] is not a template"),
		Entry("arguments that are not an object", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: "t", Arguments: raw(`[1]`)}}}, "must be an object"),
		Entry("a call without a name", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{}}}, "needs a name"),
		Entry("both kinds of arguments", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: "t", Arguments: raw(`{}`), RawArguments: "{}"}}}, "either arguments or rawArguments"),
	)

	It("is refused without steps", func() {
		Expect(scripted.Validate(nil)).To(MatchError("the script has no steps"))
	})
})
