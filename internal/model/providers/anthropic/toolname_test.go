package anthropic_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/anthropic"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

var _ = Describe("A call with a name that the API refuses", Label("AGT-06"), func() {
	It("is sent with a name that it accepts, and defined by it", func() {
		server := wiretest.New()
		c, err := anthropic.New(model.Config{Namespace: "ns", Name: "claude", Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderAnthropic, Model: "claude-x", Endpoint: server.URL, Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}})
		Expect(err).NotTo(HaveOccurred())
		long := strings.Repeat("n", 70)
		req := model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "look"}, {Role: model.RoleAssistant, ToolCalls: []model.ToolCall{
			{ID: "c1", Name: "multi_tool_use.parallel", Arguments: `{}`}, {ID: "c2", Name: "", Arguments: `{}`}, {ID: "c3", Name: long, Arguments: `{}`}, {ID: "c4", Name: "größe", Arguments: `{}`},
		}}}}
		for i := range req.Messages[1].ToolCalls {
			req.Messages = append(req.Messages, model.Message{Role: model.RoleTool, ToolCallID: req.Messages[1].ToolCalls[i].ID, Content: "no such tool"})
		}
		ask := func() (called, defined []string) {
			GinkgoHelper()
			server.Play("testdata/text.http")
			_, err := c.Stream(context.Background(), req, func(model.Delta) {})
			Expect(err).NotTo(HaveOccurred())
			body := server.Last().Body
			for _, b := range body["messages"].([]any)[1].(map[string]any)["content"].([]any) {
				called = append(called, b.(map[string]any)["name"].(string))
			}
			for _, t := range body["tools"].([]any) {
				defined = append(defined, t.(map[string]any)["name"].(string))
			}
			return called, defined
		}
		called, defined := ask()
		Expect(called).To(Equal([]string{"multi_tool_use_parallel", "unknown", long[:64], "gr__e"}))
		Expect(defined).To(Equal(called))
		Expect(req.Messages[1].ToolCalls[0].Name).To(Equal("multi_tool_use.parallel"), "the log keeps what the model wrote")

		req.Tools = []model.Tool{{Name: long}}
		called, defined = ask()
		Expect(called).To(Equal([]string{"multi_tool_use_parallel", "unknown", long, "gr__e"}), "a tool that is offered keeps its name")
		Expect(defined).To(Equal([]string{long}))
	})
})
