package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// wrongCalls are calls of the runtime API that people make, below namespaces/{namespace}, and what the refusal must say. Of the
// threads, "orders" has answered a message, "ended" is terminated, and in "paying" the call CALL waits for approval.
var wrongCalls = []struct {
	method, path, body string
	code               int
	says               string
}{
	{"GET", "threads", "", 405, "list, create and delete the objects, threads.skein.dev"},
	{"GET", "threads/absent", "", 404, "check the name and the namespace; kubectl get threads lists those that exist"},
	{"GET", "threads/absent/messages", "", 404, "check the name and the namespace"},
	{"GET", "threads/orders/history", "", 404, "the runtime API has namespaces/{namespace}/threads/{thread}/{subresource}"},
	{"PATCH", "threads/orders/queue", `{}`, 405, "this path takes GET, POST"},
	{"DELETE", "threads/orders/messages", "", 405, "this path takes GET, POST"},
	{"PATCH", "threads/orders", `{"title": 1}`, 422, "title: give a string, not a JSON number"},
	{"PATCH", "threads/orders", `{"colour": "red"}`, 422, `unknown field "colour"`},
	{"PATCH", "threads/orders", `{"maxTokens": -1}`, 422, "use a number above 0, or null for no limit"},
	{"PATCH", "threads/orders?v=1000000", `{"title": "x"}`, 409, "read it again and repeat the change"},
	{"PATCH", "threads/orders?v=old", `{"title": "x"}`, 422, "set it once, to the version that you have read"},

	{"POST", "threads/orders/messages", "", 400, "the body is empty: send a JSON object"},
	{"POST", "threads/orders/messages", `{"content": "hi"`, 400, "the body is not valid JSON"},
	{"POST", "threads/orders/messages", `["hi"]`, 400, "give an object, not a JSON array"},
	{"POST", "threads/orders/messages", `{"text": "hi"}`, 422, `unknown field "text"`},
	{"POST", "threads/orders/messages", `{"content": 1}`, 422, "content: give a string, not a JSON number"},
	{"POST", "threads/orders/messages", `{}`, 422, "a message needs content, attachments or tool calls"},
	{"POST", "threads/orders/messages", `{"content": "hi", "role": "robot"}`, 422, "give system, user, assistant or tool"},
	{"POST", "threads/orders/messages", `{"content": "hi", "role": "tool"}`, 422, "names the call that it answers"},
	{"POST", "threads/orders/messages", `{"content": "hi", "status": "done"}`, 422, "give pending, completed or failed"},
	{"POST", "threads/orders/messages", `{"content": "hi", "depth": -1}`, 422, "give a number from 0 to"},
	{"POST", "threads/orders/messages", `{"content": "hi", "attachments": [{"path": "/none.txt"}]}`, 422, "there is no file /none.txt: write it first"},
	{"POST", "threads/orders/messages", `{"content": "hi", "policy": "reject"}`, 422, "leave the policy out, or queue the message"},
	{"POST", "threads/orders/messages?silent=true", `{"content": "hi"}`, 422, "silent: unknown parameter; known ones are v; everything else belongs in the body, as a field"},
	{"POST", "threads/orders/queue", `{"content": "hi", "role": "assistant"}`, 422, "inject others with POST messages"},
	{"POST", "threads/orders/queue?policy=reject", `{"content": "hi"}`, 422, "belongs in the body, as a field"},
	{"POST", "threads/orders/queue", `{"content": "hi", "policy": "soon"}`, 422, "it must be enqueue, reject, interrupt or rollback"},
	{"POST", "threads/ended/queue", `{"content": "hi"}`, 410, "create a new Thread to continue"},
	{"PUT", "threads/ended/files/a.txt", "x", 410, "create a new Thread to continue"},
	{"GET", "threads/orders/messages?limit=0", "", 422, "is not a whole number from 1 to 1000"},
	{"GET", "threads/orders/messages?limt=5", "", 422, "known ones are limit, offset"},
	{"GET", "threads/orders/messages?order=newest", "", 422, "is not one of asc, desc"},
	{"GET", "threads/orders/messages/none", "", 404, "GET messages lists them"},
	{"PATCH", "threads/orders/messages/none", `{"silent": true}`, 404, "GET messages lists them"},
	{"PATCH", "threads/orders/messages/MESSAGE", `{"status": "done"}`, 422, "give pending, completed or failed"},
	{"POST", "threads/orders/truncate", `{}`, 422, "set it to the index of the last message to keep, or messageId to its id"},
	{"POST", "threads/orders/truncate", `{"messageIndex": -2}`, 422, "it must be -1, which removes all messages, or more"},
	{"POST", "threads/orders/compact", `{"side": "c"}`, 422, "leave side out, or give a"},

	{"GET", "threads/orders/files/none.txt", "", 404, "GET files?recursive=true lists what there is"},
	{"GET", "threads/orders/files?dir=/none", "", 404, "GET files?recursive=true lists what there is"},
	{"GET", "threads/orders/files?grep=(", "", 422, "it is not a regular expression that RE2 understands"},
	{"DELETE", "threads/orders/files/none.txt", "", 404, "GET files?recursive=true lists what there is"},
	{"PUT", "threads/orders/files/" + strings.Repeat("a", 256), "x", 422, "use a shorter name"},
	{"PUT", "threads/orders/files/big.bin?upload=1&part=0", "x", 422, "such as a UUID"},

	{"GET", "threads/orders/runs/none", "", 404, "GET runs lists them"},
	{"POST", "threads/orders/runs/none/cancel", `{}`, 404, "GET runs lists them"},
	{"POST", "threads/orders/runs/RUN/rerun", `{}`, 422, "set it to the step to take up again: 1 is the first one"},
	{"POST", "threads/orders/runs/RUN/rerun", `{"step": 9}`, 422, "give one from 1 to 1"},
	{"POST", "threads/orders/runs/RUN/again", `{}`, 404, "the runtime API has"},
	{"POST", "threads/paying/approvals/none", `{"decision": "approve"}`, 404, "list those that do with kubectl skein approvals, or GET approvals"},
	{"POST", "threads/paying/approvals/CALL", `{"decision": "yes"}`, 422, "it must be approve or refuse"},
	{"POST", "threads/paying/approvals/CALL", `{"decision": "refuse", "arguments": {}}`, 422, "leave them out, or approve the call with them"},
	{"POST", "threads/paying/approvals/CALL", `{"decision": "approve", "arguments": [1]}`, 422, "it must be a JSON object; or leave it out"},
	{"POST", "threads/paying/approvals/CALL", `{"decision": "approve", "arguments": {"amount": "much"}}`, 422, "approve it with others, or refuse it"},

	{"PUT", "threads/orders/kv/a", "", 400, "send a JSON value, null to remove the key"},
	{"PUT", "threads/orders/kv/a", `north`, 422, "is not valid JSON"},
	{"GET", "threads/orders/kv?limit=many", "", 422, "is not a whole number from 1 to"},
	{"PUT", "threads/orders/state/a", "", 400, "the body is empty: send a JSON value"},
	{"GET", "threads/orders/state/none", "", 404, "GET state lists the keys"},
	{"POST", "threads/orders/state", `{"ops": []}`, 400, `send {"ops": [{"op": "set"`},
	{"POST", "threads/orders/state", `{"ops": [{"op": "add", "key": "a", "value": 1}]}`, 422, "give set, delete, push or clear"},
	{"POST", "threads/orders/state", `{"ops": [{"op": "set", "key": "a"}]}`, 422, "give a JSON value"},
	{"PUT", "threads/orders/env/1X", `{"value": "x"}`, 422, "letters, digits and '_' that does not begin with a digit"},
	{"PUT", "threads/orders/env/A", `{}`, 422, "set it to a text; to remove the variable use DELETE"},
	{"PUT", "threads/orders/env/A", `{"value": "x", "type": "number"}`, 422, `give "text" or "secret", or leave it out`},
	{"GET", "threads/orders/env/NONE", "", 404, "PUT env/{name} sets one"},
	{"DELETE", "threads/orders/env/NONE", "", 404, "GET env says where each one comes from"},

	{"POST", "threads/orders/effects", `{}`, 422, "set it to the name of an Effect"},
	{"POST", "threads/orders/effects", `{"name": "remind", "delay": -1}`, 422, "it must be"},
	{"DELETE", "threads/orders/effects/none", "", 404, "GET effects lists those that it has"},
	{"POST", "threads/orders/fork", `{"messageIndex": 99}`, 422, "give an index from 0 to"},
	{"POST", "threads/orders/fork", `{"messageIndex": 0, "messageId": "x"}`, 422, "set messageIndex or messageId, not both"},
	{"POST", "threads/orders/fork", `{"messageId": "none"}`, 422, "name another one"},
	{"POST", "threads/orders/fork", `{"name": "orders"}`, 409, "choose another name"},
	{"POST", "threads/orders/fork", `{"name": "Not A Name"}`, 422, "lower case"},
	{"POST", "threads/orders/handoff", `{}`, 422, "say what the new thread is to do"},
	{"POST", "threads/orders/relationships", `{"threadID": "none", "type": "fork", "role": "child"}`, 422, "GET threads/{name} returns the id of a thread"},
	{"POST", "threads/orders/code", `{}`, 422, "set it to the source of an ES module"},
	{"POST", "threads/orders/code", `{"source": "1", "language": "python"}`, 422, "it must be typescript or javascript"},
	{"POST", "threads/orders/code", `{"source": "1", "memoryLimitBytes": -1}`, 422, "it must be 0, which means the pool's default, or more"},
	{"GET", "threads/orders/code", "", 400, "connect with a WebSocket client, or use POST"},
	{"POST", "threads/paying/tools/nothing", `{}`, 404, "pay_invoice"},
	{"POST", "threads/paying/tools/pay_invoice", `{"mode": "later"}`, 422, "it must be invoke, which waits for the result, or queue"},
	{"POST", "threads/orders/events", `{"event": "a b"}`, 422, "give a name of at most"},
	{"GET", "threads/orders/observe?include=all", "", 422, "write those that you want with commas between them"},
	{"GET", "threads/orders/endpoints/nothing", "", 404, "/report"},
	{"POST", "threads/orders/endpoints/report", `{}`, 405, "it answers GET"},
	{"GET", "threads/orders/definitions/tools", "", 404, "use definitions/models, definitions/prompts or definitions/agents"},
	{"GET", "threads/orders/definitions/agents/absent", "", 404, `agent "absent" does not exist in namespace`},
	{"PUT", "threads/orders/status", `{"status": "x"}`, 400, "this is for subagents"},
	{"POST", "threads/orders/notify", `{"content": "x"}`, 400, "this is for subagents"},
	{"GET", "threads/orders/children/none", "", 404, "GET children lists those that it has"},
	{"POST", "threads/orders/lease", `{"ttlSeconds": -1}`, 422, "give 1 to 3600 seconds"},
	{"PUT", "threads/orders/lease", `{}`, 422, "set it to the token that POST lease returned"},
	{"POST", "threads/orders/skills", `{}`, 422, "name the skill"},
	{"GET", "threads/orders/memory?q=x", "", 400, "set spec.memory.embeddingModelRef of the Agent"},
	{"GET", "threads/orders/logs?runId=none", "", 404, "GET runs lists them"},

	{"PUT", "kvstores/-/values/a", `1`, 422, "use a store name of 1 to 63 letters"},
	{"DELETE", "kvstores/rates/values/none", "", 404, "GET values lists its keys"},
	{"GET", "lifecycle?after=yesterday", "", 422, "use the one of an event, or leave it out"},
	{"GET", "history?limit=0", "", 422, "is not a whole number from 1 to"},
	{"DELETE", "retained/orders", "", 404, "use its UUID, T-<uuid> or thrd_<32 hex digits>"},
	{"DELETE", "retained/01234567-89ab-4def-8123-456789abcdef", "", 404, "GET retained lists those that it keeps"},
	{"POST", "orphans/01234567-89ab-4def-8123-456789abcdef", "", 404, "GET orphans lists those that it has"},
	{"GET", "firings/none", "", 404, "kubectl get scheduledeffects lists those that exist"},
	{"POST", "webhookdeliveries/none/redeliver", "", 404, "GET webhookdeliveries lists those that exist"},
	{"POST", "restores", `{}`, 422, "use that of its manifest"},
}

