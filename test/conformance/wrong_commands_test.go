package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// wrongCommands are command lines of the plugin that people write, with the threads of wrongScene, their exit codes and what
// the errors must say.
var wrongCommands = []struct {
	line []string
	code int
	says string
}{
	{[]string{"sned", "orders", "hi"}, 1, "send"},
	{[]string{"send"}, 1, "THREAD is missing; usage: kubectl skein send THREAD MESSAGE"},
	{[]string{"send", "orders"}, 1, "MESSAGE is missing; usage"},
	{[]string{"send", "orders", "two", "words"}, 1, "quote a text with spaces"},
	{[]string{"send", "absent", "hi", "--wait"}, 2, "kubectl get threads lists those that exist"},
	{[]string{"send", "ended", "hi", "--wait"}, 2, "create a new Thread to continue"},
	{[]string{"send", "orders", "hi", "--timeout=-1s"}, 1, "give a duration such as 30s"},
	{[]string{"send", "orders", "hi", "--timeout=soon"}, 1, "give a duration such as 30s"},
	{[]string{"send", "orders", "hi", "-o", "wide"}, 1, "give json, yaml or name"},
	{[]string{"list", "--request-timeout=soon"}, 1, "(e.g. 1s | 2m | 3h)"},
	{[]string{"list", "--request-timeout=-1s"}, 1, "give a duration above 0 such as 30s"},
	{[]string{"list", "--state=Sleeping"}, 1, "give "},
	{[]string{"list", "--archived=maybe"}, 1, "give false, true or all"},
	{[]string{"list", "-l", "=="}, 1, "--selector"},
	{[]string{"list", "-o", "xml"}, 1, "give json, yaml"},
	{[]string{"files", "copy", "a", "b"}, 1, "use one of"},
	{[]string{"files", "cp", "a.txt", "b.txt"}, 1, "use THREAD:/path for one of them"},
	{[]string{"files", "cp", "orders:/a", "ended:/b"}, 1, "copy out of the one thread first"},
	{[]string{"files", "cp", "orders:/none.txt", "FILE"}, 1, "shows what there is"},
	{[]string{"files", "ls", "orders", "/none"}, 1, "shows what there is"},
	{[]string{"files", "rm", "orders", "/none.txt"}, 1, "lists what there is"},
	{[]string{"messages", "orders", "--limit=0"}, 1, "give a number from 1 to 1000, or --all"},
	{[]string{"logs", "orders", "--tail=-1"}, 1, "give a whole number such as 20"},
	{[]string{"logs", "orders", "--run=none"}, 1, "GET runs lists them"},
	{[]string{"cancel", "orders", "none"}, 1, "GET runs lists them"},
	{[]string{"rerun", "orders", "--step=9"}, 1, "give one from 1 to 1"},
	{[]string{"rerun", "paying", "--run=none"}, 1, "GET runs lists them"},
	{[]string{"approve", "paying", "none"}, 1, "list those that do with kubectl skein approvals"},
	{[]string{"approve", "paying", "CALL", "--arguments=much"}, 1, "use an object such as"},
	{[]string{"approve", "paying", "CALL", `--arguments={"amount": "much"}`}, 1, "approve it with others, or refuse it"},
	{[]string{"fork", "orders", "--message=99"}, 1, "give an index from 0 to"},
	{[]string{"fork", "orders", "--name=orders"}, 1, "choose another name"},
	{[]string{"handoff", "orders"}, 1, "say what the new thread is to do"},
	{[]string{"compact", "orders", "--side=c"}, 1, "leave side out, or give a"},
	{[]string{"effect", "run", "none"}, 2, "kubectl get scheduledeffects lists those that exist"},
	{[]string{"effect", "history", "none"}, 1, "kubectl get scheduledeffects lists those that exist"},
	{[]string{"effect", "backfill", "none", "--from=yesterday", "--until=today"}, 1, "a time such as 2027-01-31T00:00:00Z"},
	{[]string{"effect", "next", "none", "--count=0"}, 1, "give --count a number from 1 to 1000"},
	{[]string{"tool", "paying", "nothing"}, 1, "pay_invoice"},
	{[]string{"tool", "paying", "pay_invoice", "--args=1"}, 1, "is not a JSON object; give one such as"},
	{[]string{"code", "orders"}, 1, "give the file with the code: -f FILE"},
	{[]string{"endpoint", "orders", "%"}, 1, "use one such as /report/7?format=csv"},
	{[]string{"endpoint", "orders", "/report", "--method=GET", "--data=x"}, 1, "leave out --data, or give another --method"},
	{[]string{"endpoint", "orders", "/nothing"}, 1, "/report"},
	{[]string{"env", "set", "orders", "1X=a"}, 1, "does not begin with a digit"},
	{[]string{"env", "unset", "orders", "NONE"}, 1, "kubectl skein env list orders shows where it comes from"},
	{[]string{"provide", "orders", "KEY"}, 1, "`kubectl skein env set orders KEY` sets one all the same"},
	{[]string{"kv", "get", "orders", "none"}, 1, "`kubectl skein kv list` shows the keys"},
	{[]string{"kv", "set", "orders", "region", "north"}, 1, "put a text in double quotes"},
	{[]string{"kv", "set", "orders", "region", "1", "--ttl=1h"}, 1, "set --store too"},
	{[]string{"state", "get", "orders", "none"}, 1, "`kubectl skein state get orders` shows all of it"},
	{[]string{"state", "delete", "orders"}, 1, "name a KEY, or set --all"},
	{[]string{"emit", "orders", "a b"}, 1, "give a name of at most"},
	{[]string{"notify", "orders", "hi"}, 1, "this is for subagents"},
	{[]string{"skill", "orders", "none", "--args=1"}, 1, "is not a JSON object; give one such as"},
	{[]string{"observe", "orders", "--include=all"}, 1, "it must be one or more of"},
	{[]string{"map", "orders", "-o", "svg"}, 1, "give text, mermaid or dot"},
	{[]string{"tree", "absent"}, 1, "kubectl get threads lists those that exist"},
	{[]string{"export", "absent"}, 1, "kubectl get threads lists those that exist"},
	{[]string{"import", "FILE"}, 1, "--thread THREAD for an existing empty thread, or --agent AGENT to create one"},
	{[]string{"memory", "orders", "x", "--limit=0"}, 1, "give a number from 1 to"},
	{[]string{"search", "x", "--limit=0"}, 1, "give a number from 1 to"},
	{[]string{"usage", "--subtree"}, 1, "need a thread: name one"},
	{[]string{"webhook", "deliveries", "--status=lost"}, 1, "it must be one of"},
	{[]string{"webhook", "redeliver"}, 1, "kubectl skein webhook deliveries lists them"},
	{[]string{"webhook", "redeliver", "none"}, 1, "GET webhookdeliveries lists those that exist"},
	{[]string{"purge", "orders"}, 1, "use its UUID, T-<uuid> or thrd_<32 hex digits>"},
	{[]string{"adopt"}, 1, "or --list to see which have no object"},
	{[]string{"create", "x"}, 1, "name the Agent that runs the thread"},
	{[]string{"chat"}, 1, "name a THREAD, or create one with --agent AGENT"},
	{[]string{"backup"}, 1, "-o FILE, or -o FOLDER"},
	{[]string{"restore", "FILE"}, 1, "no such file"},
}

