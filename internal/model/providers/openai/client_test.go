package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/openai"
)

const canary = "sk-canary+1/2=3&secret"

// chunk returns one event of a stream as OpenAI sends it.
func chunk(delta string, finish string) string {
	reason := "null"
	if finish != "" {
		reason = `"` + finish + `"`
	}
	return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta +
		`,"logprobs":null,"finish_reason":` + reason + "}]}\n\n"
}

const usageChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}` + "\n\n"

const done = "data: [DONE]\n\n"

// answers returns a handler that serves the pieces as one stream and flushes each.
func answers(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

var _ = Describe("A model behind an OpenAI-compatible endpoint", Label("AGT-06"), func() {
	var handler atomic.Value
	var requests chan *http.Request
	var bodies chan map[string]any
	var config model.Config
	var emitted []model.Delta

	BeforeEach(func() {
		requests, bodies = make(chan *http.Request, 10), make(chan map[string]any, 10)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			_ = json.NewDecoder(r.Body).Decode(&body)
			requests <- r
			bodies <- body
			handler.Load().(http.HandlerFunc)(w, r)
		}))
		DeferCleanup(server.Close)
		config = model.Config{Namespace: "ns", Name: "gpt", APIKey: canary, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, Model: "gpt-4o", Endpoint: server.URL + "/v1", Timeout: &metav1.Duration{Duration: 10 * time.Second},
		}}
		emitted = nil
	})
	ask := func(req model.Request) (*model.Response, error) {
		GinkgoHelper()
		c, err := openai.New(config)
		Expect(err).NotTo(HaveOccurred())
		return c.Stream(context.Background(), req, func(d model.Delta) { emitted = append(emitted, d) })
	}
	hello := model.Request{Messages: []model.Message{{Role: model.RoleSystem, Content: "be kind"}, {Role: model.RoleUser, Content: "hello"}}}
	failure := func(err error) *model.Error {
		GinkgoHelper()
		var e *model.Error
		Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
		Expect(fmt.Sprintf("%v %+v %#v", err, e, e)).NotTo(ContainSubstring("canary"))
		return e
	}

	It("streams a text and returns its usage", func() {
		handler.Store(answers(chunk(`{"role":"assistant","content":""}`, ""), chunk(`{"content":"Hel"}`, ""), chunk(`{"content":"lo."}`, ""), chunk(`{}`, "stop"), usageChunk, done))
		res, err := ask(hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(Equal(&model.Response{Content: "Hello.", FinishReason: "stop",
			Usage: &model.Usage{InputTokens: 11, OutputTokens: 7, CachedTokens: 4, ReasoningTokens: 2}}))
		Expect(emitted).To(Equal([]model.Delta{{Text: "Hel"}, {Text: "lo."}}))
		r := <-requests
		Expect(r.URL.Path).To(Equal("/v1/chat/completions"))
		Expect(r.Header.Get("Authorization")).To(Equal("Bearer " + canary))
	})

	It("sends the conversation, the tools and the options in the form of the protocol", func() {
		handler.Store(answers(chunk(`{"content":"x"}`, "stop"), done))
		config.Spec.Options = &skeinv1.ModelOptions{Temperature: "0.5", TopP: "0.9", MaxTokens: ptr.To[int32](100)}
		_, err := ask(model.Request{
			Messages: []model.Message{
				{Role: model.RoleSystem, Content: "sys"},
				{Role: model.RoleUser, Content: "u", Attachments: []string{"/a.csv (text/csv, 3 bytes)"}},
				{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "t", Arguments: `{"a":1}`}, {ID: "c2", Name: "t", Arguments: `{"a":`}}},
				{Role: model.RoleTool, ToolCallID: "c1", Name: "t", Content: "one"},
				{Role: model.RoleTool, ToolCallID: "c2", Name: "t", Content: "bad"},
				{Role: model.RoleAssistant, Content: "so"},
			},
			Tools:      []model.Tool{{Name: "t", Description: "d", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"}}}`)}, {Name: "bare"}},
			ToolChoice: model.ToolChoiceRequired,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(<-bodies).To(Equal(map[string]any{
			"model": "gpt-4o", "stream": true, "stream_options": map[string]any{"include_usage": true},
			"temperature": 0.5, "top_p": 0.9, "max_tokens": 100.0, "tool_choice": "required",
			"messages": []any{
				map[string]any{"role": "system", "content": "sys"},
				map[string]any{"role": "user", "content": "u\n\n[attached files: /a.csv (text/csv, 3 bytes)]"},
				map[string]any{"role": "assistant", "tool_calls": []any{
					map[string]any{"type": "function", "id": "c1", "function": map[string]any{"name": "t", "arguments": `{"a":1}`}},
					map[string]any{"type": "function", "id": "c2", "function": map[string]any{"name": "t", "arguments": `{"invalid_json":"{\"a\":"}`}},
				}},
				map[string]any{"role": "tool", "tool_call_id": "c1", "content": "one"},
				map[string]any{"role": "tool", "tool_call_id": "c2", "content": "bad"},
				map[string]any{"role": "assistant", "content": "so"},
			},
			"tools": []any{
				map[string]any{"type": "function", "function": map[string]any{"name": "t", "description": "d",
					"parameters": map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "number"}}}}},
				map[string]any{"type": "function", "function": map[string]any{"name": "bare", "parameters": map[string]any{"type": "object", "properties": map[string]any{}}}},
			},
		}))
	})

	It("puts together a tool call that is split over chunks", func() {
		handler.Store(answers(
			chunk(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"read_file","arguments":""}}]}`, ""),
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"pa"}}]}`, ""),
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"th\":\"/a\"}"}}]}`, ""),
			chunk(`{}`, "tool_calls"), done))
		res, err := ask(hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.ToolCalls).To(Equal([]model.ToolCall{{ID: "call_a", Name: "read_file", Arguments: `{"path":"/a"}`}}))
		Expect(res.FinishReason).To(Equal("tool_calls"))
	})

	It("keeps two parallel calls apart, by their index or by their ids", func() {
		want := []model.ToolCall{{ID: "a", Name: "one", Arguments: `{"x":1}`}, {ID: "b", Name: "two", Arguments: `{"y":2}`}}
		handler.Store(answers(
			chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{"}},{"index":1,"id":"b","function":{"name":"two","arguments":"{"}}]}`, ""),
			chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"\"y\":2}"}},{"index":0,"function":{"arguments":"\"x\":1}"}}]}`, ""),
			chunk(`{}`, "tool_calls"), done))
		res, err := ask(hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.ToolCalls).To(Equal(want))

		handler.Store(answers( // some servers send every call with index 0
			chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{\"x\":1}"}}]}`, ""),
			chunk(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"two","arguments":"{\"y\":2}"}}]}`, ""),
			chunk(`{}`, "tool_calls"), done))
		res, err = ask(hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.ToolCalls).To(Equal(want))
	})

	It("separates reasoning from the answer, and accepts an answer without content", func() {
		handler.Store(answers(chunk(`{"reasoning_content":"hmm"}`, ""), chunk(`{"content":""}`, "stop"), done))
		res, err := ask(hello)
		Expect(err).NotTo(HaveOccurred())
		Expect(res).To(Equal(&model.Response{Reasoning: "hmm", FinishReason: "stop"}))
		Expect(emitted).To(Equal([]model.Delta{{Reasoning: "hmm"}}))
	})

	DescribeTable("reports what is wrong with an invalid response", func(content, contentType, want string) {
		handler.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, content)
		}))
		_, err := ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindBadAnswer), HaveField("Passing", false), HaveField("Message", ContainSubstring(want))))
	},
		Entry("that is not a stream", `<html>hello</html>`, "text/html", "check that spec.endpoint"),
		Entry("that is empty", ``, "text/event-stream", "check that spec.endpoint"),
		Entry("that is not JSON", "data: {\"choices\": [oh\n\n", "text/event-stream", "not the JSON of its protocol"),
		Entry("that is other JSON", "data: 17\n\n", "text/event-stream", "not the JSON of its protocol"),
		Entry("without an answer in it", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "text/event-stream", "without content"),
		Entry("that calls a tool without a name", chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}`, "tool_calls")+done, "text/event-stream", "without a name"),
	)

	It("reports a stream that breaks off as a passing failure", func() {
		handler.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answers(chunk(`{"content":"Hel"}`, ""))(w, r)
			panic(http.ErrAbortHandler)
		}))
		_, err := ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindUnreachable), HaveField("Passing", true), HaveField("Message", ContainSubstring("broke before its answer was complete"))))
		handler.Store(answers(chunk(`{"content":"Hel"}`, ""))) // the stream ends without a finish reason
		_, err = ask(hello)
		Expect(failure(err)).To(HaveField("Passing", true))
	})

	It("reports an error within the stream", func() {
		handler.Store(answers(chunk(`{"content":"Hel"}`, ""), `data: {"error":{"message":"overloaded `+canary+`","type":"server_error"}}`+"\n\n"))
		_, err := ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindFailed), HaveField("Message", And(ContainSubstring("overloaded"), ContainSubstring("[redacted]")))))
	})

	It("reports an endpoint that refuses connections, and one that does not exist", func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		config.Spec.Endpoint = "http://" + l.Addr().String() + "/v1"
		Expect(l.Close()).To(Succeed())
		_, err = ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindUnreachable), HaveField("Passing", true), HaveField("Message", ContainSubstring("connection refused"))))

		config.Spec.Endpoint = "http://no-such-host.invalid/v1"
		_, err = ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindUnreachable), HaveField("Message", ContainSubstring("check spec.endpoint"))))
	})

	It("gives up on an answer that takes too long, streaming included", func() {
		config.Spec.Timeout = &metav1.Duration{Duration: 200 * time.Millisecond}
		release := make(chan struct{})
		defer close(release)
		handler.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answers(chunk(`{"content":"Hel"}`, ""))(w, r)
			<-release
		}))
		_, err := ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindTimeout), HaveField("Passing", false), HaveField("Message", ContainSubstring("200ms"))))
	})

	It("ends with the context, and returns its cause", func() {
		handler.Store(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		ctx, cancel := context.WithCancelCause(context.Background())
		cause := errors.New("stopped")
		go func() { <-requests; cancel(cause) }()
		c, err := openai.New(config)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Stream(ctx, hello, func(model.Delta) {})
		Expect(err).To(MatchError(cause))
	})

	DescribeTable("reports a refusal by its status, with the provider's message and without the key", func(status int, body string, passing bool, want string) {
		handler.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		_, err := ask(hello)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindStatus), HaveField("Status", status), HaveField("Passing", passing), HaveField("Message", ContainSubstring(want))))
	},
		Entry(nil, 401, `{"error":{"message":"Incorrect API key provided: `+canary+`","type":"invalid_request_error","code":"invalid_api_key"}}`, false, "check the API key in the Secret that spec.credentials of the Model names; it said: Incorrect API key provided: [redacted]"),
		Entry(nil, 400, `{"error":{"message":"bad tools"}}`, false, "status 400; it said: bad tools"),
		Entry(nil, 404, `not here`, false, "check spec.endpoint and spec.model of the Model; it said: Not Found"),
		Entry(nil, 500, `{"error":{"message":"oops"}}`, true, "status 500; it said: oops"),
		Entry("what is not of its protocol may be of any service, and is not shown", 502, `<html>`+strings.Repeat("x", 5000)+`</html>`, true, "status 502; it said: Bad Gateway"),
		Entry(nil, 503, ``, true, "Service Unavailable"),
		Entry(nil, 429, `{"error":{"message":"slow down"}}`, true, "slow down"),
	)

	It("waits as long as a 429 asks and then succeeds", func() {
		var calls atomic.Int32
		handler.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			answers(chunk(`{"content":"now"}`, "stop"), done)(w, r)
		}))
		c, err := openai.New(config)
		Expect(err).NotTo(HaveOccurred())
		clk := clocktesting.NewFakeClock(time.Now())
		got := make(chan *model.Response, 1)
		go func() {
			defer GinkgoRecover()
			res, err := model.WithRetries(c, 2, clk).Stream(context.Background(), hello, func(model.Delta) {})
			Expect(err).NotTo(HaveOccurred())
			got <- res
		}()
		Eventually(clk.HasWaiters, "20s", "1ms").Should(BeTrue())
		clk.Step(6900 * time.Millisecond)
		Consistently(got, "100ms").ShouldNot(Receive())
		clk.Step(200 * time.Millisecond)
		Eventually(got, "20s").Should(Receive(HaveField("Content", "now")))
	})

	DescribeTable("refuses a Model that cannot be used", func(change func(*model.Config), want string) {
		change(&config)
		_, err := openai.New(config)
		Expect(failure(err)).To(And(HaveField("Kind", model.KindConfig), HaveField("Message", ContainSubstring(want))))
	},
		Entry("with a password in the endpoint", func(c *model.Config) { c.Spec.Endpoint = "http://user:canary@host/v1" }, "must not hold credentials"),
		Entry("with a query in the endpoint", func(c *model.Config) { c.Spec.Endpoint = "http://host/v1?key=" + canary }, "must not hold credentials"),
		Entry("with an endpoint that is not a URL", func(c *model.Config) { c.Spec.Endpoint = "ftp://host" }, "not a URL"),
		Entry("without a model id", func(c *model.Config) { c.Spec.Model = "" }, "spec.model is missing"),
		Entry("with a temperature that is not a number", func(c *model.Config) { c.Spec.Options = &skeinv1.ModelOptions{Temperature: "warm"} }, "decimal"),
	)

	It("takes no key from the environment of the manager", func() {
		GinkgoT().Setenv("OPENAI_API_KEY", canary)
		GinkgoT().Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/")
		GinkgoT().Setenv("OPENAI_ORG_ID", "org")
		config.APIKey = ""
		handler.Store(answers(chunk(`{"content":"x"}`, "stop"), done))
		_, err := ask(hello)
		Expect(err).NotTo(HaveOccurred())
		r := <-requests
		Expect(r.Header).NotTo(HaveKey("Authorization"))
		Expect(r.Header).NotTo(HaveKey("Openai-Organization"))
	})
})

// stall starts a server that begins an answer and then sends nothing until it is released.
func stall(release <-chan struct{}) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers(chunk(`{"content":"Hel"}`, ""))(w, r)
		<-release
	}))
}