// wrongScene has the threads that wrong calls are about. It returns what stands for their ids in the calls.
func wrongScene(ctx context.Context, ns string) *strings.Replacer {
	GinkgoHelper()
	var pay skeinv1.Tool
	Expect(yaml.Unmarshal([]byte(`
metadata: {name: pay-invoice}
spec:
  description: Pays an invoice.
  requiresApproval: true
  parameters: {type: object, properties: {amount: {type: number}}}
  code: {inline: "export default { execute: async () => 'paid' };"}
`), &pay)).To(Succeed())
	pay.Namespace = ns
	create(ctx, &pay, harness.Scripted(ns, "echo", harness.Echo()), harness.Prompt(ns, "plain", "echo"), harness.Agent(ns, "plain", "plain"),
		harness.Scripted(ns, "payer", harness.On("pay", harness.Calls("pay_invoice", map[string]any{"amount": 1}))), harness.Prompt(ns, "payer", "payer", "pay-invoice"), harness.Agent(ns, "payer", "payer"),
		harness.Effect(ns, "remind", "export default () => 1"), harness.Endpoint(ns, "report", "/report", "export default () => 1"),
		harness.NewThread(ns, "orders", "plain"), harness.NewThread(ns, "ended", "plain"), harness.NewThread(ns, "paying", "payer"))
	orders := ready(ctx, cluster.Thread(ns, "orders"))
	said := say(ctx, orders, 1, "hello")
	runs, err := orders.Runs(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(ready(ctx, cluster.Thread(ns, "ended")).Terminate(ctx)).To(Succeed())
	paying := ready(ctx, cluster.Thread(ns, "paying"))
	Expect(paying.Say(ctx, "pay")).To(Succeed())
	calls := awaiting(ctx, runtimeAs("").Thread(ns, "paying"), 1)
	return strings.NewReplacer("MESSAGE", said[0].ID, "RUN", runs[0].ID, "CALL", calls[0].ToolCallID)
}

var _ = Describe("A wrong call", Label("K8S-02", "THR-18"), func() {
	It("is refused with a text that says what to do", func(ctx SpecContext) {
		ns := namespace(ctx)
		ids := wrongScene(ctx, ns)
		var problems []string
		for _, c := range wrongCalls {
			code, text := apiCall(ctx, c.method, "namespaces/"+ns+"/"+ids.Replace(c.path), c.body)
			if code != c.code || !strings.Contains(text, c.says) {
				problems = append(problems, fmt.Sprintf("%s %s %s: want %d %q, got %d: %s", c.method, c.path, c.body, c.code, c.says, code, text))
			}
		}
		Expect(problems).To(BeEmpty(), strings.Join(problems, "\n"))
	}, SpecTimeout(2*patience))

	It("that a client sends otherwise than it is read is refused with what to send", func(ctx SpecContext) {
		ns := namespace(ctx)
		wrongScene(ctx, ns)
		const queue = "/threads/orders/queue"
		code, text := apiCall(ctx, http.MethodPost, "namespaces/"+ns+queue, `content=hi`, "Content-Type", "application/x-www-form-urlencoded")
		Expect([]any{code, text}).To(ConsistOf(415, ContainSubstring("send it with Content-Type: application/json")))
		code, text = apiCall(ctx, http.MethodPut, "namespaces/"+ns+"/threads/orders/files/a.txt", "x", runtimev1.HeaderFileMetadata, "colour=red")
		Expect([]any{code, text}).To(ConsistOf(422, ContainSubstring("give a JSON object")))
		code, _ = apiCall(ctx, http.MethodPost, "namespaces/"+ns+queue, `{"content": "one"}`, runtimev1.HeaderIdempotencyKey, "k")
		Expect(code).To(Equal(201))
		code, text = apiCall(ctx, http.MethodPost, "namespaces/"+ns+queue, `{"content": "two"}`, runtimev1.HeaderIdempotencyKey, "k")
		Expect([]any{code, text}).To(ConsistOf(422, ContainSubstring("use a new key for each request")))
	}, SpecTimeout(2*patience))
})

// apiCall makes a request to the runtime API, without repeats, and returns the code and the message of the answer. header are pairs.
func apiCall(ctx context.Context, method, path, body string, header ...string) (code int, text string) {
	GinkgoHelper()
	api, err := harness.RuntimeREST(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	req := api.Verb(method).RequestURI("/apis/runtime.skein.dev/v1alpha1/" + path).MaxRetries(0)
	if body != "" {
		req = req.SetHeader("Content-Type", "application/json").Body([]byte(body))
	}
	for i := 0; i < len(header); i += 2 {
		req = req.SetHeader(header[i], header[i+1])
	}
	result := req.Do(ctx).StatusCode(&code)
	raw, _ := result.Raw()
	var status metav1.Status
	if err := yaml.Unmarshal(raw, &status); err != nil || status.Message == "" {
		return code, string(raw)
	}
	return code, status.Message
}
