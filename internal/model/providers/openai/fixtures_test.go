package openai_test

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
	"github.com/skein-dev/skein/internal/model/providers/openai"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

var _ = Describe("Responses of OpenAI as documented", Label("AGT-06"), func() {
	var server *wiretest.Server
	var config model.Config
	var emitted []model.Delta
	BeforeEach(func() {
		server, emitted = wiretest.New(), nil
		config = model.Config{Namespace: "ns", Name: "gpt", APIKey: canary, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, Model: "gpt-x", Endpoint: server.URL + "/v1", Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}}
	})
	client := func() *openai.Client {
		GinkgoHelper()
		c, err := openai.New(config)
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	ask := func(file string, req model.Request) (*model.Response, error) {
		GinkgoHelper()
		server.Play("testdata/" + file + ".http")
		if len(file) > 9 && file[:9] == "responses" {
			config.Spec.API = skeinv1.APIResponses
			if config.Spec.Sessions == nil {
				config.Spec.Sessions = ptr.To(true)
			}
		}
		return client().Stream(context.Background(), req, func(d model.Delta) { emitted = append(emitted, d) })
	}
	hello := model.Request{Messages: []model.Message{{Role: model.RoleSystem, Content: "be kind"}, {Role: model.RoleUser, Content: "hello"}}}
	chatUsage := &model.Usage{InputTokens: 11, OutputTokens: 7, CachedTokens: 4, ReasoningTokens: 2}
	usage := &model.Usage{InputTokens: 30, OutputTokens: 9, CachedTokens: 20, ReasoningTokens: 4}

	DescribeTable("are read", func(file string, want *model.Response, deltas ...model.Delta) {
		res, err := ask(file, hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(Equal(want))
		Expect(emitted).To(HaveExactElements(deltas))
	},
		Entry(nil, "chat_refusal", &model.Response{Content: "I can't do that.", Refused: true, FinishReason: "stop", Usage: chatUsage}, model.Delta{Text: "I can't"}, model.Delta{Text: " do that."}),
		Entry(nil, "chat_length", &model.Response{Content: "Hel", FinishReason: "length", Usage: chatUsage}, model.Delta{Text: "Hel"}),
		Entry(nil, "responses_text", &model.Response{Content: "Hello.", FinishReason: "stop", Usage: usage, Session: "resp_1"}, model.Delta{Text: "Hel"}, model.Delta{Text: "lo."}),
		Entry(nil, "responses_tool_split", &model.Response{FinishReason: "tool_calls", Usage: usage, Session: "resp_1",
			ToolCalls: []model.ToolCall{{ID: "call_a", Name: "read_file", Arguments: `{"path":"/a"}`}}}),
		Entry(nil, "responses_two_tools", &model.Response{Content: "Both.", FinishReason: "tool_calls", Usage: usage, Session: "resp_1",
			ToolCalls: []model.ToolCall{{ID: "call_a", Name: "one", Arguments: `{"x":1}`}, {ID: "call_b", Name: "two", Arguments: `{"y":`}}}, model.Delta{Text: "Both."}),
		Entry(nil, "responses_reasoning", &model.Response{Content: "Yes.", Reasoning: "I wonder.", FinishReason: "stop", Usage: usage, Session: "resp_1"},
			model.Delta{Reasoning: "I wonder."}, model.Delta{Text: "Yes."}),
		Entry(nil, "responses_refusal", &model.Response{Content: "I can't do that.", Refused: true, FinishReason: "stop", Usage: usage, Session: "resp_1"}, model.Delta{Text: "I can't"}, model.Delta{Text: " do that."}),
		Entry(nil, "responses_empty", &model.Response{FinishReason: "stop", Usage: usage, Session: "resp_1"}),
		Entry(nil, "responses_length", &model.Response{Content: "Hel", FinishReason: "length", Usage: usage, Session: "resp_1"}, model.Delta{Text: "Hel"}),
	)

	DescribeTable("that are failures are reported without the key", func(file string, want Fields) {
		_, err := ask(file, hello)
		var e *model.Error
		Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
		Expect(*e).To(MatchFields(IgnoreExtras, want))
		Expect(fmt.Sprintf("%v %+v %#v", err, e, e)).NotTo(ContainSubstring("canary"))
	},
		Entry(nil, "chat_filtered", Fields{"Kind": Equal(model.KindFiltered), "Passing": BeFalse(), "Code": Equal(model.CodeFiltered)}),
		Entry(nil, "chat_quota", Fields{"Kind": Equal(model.KindStatus), "Passing": BeFalse(), "Message": ContainSubstring("current quota")}),
		Entry(nil, "chat_too_long", Fields{"Kind": Equal(model.KindStatus), "Passing": BeFalse(), "Code": Equal(model.CodeContextLength)}),
		Entry(nil, "chat_redirect", Fields{"Kind": Equal(model.KindConfig), "Message": ContainSubstring("redirects to http://elsewhere.invalid, which Skein does not follow")}),
		Entry(nil, "responses_filtered", Fields{"Kind": Equal(model.KindFiltered), "Passing": BeFalse()}),
		Entry(nil, "responses_failed", Fields{"Kind": Equal(model.KindFailed), "Passing": BeTrue(), "Message": ContainSubstring("The server had an error")}),
		Entry(nil, "responses_error_midstream", Fields{"Kind": Equal(model.KindFailed), "Passing": BeTrue(), "Message": ContainSubstring("slow down")}),
		Entry(nil, "responses_disconnect", Fields{"Kind": Equal(model.KindUnreachable), "Passing": BeTrue()}),
		Entry(nil, "responses_429", Fields{"Kind": Equal(model.KindStatus), "Passing": BeTrue(), "RetryAfter": Equal(13 * time.Second)}),
		Entry(nil, "responses_too_long", Fields{"Code": Equal(model.CodeContextLength)}),
		Entry(nil, "responses_lost", Fields{"Kind": Equal(model.KindStatus), "Status": Equal(400)}),
	)

	picture := model.Image{MimeType: "image/png", Detail: "low", Read: func(context.Context) ([]byte, error) { return []byte("png"), nil }}
	conversation := model.Request{
		Messages: []model.Message{
			{Role: model.RoleSystem, Content: "sys"},
			{Role: model.RoleUser, Content: "u", Images: []model.Image{picture}},
			{Role: model.RoleAssistant, Content: "look", ToolCalls: []model.ToolCall{{ID: "c1", Name: "t", Arguments: `{"a":1}`}, {ID: "c2", Name: "t", Arguments: `{"a":`}},
				Metadata: map[string]any{"openai_reasoning": []any{map[string]any{"id": "rs_1", "encrypted": "enc"}}}},
			{Role: model.RoleTool, ToolCallID: "c1", Name: "t", Content: "one", Images: []model.Image{picture}},
			{Role: model.RoleTool, ToolCallID: "c2", Name: "t", Content: "bad"},
			{Role: model.RoleSystem, Content: "mind"},
			{Role: model.RoleUser, Content: "and?"},
		},
		Tools: []model.Tool{{Name: "t", Parameters: json.RawMessage(`{"type":"object"}`)}}, ToolChoice: model.ToolChoiceAuto, ParallelToolCalls: ptr.To(true),
		Schema: json.RawMessage(`{"type":"object"}`), SchemaName: "verdict", Reasoning: &model.Reasoning{Effort: "low"},
	}

	It("are requested from the responses API", func() {
		config.Spec.Options = &skeinv1.ModelOptions{MaxTokens: ptr.To[int32](100)}
		config.Spec.Sessions = ptr.To(false)
		_, err := ask("responses_text", conversation)
		Expect(err).NotTo(HaveOccurred())
		r := server.Last()
		Expect(r.Path).To(Equal("/v1/responses"))
		Expect(r.Header.Get("Authorization")).To(Equal("Bearer " + canary))
		image := map[string]any{"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,cG5n"}
		Expect(r.Body).To(Equal(map[string]any{
			"model": "gpt-x", "stream": true, "store": false, "include": []any{"reasoning.encrypted_content"}, "max_output_tokens": 100.0,
			"instructions": "sys", "reasoning": map[string]any{"effort": "low", "summary": "auto"},
			"text":        map[string]any{"format": map[string]any{"type": "json_schema", "name": "verdict", "schema": map[string]any{"type": "object"}}},
			"tools":       []any{map[string]any{"type": "function", "name": "t", "strict": false, "parameters": map[string]any{"type": "object"}}},
			"tool_choice": "auto", "parallel_tool_calls": true,
			"input": []any{
				map[string]any{"role": "user", "content": []any{map[string]any{"type": "input_text", "text": "u"}, image}},
				map[string]any{"type": "reasoning", "id": "rs_1", "summary": []any{}, "encrypted_content": "enc"},
				map[string]any{"role": "assistant", "content": "look"},
				map[string]any{"type": "function_call", "call_id": "c1", "name": "t", "arguments": `{"a":1}`},
				map[string]any{"type": "function_call", "call_id": "c2", "name": "t", "arguments": `{"invalid_json":"{\"a\":"}`},
				map[string]any{"type": "function_call_output", "call_id": "c1", "output": []any{map[string]any{"type": "input_text", "text": "one"}, image}},
				map[string]any{"type": "function_call_output", "call_id": "c2", "output": "bad"},
				map[string]any{"role": "system", "content": "mind"},
				map[string]any{"role": "user", "content": "and?"},
			},
		}))
	})

	It("continue the provider's conversation, and only new messages are sent", Label("RUN-06"), func() {
		req := conversation
		req.Session, req.SessionMessages = "resp_0", 3
		_, err := ask("responses_resumed", req)
		Expect(err).NotTo(HaveOccurred())
		body := server.Last().Body
		Expect(body).To(And(HaveKeyWithValue("previous_response_id", "resp_0"), HaveKeyWithValue("store", true), HaveKeyWithValue("instructions", "sys")))
		Expect(body["input"]).To(HaveLen(4))
		_, err = ask("responses_text", req) // of a server without sessions
		Expect(err).To(And(HaveField("Status", 404), HaveField("Message", ContainSubstring("set spec.sessions of the Model to false"))))
	})

	It("are not stored by servers other than OpenAI's, unless the Model says so", Label("RUN-06"), func() {
		server.Play("testdata/responses_text.http")
		config.Spec.API = skeinv1.APIResponses
		res, err := client().Stream(context.Background(), hello, func(model.Delta) {})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Session).To(BeEmpty())
		Expect(server.Last().Body).To(HaveKeyWithValue("store", false))
	})

	It("keep the reasoning with the answer where the provider does not store it", func() {
		config.Spec.Sessions = ptr.To(false)
		res, err := ask("responses_reasoning", hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(And(HaveField("Session", ""), HaveField("Metadata", HaveKeyWithValue("openai_reasoning", []any{map[string]any{"id": "rs_1", "encrypted": "ZW5j"}}))))
	})

	It("are requested from chat completions", func() {
		_, err := ask("chat_length", conversation)
		Expect(err).NotTo(HaveOccurred())
		body := server.Last().Body
		image := map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,cG5n", "detail": "low"}}
		Expect(body).To(And(
			HaveKeyWithValue("reasoning_effort", "low"), HaveKeyWithValue("parallel_tool_calls", true),
			HaveKeyWithValue("response_format", map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "verdict", "schema": map[string]any{"type": "object"}}}),
		))
		messages := body["messages"].([]any)
		Expect(messages[1]).To(Equal(map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "u"}, image}}))
		Expect(messages[5]).To(Equal(map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "[images of the results above]"}, image}}), "behind all results, not between them")
		Expect(messages).To(HaveLen(8))
	})

	It("report an image that cannot be read", func() {
		req := hello
		req.Messages = []model.Message{{Role: model.RoleUser, Images: []model.Image{{MimeType: "image/png", Read: func(context.Context) ([]byte, error) { return nil, errors.New("gone") }}}}}
		_, err := ask("chat_length", req)
		Expect(err).To(And(HaveField("Kind", model.KindConfig), HaveField("Message", ContainSubstring("cannot be read: gone"))))
		Expect(server.Requests()).To(BeEmpty())
	})

	It("are vectors, in the order of the texts", Label("RUN-07"), func() {
		server.Play("testdata/chat_embeddings.http")
		out, err := client().Embed(context.Background(), []string{"a", "b"})
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal(&model.Embeddings{Vectors: [][]float32{{0.5, -0.25}, {0, 1}}, Usage: &model.Usage{InputTokens: 8}}))
		Expect(server.Last().Body).To(And(HaveKeyWithValue("input", []any{"a", "b"}), HaveKeyWithValue("model", "gpt-x")))
		server.Play("testdata/chat_embeddings_short.http")
		_, err = client().Embed(context.Background(), []string{"a", "b"})
		Expect(err).To(HaveField("Kind", model.KindBadAnswer))
		server.Play("testdata/responses_429.http")
		_, err = client().Embed(context.Background(), []string{"a"})
		Expect(err).To(And(HaveField("Passing", true), HaveField("Status", 429)))
	})

	It("are not awaited longer than the Model allows", func() {
		config.Spec.IdleTimeout = &metav1.Duration{Duration: 100 * time.Millisecond}
		release := make(chan struct{})
		silent := stall(release)
		DeferCleanup(silent.Close)
		DeferCleanup(func() { close(release) })
		config.Spec.Endpoint = silent.URL + "/v1"
		_, err := client().Stream(context.Background(), hello, func(model.Delta) {})
		Expect(err).To(And(HaveField("Kind", model.KindTimeout), HaveField("Passing", true), HaveField("Message", ContainSubstring("sent nothing for 100ms"))))
	})
})
