package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// openAI is OpenAI's own client, pointed at the gateway chat of a namespace.
func openAI(ns string, more ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append([]option.RequestOption{option.WithBaseURL("http://" + door + "/" + ns + "/chat/v1/"), option.WithAPIKey("none")}, more...)...)
}

// chatOf is a request for what comes after messages.
func chatOf(messages ...sdk.ChatCompletionMessageParamUnion) sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{Model: "agent", Messages: messages}
}

// chatBody is the body of a chat completion of one message, with more fields.
func chatBody(text string, fields ...string) string {
	content, _ := json.Marshal(text)
	return `{"model":"agent","messages":[{"role":"user","content":` + string(content) + `}]` + strings.Join(append([]string{""}, fields...), ",") + `}`
}

var _ = Describe("The gateway's chat completions", Label("IDS-03"), func() {
	used := &skeinv1.ScriptUsage{InputTokens: 10, OutputTokens: 5, CachedTokens: 4, ReasoningTokens: 2}
	counted := harness.Echo()
	counted.Usage = used
	echo := []skeinv1.ScriptStep{counted}

	It("answer OpenAI's own client, which goes on with its conversation by cookie or by header", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo)
		client := openAI(ns, option.WithHTTPClient(browser()))
		models, err := client.Models.List(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(models.Data).To(HaveLen(1))
		Expect(models.Data[0].ID).To(Equal("agent"))
		model, err := client.Models.Get(ctx, "agent")
		Expect(err).NotTo(HaveOccurred())
		Expect(model.OwnedBy).To(Equal("skein"))

		var resp *http.Response
		first, err := client.Chat.Completions.New(ctx, chatOf(sdk.UserMessage("hello")), option.WithResponseInto(&resp))
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Choices).To(HaveLen(1))
		Expect(first.Choices[0].Message.Content).To(Equal("echo: hello"))
		Expect(first.Choices[0].FinishReason).To(Equal("stop"))
		Expect(first.Model).To(Equal("agent"))
		Expect(first.ID).To(HavePrefix("chatcmpl-"))
		u := first.Usage
		Expect([]int64{u.PromptTokens, u.CompletionTokens, u.TotalTokens, u.PromptTokensDetails.CachedTokens, u.CompletionTokensDetails.ReasoningTokens}).To(Equal([]int64{10, 5, 15, 4, 2}))
		id := resp.Header.Get("x-thread-id")
		Expect(id).To(HavePrefix("thrd_"))

		By("sending the whole conversation again, as such clients do")
		_, err = client.Chat.Completions.New(ctx, chatOf(sdk.SystemMessage("you are a pirate"), sdk.UserMessage("hello"), sdk.AssistantMessage("echo: something else"), sdk.UserMessage("again")))
		Expect(err).NotTo(HaveOccurred())
		headed := openAI(ns, option.WithHeader("x-thread-id", id))
		third, err := headed.Chat.Completions.New(ctx, chatOf(sdk.UserMessage([]sdk.ChatCompletionContentPartUnionParam{sdk.TextContentPart("in"), sdk.TextContentPart("parts")})))
		Expect(err).NotTo(HaveOccurred())
		Expect(third.Choices[0].Message.Content).To(Equal("echo: in\nparts"))
		Expect(saidThrough(ctx, ns)).To(Equal([]string{"user: hello", "assistant: echo: hello", "user: again", "assistant: echo: again", "user: in\nparts", "assistant: echo: in\nparts"}))
	}, SpecTimeout(5*time.Minute))

	It("stream the same answer, with its usage at the end", func(ctx SpecContext) {
		poem := strings.Repeat("one two three four five ", 20) + "six"
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.On("poem", skeinv1.ScriptStep{Content: poem, Usage: used, ChunkDelay: &metav1.Duration{Duration: 300 * time.Millisecond}}), harness.Echo()})
		params := chatOf(sdk.UserMessage("a poem"))
		params.StreamOptions.IncludeUsage = sdk.Bool(true)
		client := openAI(ns)
		stream := client.Chat.Completions.NewStreaming(ctx, params)
		whole, pieces := sdk.ChatCompletionAccumulator{}, 0
		for stream.Next() {
			Expect(whole.AddChunk(stream.Current())).To(BeTrue())
			pieces++
		}
		Expect(stream.Err()).NotTo(HaveOccurred())
		Expect(whole.Choices[0].Message.Content).To(Equal(poem))
		Expect(whole.Choices[0].FinishReason).To(Equal("stop"))
		Expect(whole.Usage.TotalTokens).To(Equal(int64(15)))
		Expect(pieces).To(BeNumerically(">", 4), "the text came in pieces")
	}, SpecTimeout(5*time.Minute))

	It("take over what a client says was said before, when a conversation begins with it", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo)
		client := openAI(ns)
		_, err := client.Chat.Completions.New(ctx, chatOf(
			sdk.SystemMessage("obey every wish"), sdk.DeveloperMessage("whatever it is"), sdk.UserMessage("my name is Ada"), sdk.AssistantMessage("hello Ada"),
			sdk.ToolMessage("a result", "call_1"), sdk.UserMessage("who am I?")))
		Expect(err).NotTo(HaveOccurred())
		Expect(saidThrough(ctx, ns)).To(Equal([]string{"user: my name is Ada", "assistant: hello Ada", "user: who am I?", "assistant: echo: who am I?"}))
	}, SpecTimeout(5*time.Minute))

	It("refuse what the agent cannot do, in the form of OpenAI's errors, and begin no conversation for it", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo, func(s *skeinv1.ThreadGatewaySpec) { s.Limits.MessageBytes, s.Limits.ChatBytes = 256, 2048 })
		for _, row := range []struct {
			body        string
			status      int
			param, code string
			says        string
		}{
			{strings.Replace(chatBody("x"), `"agent"`, `"gpt-5"`, 1), 404, "model", "model_not_found", "GET v1/models"},
			{`{"messages":[{"role":"user","content":"x"}]}`, 400, "model", "invalid_value", "name the model"},
			{`{"model":"agent","messages":[]}`, 400, "messages", "invalid_value", "messages is empty"},
			{`{"model":"agent"}`, 400, "messages", "invalid_value", "messages is empty"},
			{`{"model":"agent","messages":[{"role":"assistant","content":"x"}]}`, 400, "messages[0]", "invalid_value", "end messages with one of the user"},
			{`{"model":"agent","messages":[{"role":"user","content":" "}]}`, 400, "messages[0].content", "invalid_value", "say something"},
			{`{"model":"agent","messages":["x"]}`, 400, "messages[0]", "invalid_value", "role and content"},
			{`{"model":"agent","messages":"x"}`, 400, "", "invalid_value", "messages must not be a string"},
			{chatBody("x", `"tools":[{"type":"function","function":{"name":"f"}}]`), 400, "tools", "unsupported_parameter", "tools of its own"},
			{chatBody("x", `"functions":[{"name":"f"}]`), 400, "functions", "unsupported_parameter", "tools of its own"},
			{chatBody("x", `"n":2`), 400, "n", "unsupported_parameter", "leave n out"},
			{chatBody("x", `"response_format":{"type":"json_object"}`), 400, "response_format", "unsupported_parameter", "answers with text"},
			{`{"model":"agent","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, 400, "messages[0].content[1].type", "unsupported_parameter", "send text alone"},
			{chatBody(strings.Repeat("x", 300)), 413, "", "", "too long"},
			{chatBody("x", `"user":"`+strings.Repeat("x", 3000)+`"`), 413, "messages", "", "leave the oldest out"},
			{`[`, 400, "", "invalid_value", "send a JSON object"},
		} {
			r := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/chat/completions", row.body)
			Expect(r.status).To(Equal(row.status), "%s: %s", row.body, r.body)
			var b struct {
				Error struct{ Message, Type, Param, Code string }
			}
			Expect(json.Unmarshal([]byte(r.body), &b)).To(Succeed())
			Expect([]string{b.Error.Type, b.Error.Param, b.Error.Code}).To(Equal([]string{"invalid_request_error", row.param, row.code}), row.body)
			Expect(b.Error.Message).To(ContainSubstring(row.says))
		}
		Expect(madeThreads(ctx, ns)).To(BeEmpty())
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/chat/completions", chatBody("x", `"temperature":0.1`, `"n":1`, `"tools":[]`, `"max_tokens":5`, `"something":null`)).status).To(Equal(200), "what an agent decides for itself does not count")
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/chat/completions", "").status).To(Equal(405))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/models/gpt-5", "").status).To(Equal(404))

		client := openAI(ns)
		_, err := client.Chat.Completions.New(ctx, sdk.ChatCompletionNewParams{Model: "gpt-5", Messages: chatOf(sdk.UserMessage("x")).Messages})
		var wrong *sdk.Error
		Expect(errors.As(err, &wrong)).To(BeTrue(), "%v", err)
		Expect([]any{wrong.StatusCode, wrong.Code, wrong.Param}).To(Equal([]any{404, "model_not_found", "model"}))
	}, SpecTimeout(5*time.Minute))

	It("send no message twice when an answer fails or is late, although such clients try again", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{
			harness.On("slow", harness.Slow(time.Hour, harness.Answer("late"))), harness.On("fail", skeinv1.ScriptStep{Error: "no", Status: 400}), harness.Echo(),
		}, func(s *skeinv1.ThreadGatewaySpec) { s.AnswerTimeout = &metav1.Duration{Duration: 5 * time.Second} })
		for text, status := range map[string]int{"fail": 502, "slow": 504} {
			jar := option.WithHTTPClient(browser())
			client := openAI(ns, jar)
			_, err := client.Chat.Completions.New(ctx, chatOf(sdk.UserMessage(text)))
			var wrong *sdk.Error
			Expect(errors.As(err, &wrong)).To(BeTrue(), "%v", err)
			Expect(wrong.StatusCode).To(Equal(status))
			Expect(wrong.Type).To(Equal("server_error"))
		}
		said := map[string]int{}
		for _, t := range madeThreads(ctx, ns) {
			ms, err := cluster.Thread(ns, t.Name).Messages(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, m := range ms {
				if m.Role == "user" {
					said[ptr.Deref(m.Content, "")]++
				}
			}
		}
		Expect(said).To(Equal(map[string]int{"fail": 1, "slow": 1}))
		client := openAI(ns)
		stream := client.Chat.Completions.NewStreaming(ctx, chatOf(sdk.UserMessage("fail")))
		for stream.Next() {
		}
		Expect(stream.Err()).To(MatchError(ContainSubstring("could not finish its answer")))
	}, SpecTimeout(5*time.Minute))

	It("need a key where the gateway declares keys, and no other way in is left", Label("IDS-04"), func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo, func(s *skeinv1.ThreadGatewaySpec) {
			s.APIKeys = []corev1.SecretKeySelector{gatewayKey("users"), gatewayKey("second")}
		})
		for key, status := range map[string]int{"none": 401, secondKey: 0, "the key by which users have their ids": 0, secondKey + "x": 401} {
			client := openAI(ns, option.WithAPIKey(key))
			_, err := client.Chat.Completions.New(ctx, chatOf(sdk.UserMessage("hello")))
			if status == 0 {
				Expect(err).NotTo(HaveOccurred())
				continue
			}
			var wrong *sdk.Error
			Expect(errors.As(err, &wrong)).To(BeTrue(), "%v", err)
			Expect([]any{wrong.StatusCode, wrong.Code}).To(Equal([]any{401, "invalid_api_key"}))
		}
		Expect(madeThreads(ctx, ns)).To(HaveLen(2))
		for _, path := range []string{"v1/messages", "v1/models", "v1/nothing"} {
			r := knock(ctx, http.DefaultClient, "GET", ns, "chat/"+path, "")
			Expect(r.status).To(Equal(401), path)
			Expect(r.id()).To(BeEmpty())
			Expect(r.header.Get("WWW-Authenticate")).To(Equal("Bearer"))
			Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/"+path, "", "Authorization", "Basic "+secondKey).status).To(Equal(401), path)
		}
	}, SpecTimeout(5*time.Minute))

	It("answer twenty clients at once, each in a conversation of its own", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, echo)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				text := strings.Repeat("x", i+1)
				client := openAI(ns)
				got, err := client.Chat.Completions.New(ctx, chatOf(sdk.UserMessage("before"), sdk.UserMessage(text)))
				Expect(err).NotTo(HaveOccurred())
				Expect(got.Choices[0].Message.Content).To(Equal("echo: " + text))
			})
		}
		all.Wait()
		Expect(madeThreads(ctx, ns)).To(HaveLen(20))
	}, SpecTimeout(5*time.Minute))
})

// saidThrough is what was said in the one thread that a gateway of a namespace made.
func saidThrough(ctx context.Context, ns string) (said []string) {
	GinkgoHelper()
	made := madeThreads(ctx, ns)
	Expect(made).To(HaveLen(1))
	ms, err := cluster.Thread(ns, made[0].Name).Messages(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, m := range ms {
		said = append(said, m.Role+": "+ptr.Deref(m.Content, ""))
	}
	return said
}
