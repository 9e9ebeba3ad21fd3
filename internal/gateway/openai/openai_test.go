package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	sdk "github.com/openai/openai-go/v3"

	"github.com/skein-dev/skein/internal/gateway/openai"
)

func TestOpenAI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The form of OpenAI")
}

var _ = Describe("A request", func() {
	It("of OpenAI's own client has its last message apart from the earlier ones", func() {
		body, err := json.Marshal(sdk.ChatCompletionNewParams{Model: "m", Messages: []sdk.ChatCompletionMessageParamUnion{
			sdk.SystemMessage("a"), sdk.UserMessage("b"), sdk.AssistantMessage("c"), sdk.ToolMessage("d", "call"),
			sdk.UserMessage([]sdk.ChatCompletionContentPartUnionParam{sdk.TextContentPart("e"), sdk.TextContentPart("f")}),
		}, StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)}, Temperature: sdk.Float(0.2), N: sdk.Int(1)})
		Expect(err).NotTo(HaveOccurred())
		Expect(openai.ParseChat(body)).To(Equal(&openai.Chat{
			Model: "m", Said: "e\nf", Earlier: []openai.Turn{{Role: "user", Content: "b"}, {Role: "assistant", Content: "c"}}, Usage: true,
		}))
	})

	It("keeps the newest earlier messages", func() {
		var messages []string
		for i := range openai.MaxEarlier + 50 {
			messages = append(messages, fmt.Sprintf(`{"role":"user","content":"%d"}`, i))
		}
		got, err := openai.ParseChat([]byte(`{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Earlier).To(HaveLen(openai.MaxEarlier))
		Expect(got.Earlier[0].Content).To(Equal("49"))
	})

	It("that nests too deeply is refused", func() {
		for _, open := range []string{"[", `{"a":`, `{"messages":[`} {
			_, err := openai.ParseChat([]byte(`{"model":"m","messages":` + strings.Repeat(open, 1<<17)))
			Expect(err).To(BeAssignableToTypeOf(&openai.Error{}))
		}
	})

	It("is refused with a short error, also when a wrong value is long", func() {
		_, err := openai.ParseChat([]byte(`{"model":"m","messages":[{"role":"` + strings.Repeat("ä", 1<<16) + `","content":"x"}]}`))
		Expect(err).To(BeAssignableToTypeOf(&openai.Error{}))
		Expect(len(err.Error())).To(BeNumerically("<", 200))
	})
})

// FuzzParseChat looks for a body that makes a message out of nothing.
func FuzzParseChat(f *testing.F) {
	for _, s := range []string{"", "{}", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := openai.ParseChat([]byte(s))
		if err == nil && (got.Model == "" || strings.TrimSpace(got.Said) == "") {
			t.Fatalf("%q: %+v", s, got)
		}
	})
}