var _ = Describe("A wrong command line", Label("K8S-02"), func() {
	It("ends at once with its exit code and a text that says what to do", func(ctx SpecContext) {
		ns := namespace(ctx)
		ids := wrongScene(ctx, ns)
		file := filepath.Join(GinkgoT().TempDir(), "none", "file")
		var problems []string
		for _, c := range wrongCommands {
			line := []string{"-n", ns}
			for _, word := range c.line {
				line = append(line, strings.Replace(ids.Replace(word), "FILE", file, 1))
			}
			text, err := cluster.Plugin(ctx, line...)
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			if code != c.code || !strings.Contains(text, c.says) {
				problems = append(problems, fmt.Sprintf("%q: want %d %q, got %d: %s", c.line, c.code, c.says, code, text))
			}
		}
		Expect(problems).To(BeEmpty(), strings.Join(problems, "\n"))
	}, SpecTimeout(3*patience))
})

// wrongRequests are requests of people outside, below the namespace, and what the answer must say.
var wrongRequests = []struct {
	method, path, body string
	header             []string
	code               int
	says               string
}{
	{"GET", "nothing/v1/messages", "", nil, 404, "ask the operator of this site for the address"},
	{"GET", "chat/v1/nothing", "", nil, 404, "use POST v1/message"},
	{"GET", "chat/v1/message", "", nil, 405, "use POST"},
	{"POST", "chat/v1/message", "", []string{"Content-Type", "application/json"}, 400, `such as {\"content\": \"hello\"}`},
	{"POST", "chat/v1/message", `{"content": ""}`, nil, 400, "content is empty: say something"},
	{"POST", "chat/v1/message", `{"text": "hello"}`, nil, 400, `such as {\"content\": \"hello\"}`},
	{"POST", "chat/v1/message", `hello`, []string{"Content-Type", "text/plain"}, 415, "send JSON, with Content-Type: application/json"},
	{"POST", "chat/v1/message", `{"content": "hello"}`, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "send one Idempotency-Key"},
	{"POST", "chat/v1/message", `{"content": "hello"}`, []string{"Origin", "https://other.example"}, 403, "allowedOrigins lists those that may"},
	{"GET", "chat/v1/messages?limit=0", "", nil, 400, "must be a whole number from 1 to 200"},
	{"GET", "chat/v1/socket", "", nil, 426, "open a WebSocket here"},
	{"POST", "chat/v1/chat/completions", `{}`, nil, 400, "GET v1/models lists it"},
	{"POST", "chat/v1/chat/completions", `{"model": "gpt", "messages": [{"role": "user", "content": "hello"}]}`, nil, 404, "GET v1/models"},
	{"GET", "hook/v1/webhook", "", nil, 405, "use POST"},
	{"POST", "hook/v1/webhook", `{}`, []string{"X-GitHub-Delivery", "1"}, 401, "sign the body with a key of the receiver"},
	{"POST", "hook/v1/webhook", `{}`, []string{"X-GitHub-Delivery", "1", "X-Hub-Signature-256", "sha256=" + strings.Repeat("0", 64)}, 401, "with a key of the receiver"},
	{"POST", "hook/v1/webhook", `{}`, []string{"X-Hub-Signature-256", gitHubSignature(firstKey, `{}`)}, 401, "such as a random UUID"},
	{"POST", "hook/v1/webhook", strings.Repeat("x", 2000), nil, 413, "raise spec.maxBytes"},
	{"POST", "gone/v1/webhook", `{}`, nil, 404, "check the address of the webhook"},
}

var _ = Describe("A wrong request from outside", Label("IDS-03", "EVT-05"), func() {
	It("is refused with a text that says what to do", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		hook := &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hook"}, Spec: skeinv1.WebhookReceiverSpec{
			Form: skeinv1.WebhookGitHub, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, AgentRef: &skeinv1.LocalRef{Name: "agent"}, MaxBytes: 1000,
		}}
		create(ctx, hook)
		isReady(ctx, hook, func() []metav1.Condition { return hook.Status.Conditions })
		var problems []string
		for _, c := range wrongRequests {
			r := knock(ctx, http.DefaultClient, c.method, ns, c.path, c.body, c.header...)
			if r.status != c.code || !strings.Contains(r.body, c.says) {
				problems = append(problems, fmt.Sprintf("%s %s %s: want %d %q, got %d: %s", c.method, c.path, c.body, c.code, c.says, r.status, r.body))
			}
		}
		Expect(problems).To(BeEmpty(), strings.Join(problems, "\n"))
	}, SpecTimeout(2*patience))
})
