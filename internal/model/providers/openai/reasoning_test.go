package openai_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/openai"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

var _ = Describe("The encrypted reasoning of earlier answers", Label("AGT-06"), func() {
	var server *wiretest.Server
	BeforeEach(func() { server = wiretest.New() })

	// gpt returns a Model of the server's API.
	gpt := func(name, id string) model.Config {
		return model.Config{Namespace: "ns", Name: name, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, API: skeinv1.APIResponses, Model: id, Endpoint: server.URL + "/v1",
			Sessions: ptr.To(false), Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}}
	}
	ask := func(config model.Config, file string, messages ...model.Message) *model.Response {
		GinkgoHelper()
		server.Play("testdata/" + file + ".http")
		c, err := openai.New(config)
		Expect(err).NotTo(HaveOccurred())
		res, err := c.Stream(context.Background(), model.Request{Messages: messages}, func(model.Delta) {})
		Expect(err).NotTo(HaveOccurred())
		return res
	}
	user := model.Message{Role: model.RoleUser, Content: "hello"}
	answer := func(metadata map[string]any) model.Message {
		return model.Message{Role: model.RoleAssistant, Content: "Yes.", Metadata: metadata}
	}
	reasoning := func() types { return typesOf(server.Last().Body["input"]) }

	It("goes back to the model that reasoned, and to no other", func() {
		reasoned := ask(gpt("a", "gpt-a"), "responses_reasoning", user).Metadata
		ask(gpt("a", "gpt-a"), "responses_text", user, answer(reasoned), user)
		Expect(reasoning()).To(Equal(types{"user", "reasoning", "assistant", "user"}))
		slash := gpt("renamed", "gpt-a")
		slash.Spec.Endpoint += "/"
		ask(slash, "responses_text", user, answer(reasoned), user)
		Expect(reasoning()).To(Equal(types{"user", "reasoning", "assistant", "user"}), "the same endpoint, by another name")
		for what, change := range map[string]func(*skeinv1.ModelSpec){
			"another model":    func(s *skeinv1.ModelSpec) { s.Model = "gpt-b" },
			"another endpoint": func(s *skeinv1.ModelSpec) { s.Endpoint = server.URL + "/v2" },
			"another organization": func(s *skeinv1.ModelSpec) {
				s.Headers = []skeinv1.ModelHeader{{Name: "openai-organization", Value: "org"}}
			},
		} {
			other := gpt("a", "gpt-a")
			change(&other.Spec)
			ask(other, "responses_text", user, answer(reasoned), user)
			Expect(reasoning()).To(Equal(types{"user", "assistant", "user"}), what)
		}
	})

	It("goes back as before when an older release stored it, unless a fallback reasoned", func() {
		stored := []any{map[string]any{"id": "rs_1", "encrypted": "enc"}}
		ask(gpt("a", "gpt-a"), "responses_text", user,
			answer(map[string]any{"openai_reasoning": stored}), user,
			answer(map[string]any{"openai_reasoning": stored, "model": "a"}), user,
			answer(map[string]any{"openai_reasoning": stored, "model": "b"}), user)
		Expect(reasoning()).To(Equal(types{"user", "reasoning", "assistant", "user", "reasoning", "assistant", "user", "assistant", "user"}))
	})

	It("is left out where the answer was cut off within it, since the API refuses reasoning that nothing follows", func() {
		reasoned := ask(gpt("a", "gpt-a"), "responses_reasoning", user).Metadata
		ask(gpt("a", "gpt-a"), "responses_text", user, model.Message{Role: model.RoleAssistant, Metadata: reasoned}, user)
		Expect(reasoning()).To(Equal(types{"user", "user"}))
	})
})

// types are the types of the items of an input, or the roles of those that are messages.
type types []string

func typesOf(input any) types {
	var out types
	for _, i := range input.([]any) {
		item := i.(map[string]any)
		kind, ok := item["type"].(string)
		if !ok {
			kind = item["role"].(string)
		}
		out = append(out, kind)
	}
	return out
}
