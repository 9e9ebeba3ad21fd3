package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("What admission says about a text of the wrong form", Label("K8S-02"), func() {
	DescribeTable("says what to write, not which regular expression", func(ctx SpecContext, kind, spec, want string) {
		ns := namespace(ctx)
		_, err := cluster.KubectlIn(ctx, "apiVersion: skein.dev/v1alpha1\nkind: "+kind+"\nmetadata: {name: wrong, namespace: "+ns+"}\nspec: "+spec+"\n", "apply", "-f", "-")
		Expect(err).To(MatchError(And(ContainSubstring(want), Not(ContainSubstring("should match")))))
	},
		Entry("a host from a template", "Tool", `{description: x, http: {url: "https://{{ env.HOST }}/orders"}}`, "plain scheme, host and port", SpecTimeout(2*time.Minute)),
		Entry("credentials in a URL", "Tool", `{description: x, http: {url: "https://ada:x@shop.test/"}}`, "credentials in auth", SpecTimeout(2*time.Minute)),
		Entry("a header with a colon", "Tool", `{description: x, http: {url: "https://shop.test", headers: [{name: "X-Key:", value: x}]}}`, "such as X-Api-Key", SpecTimeout(2*time.Minute)),
		Entry("a user's name with a colon", "Tool", `{description: x, http: {url: "https://shop.test", auth: {basic: {username: "a:b", secretKeyRef: {name: s, key: k}}}}}`, "without a colon", SpecTimeout(2*time.Minute)),
		Entry("a media type without a slash", "Tool", `{description: x, http: {url: "https://shop.test", method: POST, body: {template: x, contentType: json}}}`, "such as application/json", SpecTimeout(2*time.Minute)),
		Entry("the address of an MCP server", "Tool", `{mcp: {url: "mcp.example.com"}}`, "such as https://mcp.example.com/mcp", SpecTimeout(2*time.Minute)),
		Entry("the prefix of an MCP server's tools", "Tool", `{mcp: {url: "https://mcp.example.com", prefix: "git hub"}}`, "such as github_", SpecTimeout(2*time.Minute)),
		Entry("an endpoint that does not begin with a slash", "ThreadEndpoint", `{path: report, code: {inline: "1"}}`, "such as /report", SpecTimeout(2*time.Minute)),
		Entry("an endpoint in the manner of others", "ThreadEndpoint", `{path: "/report/:id", code: {inline: "1"}}`, "/report/[id]", SpecTimeout(2*time.Minute)),
		Entry("a model's endpoint", "Model", `{provider: openai, model: m, endpoint: "api.openai.com/v1"}`, "such as https://api.openai.com/v1", SpecTimeout(2*time.Minute)),
		Entry("a model's header", "Model", `{provider: openai, model: m, headers: [{name: "X Team", value: x}]}`, "such as X-Team", SpecTimeout(2*time.Minute)),
		Entry("the value of a model's header", "Model", `{provider: openai, model: m, headers: [{name: X-Team, value: "é"}]}`, "plain ASCII", SpecTimeout(2*time.Minute)),
		Entry("a temperature", "Model", `{provider: openai, model: m, options: {temperature: warm}}`, "from 0 to 2", SpecTimeout(2*time.Minute)),
		Entry("a share", "Model", `{provider: openai, model: m, options: {topP: "1.5"}}`, "from 0 to 1", SpecTimeout(2*time.Minute)),
		Entry("a price", "Model", `{provider: openai, model: m, pricing: {input: "$3"}}`, "such as '0.15'", SpecTimeout(2*time.Minute)),
		Entry("a variable", "Thread", `{agentRef: {name: a}, env: [{name: API-KEY, value: x}]}`, "such as API_KEY", SpecTimeout(2*time.Minute)),
		Entry("another spelling of a thread's id", "Thread", `{agentRef: {name: a}, threadID: T-6f1c0a3e-8a44-4c0e-9d0b-2f6f2b9f4f10}`, "the UUID of the data in lower case", SpecTimeout(2*time.Minute)),
		Entry("a variable of a prompt", "Prompt", `{modelRef: {name: m}, parts: [{env: "API KEY"}]}`, "such as API_KEY", SpecTimeout(2*time.Minute)),
		Entry("a skill", "Prompt", `{modelRef: {name: m}, text: x, skills: [{name: Refunds, description: x, instructions: {inline: x}}]}`, "such as refunds-eu", SpecTimeout(2*time.Minute)),
		Entry("a tool of a session", "Agent", `{sideA: {promptRef: {name: p}, sessionStop: {name: "all done"}}}`, "such as finish_order", SpecTimeout(2*time.Minute)),
		Entry("a subagent", "Agent", `{sideA: {promptRef: {name: p}}, subagents: [{name: "the auditor", agentRef: {name: a}}]}`, "such as auditor", SpecTimeout(2*time.Minute)),
		Entry("an effect", "ScheduledEffect", `{threadRef: {name: t}, effect: "a/b/c", after: 1s}`, "such as remind", SpecTimeout(2*time.Minute)),
	)
})
