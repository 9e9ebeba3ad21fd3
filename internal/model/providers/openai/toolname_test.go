package openai_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/openai"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

var _ = Describe("A call with a name that the APIs refuse", Label("AGT-06"), func() {
	DescribeTable("is sent with a name that they accept", func(api skeinv1.ModelAPI, file string, calls func(body map[string]any) []any) {
		server := wiretest.New()
		server.Play("testdata/" + file + ".http")
		c, err := openai.New(model.Config{Namespace: "ns", Name: "gpt", Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, API: api, Model: "gpt-x", Endpoint: server.URL, Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}})
		Expect(err).NotTo(HaveOccurred())
		long, offered := strings.Repeat("n", 70), strings.Repeat("o", 70)
		_, err = c.Stream(context.Background(), model.Request{
			Messages: []model.Message{{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{
				{ID: "c1", Name: "multi_tool_use.parallel"}, {ID: "c2", Name: ""}, {ID: "c3", Name: long}, {ID: "c4", Name: offered}, {ID: "c5", Name: "größe"},
			}}},
			Tools: []model.Tool{{Name: offered}},
		}, func(model.Delta) {})
		Expect(err).NotTo(HaveOccurred())
		Expect(calls(server.Last().Body)).To(HaveExactElements(
			HaveKeyWithValue("name", "multi_tool_use_parallel"), HaveKeyWithValue("name", "unknown"), HaveKeyWithValue("name", long[:64]),
			HaveKeyWithValue("name", offered), HaveKeyWithValue("name", "gr__e")))
	},
		Entry("of chat completions", skeinv1.APIChat, "chat_length", func(body map[string]any) (out []any) {
			for _, call := range body["messages"].([]any)[0].(map[string]any)["tool_calls"].([]any) {
				out = append(out, call.(map[string]any)["function"])
			}
			return out
		}),
		Entry("of responses", skeinv1.APIResponses, "responses_text", func(body map[string]any) []any { return body["input"].([]any) }),
	)
})
