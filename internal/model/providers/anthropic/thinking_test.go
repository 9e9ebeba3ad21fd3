package anthropic_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/anthropic"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

var _ = Describe("The thinking of earlier answers", Label("AGT-06"), func() {
	var server *wiretest.Server
	BeforeEach(func() { server = wiretest.New() })

	// claude returns a Model of the server's API.
	claude := func(name, id string) model.Config {
		return model.Config{Namespace: "ns", Name: name, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderAnthropic, Model: id, Endpoint: server.URL + "/v1", Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}}
	}
	ask := func(config model.Config, file string, req model.Request) *model.Response {
		GinkgoHelper()
		server.Play("testdata/" + file + ".http")
		c, err := anthropic.New(config)
		Expect(err).NotTo(HaveOccurred())
		res, err := c.Stream(context.Background(), req, func(model.Delta) {})
		Expect(err).NotTo(HaveOccurred())
		return res
	}
	call := func(metadata map[string]any) []model.Message {
		return []model.Message{
			{Role: model.RoleSystem, Content: "be kind"},
			{Role: model.RoleUser, Content: "look"},
			{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "one", Arguments: `{}`}}, Metadata: metadata},
			{Role: model.RoleTool, ToolCallID: "c1", Name: "one", Content: "1"},
		}
	}
	// turns returns the roles and the types of the blocks of the request that the server got last.
	turns := func() [][]string {
		var out [][]string
		for _, t := range server.Last().Body["messages"].([]any) {
			turn := t.(map[string]any)
			kinds := []string{turn["role"].(string)}
			for _, b := range turn["content"].([]any) {
				kinds = append(kinds, b.(map[string]any)["type"].(string))
			}
			out = append(out, kinds)
		}
		return out
	}
	with := [][]string{{"user", "text"}, {"assistant", "thinking", "redacted_thinking", "tool_use"}, {"user", "tool_result"}}
	without := [][]string{{"user", "text"}, {"assistant", "tool_use"}, {"user", "tool_result"}}

	It("goes back to the model that thought it, and to no other", func() {
		hello := model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "hello"}}}
		thought := ask(claude("a", "claude-a"), "thinking", hello).Metadata
		req := model.Request{Messages: call(thought)}
		ask(claude("a", "claude-a"), "text", req)
		Expect(turns()).To(Equal(with))
		ask(claude("renamed", "claude-a"), "text", req)
		Expect(turns()).To(Equal(with), "the name of the Model does not matter")
		bare := claude("a", "claude-a")
		bare.Spec.Endpoint = server.URL + "/"
		ask(bare, "text", req)
		Expect(turns()).To(Equal(with), "the same endpoint, written in another way")
		ask(claude("a", "claude-b"), "text", req)
		Expect(turns()).To(Equal(without), "another model")
		other := claude("a", "claude-a")
		other.Spec.Endpoint += "/other/v1"
		ask(other, "text", req)
		Expect(turns()).To(Equal(without), "another endpoint")
	})

	It("stays out of requests that ask for no reasoning, when it was asked for, since the API refuses thoughts then", func() {
		asked := &model.Reasoning{MaxTokens: 2000}
		hello := model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "hello"}}, Reasoning: asked}
		thought := ask(claude("a", "claude-a"), "thinking", hello).Metadata
		ask(claude("a", "claude-a"), "text", model.Request{Messages: call(thought)})
		Expect(turns()).To(Equal(without), "after a handoff to an agent that does not reason")
		ask(claude("a", "claude-a"), "text", model.Request{Messages: call(thought), Reasoning: asked})
		Expect(turns()).To(Equal(with))
	})

	It("goes back as before when an older release stored it, unless a fallback thought it", func() {
		thought := func(by string) map[string]any {
			out := map[string]any{"anthropic_thinking": []any{map[string]any{"signature": "s", "thinking": "t"}, map[string]any{"redacted": "r"}}}
			if by != "" {
				out["model"] = by
			}
			return out
		}
		ask(claude("a", "claude-a"), "text", model.Request{Messages: call(thought(""))})
		Expect(turns()).To(Equal(with))
		ask(claude("a", "claude-a"), "text", model.Request{Messages: call(thought("a"))})
		Expect(turns()).To(Equal(with), "the fallback is the main Model by now")
		ask(claude("a", "claude-a"), "text", model.Request{Messages: call(thought("b"))})
		Expect(turns()).To(Equal(without))
	})

	Describe("when a budget is set for it", func() {
		var config model.Config
		BeforeEach(func() {
			config = claude("a", "claude-a")
			config.Spec.Options = &skeinv1.ModelOptions{Temperature: "0.5", TopP: "0.9", MaxTokens: ptr.To[int32](1500)}
		})
		user := func(text string) model.Message { return model.Message{Role: model.RoleUser, Content: text} }
		result := func(id string) model.Message {
			return model.Message{Role: model.RoleTool, ToolCallID: id, Name: "one", Content: "1"}
		}
		answer := func(text, call string, thought bool) model.Message {
			m := model.Message{Role: model.RoleAssistant, Content: text}
			if call != "" {
				m.ToolCalls = []model.ToolCall{{ID: call, Name: "one", Arguments: `{}`}}
			}
			if thought {
				m.Metadata = map[string]any{"anthropic_thinking": []any{map[string]any{"signature": "s", "thinking": "t"}}}
			}
			return m
		}
		budget := &model.Reasoning{MaxTokens: 2000}

		DescribeTable("is requested, unless the present turn began with calls that nothing was thought before", func(thinks bool, messages ...model.Message) {
			ask(config, "text", model.Request{Messages: messages, Reasoning: budget})
			body := server.Last().Body
			if thinks {
				Expect(body).To(HaveKeyWithValue("thinking", HaveKeyWithValue("budget_tokens", 2000.0)))
				Expect(body).To(And(HaveKeyWithValue("max_tokens", 3500.0), Not(HaveKey("temperature")), Not(HaveKey("top_p"))))
				return
			}
			Expect(body).NotTo(HaveKey("thinking"))
			Expect(body).To(And(HaveKeyWithValue("max_tokens", 1500.0), HaveKeyWithValue("temperature", 0.5), HaveKeyWithValue("top_p", 0.9)))
			Expect(turns()).NotTo(ContainElement(ContainElement("thinking")), "the API refuses thoughts in a turn without thinking")
		},
			Entry("no calls", true, user("u"), answer("a", "", false), user("u")),
			Entry("a call of the model", true, user("u"), answer("", "c1", true), result("c1")),
			Entry("calls of the model that thought once, before the first", true,
				user("u"), answer("", "c1", true), result("c1"), answer("", "c2", false), result("c2")),
			Entry("a call that others made", false, user("u"), answer("", "c1", false), result("c1")),
			Entry("a call that others made, at the begin", false, answer("", "c1", false), result("c1")),
			Entry("a call that others made, behind a text", false, user("u"), answer("look", "c1", false), result("c1")),
			Entry("a call that others made, with a new message behind it", false, user("u"), answer("", "c1", false), result("c1"), user("u")),
			Entry("a call that others made, and one with thoughts behind it", false,
				user("u"), answer("", "c1", false), result("c1"), answer("", "c2", true), result("c2")),
			Entry("a call that others made after a new message", false,
				user("u"), answer("", "c1", true), result("c1"), user("u"), answer("", "c2", false), result("c2")),
			Entry("a call that others made in an earlier turn", true,
				user("u"), answer("", "c1", false), result("c1"), answer("a", "", false), user("u")),
			Entry("a call that others made after an answer without a reply", false, user("u"), answer("a", "", false), answer("", "c1", false), result("c1")),
			Entry("a call of the model after an answer without a reply", true, user("u"), answer("a", "", false), answer("", "c1", true), result("c1")),
		)

		It("goes back only with calls, and stays at the begin of its turn", func() {
			ask(config, "text", model.Request{Reasoning: budget, Messages: []model.Message{
				user("u"), answer("its calls are left out", "", true), user("u"),
				answer("a", "", false), answer("b", "c1", true), result("c1"),
			}})
			Expect(turns()).To(Equal([][]string{
				{"user", "text"}, {"assistant", "text"}, {"user", "text"},
				{"assistant", "text"}, {"user", "text"}, {"assistant", "thinking", "text", "tool_use"}, {"user", "tool_result"},
			}))
			Expect(server.Last().Body["messages"].([]any)[4]).To(HaveKeyWithValue("content", ConsistOf(HaveKeyWithValue("text", "(go on)"))))
		})

		It("stays out of a request that turns thinking off", func() {
			ask(config, "text", model.Request{Reasoning: &model.Reasoning{Effort: "none"}, Messages: []model.Message{user("u"), answer("", "c1", true), result("c1")}})
			Expect(turns()).To(Equal(without))
		})
	})
})
