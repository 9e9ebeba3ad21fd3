package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/anthropic"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

const canary = "sk-canary+1/2=3&secret"

var _ = Describe("A model behind Anthropic's messages API", Label("AGT-06"), func() {
	var server *wiretest.Server
	var config model.Config
	var emitted []model.Delta
	BeforeEach(func() {
		server, emitted = wiretest.New(), nil
		config = model.Config{Namespace: "ns", Name: "claude", APIKey: canary + "\n", Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderAnthropic, Model: "claude-x", Endpoint: server.URL + "/v1", Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}}
	})
	ask := func(file string, req model.Request) (*model.Response, error) {
		GinkgoHelper()
		server.Play("testdata/" + file + ".http")
		c, err := anthropic.New(config)
		Expect(err).NotTo(HaveOccurred())
		return c.Stream(context.Background(), req, func(d model.Delta) { emitted = append(emitted, d) })
	}
	hello := model.Request{Messages: []model.Message{{Role: model.RoleSystem, Content: "be kind"}, {Role: model.RoleUser, Content: "hello"}}}
	usage := &model.Usage{InputTokens: 25, OutputTokens: 15}

	DescribeTable("reads responses", func(file string, want *model.Response, deltas ...model.Delta) {
		res, err := ask(file, hello)
		Expect(err).NotTo(HaveOccurred())
		delete(res.Metadata, "reasoning_origin") // it differs with the server's port
		Expect(res).To(Equal(want))
		Expect(emitted).To(HaveExactElements(deltas))
	},
		Entry("a text in pieces", "text", &model.Response{Content: "Hello.", FinishReason: "stop", Usage: usage}, model.Delta{Text: "Hel"}, model.Delta{Text: "lo."}),
		Entry("tokens read from the cache and written to it", "cached", &model.Response{Content: "Yes.", FinishReason: "stop",
			Usage: &model.Usage{InputTokens: 2007, CachedTokens: 1800, CacheWriteTokens: 200, OutputTokens: 15}}, model.Delta{Text: "Yes."}),
		Entry("a call split over events", "tool_split", &model.Response{Content: "Let me look.", FinishReason: "tool_calls", Usage: usage,
			ToolCalls: []model.ToolCall{{ID: "toolu_1", Name: "read_file", Arguments: `{"path":"/a"}`}}}, model.Delta{Text: "Let me look."}),
		Entry("two parallel calls, one without arguments", "two_tools", &model.Response{FinishReason: "tool_calls", Usage: usage,
			ToolCalls: []model.ToolCall{{ID: "toolu_1", Name: "one", Arguments: `{"x":1}`}, {ID: "toolu_2", Name: "two", Arguments: `{}`}}}),
		Entry("a call that was cut off", "bad_arguments", &model.Response{FinishReason: "length", Usage: usage,
			ToolCalls: []model.ToolCall{{ID: "toolu_1", Name: "one", Arguments: `{"x":`}}}),
		Entry("thinking", "thinking", &model.Response{FinishReason: "tool_calls", Reasoning: "I wonder. Ah.",
			Usage:     &model.Usage{InputTokens: 25, OutputTokens: 40, ReasoningTokens: 30},
			ToolCalls: []model.ToolCall{{ID: "toolu_1", Name: "one", Arguments: `{"x":1}`}},
			Metadata: map[string]any{"anthropic_thinking": []any{
				map[string]any{"signature": "c2ln", "thinking": "I wonder. Ah."}, map[string]any{"redacted": "cmVk"}}},
		}, model.Delta{Reasoning: "I wonder. "}, model.Delta{Reasoning: "Ah."}),
		Entry("an empty answer", "empty", &model.Response{FinishReason: "stop", Usage: &model.Usage{InputTokens: 25, OutputTokens: 2}}),
		Entry("a refusal", "refusal", &model.Response{Content: "(the model declined to answer)", Refused: true, FinishReason: "refusal", Usage: usage}),
	)

	DescribeTable("reports errors without the key", func(file string, kind model.Kind, passing bool, want string, more ...any) {
		_, err := ask(file, hello)
		var e *model.Error
		Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
		Expect(*e).To(MatchFields(IgnoreExtras, Fields{"Kind": Equal(kind), "Passing": Equal(passing), "Message": ContainSubstring(want)}))
		Expect(fmt.Sprintf("%v %+v %#v", err, e, e)).NotTo(ContainSubstring("canary"))
		for _, m := range more {
			switch m := m.(type) {
			case time.Duration:
				Expect(e.RetryAfter).To(Equal(m))
			case model.Code:
				Expect(e.Code).To(Equal(m))
			}
		}
	},
		Entry(nil, "disconnect", model.KindUnreachable, true, "broke before its answer was complete"),
		Entry(nil, "cut", model.KindUnreachable, true, "broke before its answer was complete"),
		Entry(nil, "overloaded_midstream", model.KindFailed, true, "failed; it said: Overloaded"),
		Entry(nil, "429", model.KindStatus, true, "exceed your rate limit", 13*time.Second),
		Entry(nil, "529", model.KindStatus, true, "refused with status 529; the provider is overloaded"),
		Entry(nil, "401", model.KindStatus, false, "check the API key in the Secret that spec.credentials of the Model names; it said: invalid x-api-key: [redacted]"),
		Entry(nil, "too_long", model.KindStatus, false, "prompt is too long", model.CodeContextLength),
		Entry(nil, "not_this_api", model.KindBadAnswer, false, "not a stream of the messages API"),
		Entry(nil, "not_json", model.KindBadAnswer, false, "not the JSON of its protocol"),
	)

	It("leaves out texts of white space only, which the API refuses", func() {
		_, err := ask("text", model.Request{Messages: []model.Message{
			{Role: model.RoleSystem, Content: " \n"},
			{Role: model.RoleUser, Content: "look"},
			{Role: model.RoleAssistant, Content: "\n\n", ToolCalls: []model.ToolCall{{ID: "c1", Name: "t", Arguments: `{}`}}},
			{Role: model.RoleTool, ToolCallID: "c1", Name: "t", Content: "\n"},
			{Role: model.RoleUser, Content: "\t "},
		}})
		Expect(err).NotTo(HaveOccurred())
		body := server.Last().Body
		Expect(body).NotTo(HaveKey("system"))
		Expect(body["messages"]).To(HaveExactElements(
			HaveKeyWithValue("content", ConsistOf(HaveKeyWithValue("text", "look"))),
			HaveKeyWithValue("content", ConsistOf(HaveKeyWithValue("type", "tool_use"))),
			HaveKeyWithValue("content", ConsistOf(And(HaveKeyWithValue("type", "tool_result"), Not(HaveKey("content"))))),
		))
	})

	It("defines the tools that were called when none are offered, since the API refuses calls of undefined tools", func() {
		_, err := ask("text", model.Request{Messages: []model.Message{
			{Role: model.RoleUser, Content: "look"},
			{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "t", Arguments: `{"a":1}`}, {ID: "c2", Name: "files.read", Arguments: `{}`}, {ID: "c3", Name: "t", Arguments: `{}`}}},
			{Role: model.RoleTool, ToolCallID: "c1", Name: "t", Content: "1"},
			{Role: model.RoleTool, ToolCallID: "c2", Name: "files.read", Content: "2"},
			{Role: model.RoleTool, ToolCallID: "c3", Name: "t", Content: "3"},
			{Role: model.RoleUser, Content: "in short?"},
		}})
		Expect(err).NotTo(HaveOccurred())
		schema := HaveKeyWithValue("input_schema", map[string]any{"type": "object", "properties": map[string]any{}})
		Expect(server.Last().Body).To(And(
			HaveKeyWithValue("tools", HaveExactElements(And(HaveKeyWithValue("name", "t"), schema), And(HaveKeyWithValue("name", "files_read"), schema))),
			HaveKeyWithValue("tool_choice", map[string]any{"type": "none"})))
		_, err = ask("text", hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Last().Body).NotTo(Or(HaveKey("tools"), HaveKey("tool_choice")))
	})

	It("sends the conversation by turns, with thinking, images and cache marks", func() {
		config.Spec.Options = &skeinv1.ModelOptions{Temperature: "0.5", MaxTokens: ptr.To[int32](100)}
		picture := model.Image{MimeType: "image/png", Read: func(context.Context) ([]byte, error) { return []byte("png"), nil }}
		_, err := ask("text", model.Request{
			Messages: []model.Message{
				{Role: model.RoleSystem, Content: "sys"},
				{Role: model.RoleUser, Content: "u", Images: []model.Image{picture}},
				{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c:1", Name: "t", Arguments: `{"a":1}`}, {ID: "c2", Name: "t", Arguments: `{"a":`}},
					Metadata: map[string]any{"anthropic_thinking": []any{map[string]any{"signature": "s", "thinking": "t"}, map[string]any{"redacted": "r"}}}},
				{Role: model.RoleTool, ToolCallID: "c:1", Name: "t", Content: "one", Images: []model.Image{picture}},
				{Role: model.RoleTool, ToolCallID: "c2", Name: "t"},
				{Role: model.RoleUser, Content: "and?"},
				{Role: model.RoleAssistant, Content: "so"},
			},
			Tools:             []model.Tool{{Name: "bare"}, {Name: "t", Description: "d", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"}},"required":["a"],"$defs":{}}`)}},
			ToolChoice:        model.ToolChoiceRequired,
			ParallelToolCalls: ptr.To(false),
			Schema:            json.RawMessage(`{"type":"object"}`),
		})
		Expect(err).NotTo(HaveOccurred())
		r := server.Last()
		Expect(r.Path).To(Equal("/v1/messages"))
		Expect(r.Header.Get("X-Api-Key")).To(Equal(canary))
		mark := map[string]any{"type": "ephemeral"}
		image := map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": "image/png", "data": "cG5n"}}
		Expect(r.Body).To(Equal(map[string]any{
			"model": "claude-x", "stream": true, "max_tokens": 100.0, "temperature": 0.5,
			"system": []any{map[string]any{"type": "text", "text": "sys", "cache_control": mark}},
			"messages": []any{
				map[string]any{"role": "user", "content": []any{image, map[string]any{"type": "text", "text": "u"}}},
				map[string]any{"role": "assistant", "content": []any{
					map[string]any{"type": "thinking", "signature": "s", "thinking": "t"}, map[string]any{"type": "redacted_thinking", "data": "r"},
					map[string]any{"type": "tool_use", "id": "c_1", "name": "t", "input": map[string]any{"a": 1.0}},
					map[string]any{"type": "tool_use", "id": "c2", "name": "t", "input": map[string]any{"invalid_json": `{"a":`}},
				}},
				map[string]any{"role": "user", "content": []any{
					map[string]any{"type": "tool_result", "tool_use_id": "c_1", "content": []any{map[string]any{"type": "text", "text": "one"}, image}},
					map[string]any{"type": "tool_result", "tool_use_id": "c2"},
					map[string]any{"type": "text", "text": "and?", "cache_control": mark},
				}},
				map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "text", "text": "so"}}},
				map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "(go on)", "cache_control": mark}}},
			},
			"tools": []any{
				map[string]any{"name": "bare", "input_schema": map[string]any{"type": "object", "properties": map[string]any{}}},
				map[string]any{"name": "t", "description": "d", "cache_control": mark, "input_schema": map[string]any{
					"type": "object", "properties": map[string]any{"a": map[string]any{"type": "number"}}, "required": []any{"a"}, "$defs": map[string]any{}}},
			},
			"tool_choice":   map[string]any{"type": "any", "disable_parallel_tool_use": true},
			"output_config": map[string]any{"format": map[string]any{"type": "json_schema", "schema": map[string]any{"type": "object"}}},
		}))
	})

	DescribeTable("asks for reasoning", func(r model.Reasoning, maxTokens float64, thinking map[string]any, effort any) {
		config.Spec.Options = &skeinv1.ModelOptions{Temperature: "0.5", MaxTokens: ptr.To[int32](2000)}
		req := hello
		req.Reasoning = &r
		res, err := ask("thinking", req)
		Expect(err).NotTo(HaveOccurred())
		body := server.Last().Body
		Expect(body).To(And(HaveKeyWithValue("thinking", thinking), HaveKeyWithValue("max_tokens", maxTokens)))
		if effort != nil {
			Expect(body).To(HaveKeyWithValue("output_config", map[string]any{"effort": effort}))
		}
		if thinking["type"] != "disabled" {
			Expect(body).NotTo(HaveKey("temperature"), "models that think accept none")
		}
		if r.Exclude {
			Expect(res.Reasoning).To(BeEmpty())
		} else {
			Expect(res.Reasoning).NotTo(BeEmpty())
		}
		Expect(res.Metadata).To(HaveKey("anthropic_thinking"), "the provider still needs it back")
	},
		Entry("by effort", model.Reasoning{Effort: "high"}, 2000.0, map[string]any{"type": "adaptive", "display": "summarized"}, "high"),
		Entry("by the least effort, without its text", model.Reasoning{Effort: "minimal", Exclude: true}, 2000.0, map[string]any{"type": "adaptive", "display": "omitted"}, "low"),
		Entry("by a budget larger than the limit of the answer", model.Reasoning{MaxTokens: 4000}, 6000.0, map[string]any{"type": "enabled", "budget_tokens": 4000.0, "display": "summarized"}, nil),
		Entry("by a budget smaller than the minimum", model.Reasoning{MaxTokens: 10}, 2000.0, map[string]any{"type": "enabled", "budget_tokens": 1024.0, "display": "summarized"}, nil),
		Entry("not at all", model.Reasoning{Effort: "none"}, 2000.0, map[string]any{"type": "disabled"}, nil),
	)

	It("takes no key from the environment of the manager, and sends the Model's own headers", func() {
		GinkgoT().Setenv("ANTHROPIC_API_KEY", canary)
		GinkgoT().Setenv("ANTHROPIC_AUTH_TOKEN", canary)
		GinkgoT().Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/")
		config.APIKey = ""
		config.Spec.Headers = []skeinv1.ModelHeader{{Name: "anthropic-beta", Value: "x"}}
		_, err := ask("text", hello)
		Expect(err).NotTo(HaveOccurred())
		h := server.Last().Header
		Expect(h).NotTo(Or(HaveKey("X-Api-Key"), HaveKey("Authorization")))
		Expect(h.Get("Anthropic-Beta")).To(Equal("x"))
	})

	It("refuses a Model that cannot be used", func() {
		for want, change := range map[string]func(*skeinv1.ModelSpec){
			"spec.model is missing": func(s *skeinv1.ModelSpec) { s.Model = "" },
			"take 0 to 1":           func(s *skeinv1.ModelSpec) { s.Options = &skeinv1.ModelOptions{Temperature: "1.5"} },
			"decimal number":        func(s *skeinv1.ModelSpec) { s.Options = &skeinv1.ModelOptions{TopP: "x"} },
		} {
			bad := config
			change(&bad.Spec)
			_, err := anthropic.New(bad)
			Expect(err).To(And(HaveField("Kind", model.KindConfig), HaveField("Message", ContainSubstring(want))))
		}
	})
})
