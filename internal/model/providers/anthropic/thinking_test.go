package anthropic_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
})
