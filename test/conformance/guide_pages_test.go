package conformance

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/guide"
	"github.com/skein-dev/skein/test/harness"
)

// followed is a page whose commands are run.
type followed struct {
	// prepare makes what the page takes for granted.
	prepare func(*reader, SpecContext)
	// namespace that the page itself makes.
	namespace string
	// varies matches what else of outputs differs from run to run.
	varies *regexp.Regexp
	// before has what happens before a command of the page, as its text says.
	before map[string]func(*reader, SpecContext)
}

// runElsewhere has the commands that this tier cannot run, each with the reason: they need an image registry, nodes, the registry of npm
// or a cluster of their own, or would disturb other specs.
var runElsewhere = map[string]string{
	"make demo     # a cluster, Skein in it, an agent that computes real figures from a file, and the whole tree deleted again": "the demo is a cluster of its own; the tier cluster plays it",
	"make test     # everything: generated files, lint, unit, conformance, and beside them end to end, integration and outages": "this is a part of it",
	"make build docker-build                      # bin/, and build/*.tar, the images, to push to your registry":                "needs buildah and a registry; test/image builds the images",
	"make deploy OVERLAY=persistent               # config/persistent: the operator, with a volume for conversations":           "needs nodes that run the manager; the tier e2e deploys",
	"make cluster-up                                            # says which KUBECONFIG to export":                              "another cluster; the tier cluster starts and stops them",
	"make build": "the programs are built already",
	"hack/devcluster/devcluster.sh load --name skein.dev/manager:dev --binary bin/manager":                                         "needs a node; the tier e2e runs it as printed",
	"hack/devcluster/devcluster.sh load --name skein.dev/sandbox:dev --binary bin/sandbox --file bin/sandbox-child:/sandbox-child": "needs a node; the tier e2e runs it as printed",
	"make deploy":       "needs a node; the tier e2e runs it as printed",
	"make cluster-down": "another cluster; the tier cluster starts and stops them",
	"make cluster-up NODE=false                                      # says which KUBECONFIG to export":                             "another cluster; the tier cluster starts and stops them",
	"make run ARGS=--runtime-api-bind-address=127.0.0.1:8444         # in another terminal: against the cluster of your KUBECONFIG": "runs until it is interrupted, as the manager of this tier does",
	"kubectl -n skein-system rollout status deployment/skein-manager":                                                               "needs a node; the tier e2e runs it as printed",
	"kubectl kustomize config/namespaced | sed 's/team-a/my-team/' | kubectl apply --server-side -f -":                              "a cluster has room for one installation; rights_test.go runs a manager with these rights",
	"make deploy OVERLAY=postgres":                           "needs nodes that run the manager, and a database of the reader's",
	"kubectl skein check --pre":                              "needs a node; the tier e2e runs it as printed",
	"kubectl skein check":                                    "needs a node; the tier e2e runs it as printed",
	"make undeploy OVERLAY=persistent":                       "removes what other specs need; a spec of K8S-13 does it in a cluster of its own",
	"kubectl delete --ignore-not-found -k config/crd":        "removes what other specs need; a spec of K8S-13 does it in a cluster of its own",
	"kubectl delete --ignore-not-found -k config/persistent": "removes what other specs need; a spec of K8S-13 does it in a cluster of its own",
	"kubectl -n skein-system logs deployment/skein-manager":  "needs a node; the tier e2e runs it as printed",
	"kubectl apply -k config/mutation":                       "changes all Threads of the cluster; a spec of K8S-07 applies it to its namespace",
	"kubectl skein env rotate            # adds a primary key; the manager uses it within 15 seconds": "changes the key of the whole installation; the specs of ENV-05 rotate it",
	"kubectl skein env rotate --prune    # later: removes the older keys":                             "works a minute later only; the specs of ENV-05 prune",
	"kubectl skein send orders \"Pay the invoice\" --wait":                                            "waits until somebody else decides; the specs of RUN-11 decide",
	"npm install --save-dev typescript zod":                                                           "needs the registry of npm; the specs of TOL-03 compile with the same packages",
	"npm install --prefix shop":                                                                       "needs the registry of npm; the page is followed with the same package",
	"kubectl -n skein-system port-forward deployment/skein-manager 6060":                              "needs a node; the tier e2e runs it as printed",
	"go tool pprof -top http://127.0.0.1:6060/debug/pprof/profile":                                    "needs a node; the tier e2e runs it as printed",
	"kubectl -n demo port-forward pod/SANDBOX 6061":                                                   "needs a node; the tier e2e runs it as printed",
	"go tool pprof -top http://127.0.0.1:6061/debug/pprof/profile":                                    "needs a node; the tier e2e runs it as printed",
	"perf record -a -g -F 499 -o executions.data -- sleep 30":                                         "needs perf, and records the whole machine",
	"perf report -i executions.data --comm sandbox,3 --no-children":                                   "needs perf",
}

// goesOn has the commands that follow what happens until they are interrupted.
var goesOn = []string{
	`kubectl get --raw "$API/events?after=0"`,
	`kubectl get --raw "$NS/lifecycle?watch=true"`,
	`kubectl skein console`,
}

var pagesToFollow = map[string]followed{
	"README.md":             {namespace: "demo", prepare: (*reader).quickStart},
	"docs/backup.md":        {prepare: (*reader).toBackUp},
	"docs/build.md":         {prepare: (*reader).packages},
	"docs/console.md":       {},
	"docs/conversations.md": {prepare: (*reader).toExport},
	"docs/dual-agents.md":   {prepare: (*reader).samples},
	"docs/effects.md":       {prepare: func(r *reader, ctx SpecContext) { r.echoing(ctx); r.applyPage(ctx, "docs/effects.md") }},
	"docs/ending.md":        {prepare: (*reader).retained},
	"docs/endpoints.md":     {prepare: func(r *reader, ctx SpecContext) { r.echoing(ctx); r.applyPage(ctx, "docs/endpoints.md") }},
	"docs/environment.md":   {prepare: (*reader).missingVariable},
	"docs/export.md":        {prepare: (*reader).toExport},
	"docs/first-agent.md":   {prepare: (*reader).greeter},
	"docs/gateway.md": {prepare: (*reader).reception, before: map[string]func(*reader, SpecContext){
		`curl -b jar -c jar http://localhost:8090/demo/chat/v1/endpoints/report/march`: (*reader).servesReport,
	}},
	"docs/handlers.md": {prepare: (*reader).concierge},
	"docs/install.md":  {prepare: (*reader).installing},
	"docs/kubectl-skein.md": {prepare: (*reader).withOrders, varies: regexp.MustCompile(`(Idle|Running) +agent analyst, [0-9]+ messages, last run \w+`),
		before: map[string]func(*reader, SpecContext){
			`kubectl skein effect backfill daily --from=2026-01-30T00:00:00Z --until=2026-02-02T00:00:00Z`: (*reader).firedDaily,
		}},
	"docs/memory.md":          {prepare: (*reader).remembering},
	"docs/models.md":          {},
	"docs/relationships.md":   {prepare: (*reader).samples},
	"docs/runs.md":            {prepare: (*reader).waitingForApproval},
	"docs/runtime-api.md":     {prepare: (*reader).curling},
	"docs/skills.md":          {prepare: (*reader).skilled},
	"docs/state.md":           {prepare: (*reader).echoing},
	"docs/subagents.md":       {prepare: (*reader).asked},
	"docs/thread-records.md":  {prepare: (*reader).authorized},
	"docs/tools.md":           {prepare: (*reader).logged, before: map[string]func(*reader, SpecContext){"npx tsc --noEmit": (*reader).typescript}},
	"docs/troubleshooting.md": {prepare: (*reader).samples},
	"docs/usage.md":           {prepare: (*reader).samples},
	"docs/webhooks.md":        {prepare: (*reader).dead},
}

// sh runs a command that no page shows.
func (r *reader) sh(ctx SpecContext, text string) {
	GinkgoHelper()
	r.run(ctx, guide.Command{From: "preparation", Text: text + "\n"})
}

func (r *reader) apply(ctx SpecContext, manifests string) {
	GinkgoHelper()
	_, err := cluster.KubectlIn(ctx, manifests, "-n", r.ns, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// applyPage applies the whole manifests that a page shows.
func (r *reader) applyPage(ctx SpecContext, page string) {
	GinkgoHelper()
	r.apply(ctx, manifestsOf(page))
}

func manifestsOf(page string) string {
	GinkgoHelper()
	blocks, err := guide.Blocks(harness.Root(), page)
	Expect(err).NotTo(HaveOccurred())
	var whole []string
	for _, b := range blocks {
		if b.Language == "yaml" && strings.HasPrefix(b.Text, "apiVersion: ") {
			whole = append(whole, b.Text)
		}
	}
	Expect(whole).NotTo(BeEmpty(), page)
	return strings.Join(whole, "---\n")
}

func (r *reader) ready(ctx SpecContext, name string) *harness.Thread {
	GinkgoHelper()
	return ready(ctx, cluster.Thread(r.ns, name))
}

func (*reader) quickStart(ctx SpecContext) {
	DeferCleanup(func(ctx SpecContext) {
		_, err := cluster.Kubectl(ctx, "delete", "namespace", "demo", "--ignore-not-found", "--timeout=100s")
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(2*time.Minute))
}

func (r *reader) samples(ctx SpecContext) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, "-n", r.ns, "apply", "-k", filepath.Join(harness.Root(), "config", "samples"))
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.Kubectl(ctx, "-n", r.ns, "wait", "--for=condition=Ready", "agents,threads", "--all", "--timeout=60s")
	Expect(err).NotTo(HaveOccurred())
}

func (r *reader) withOrders(ctx SpecContext) {
	GinkgoHelper()
	r.samples(ctx)
	r.sh(ctx, "kubectl skein files cp hack/demo/orders.csv orders:/orders.csv")
}

func (r *reader) asked(ctx SpecContext) {
	GinkgoHelper()
	r.withOrders(ctx)
	r.sh(ctx, `kubectl skein send orders "What do the orders in /orders.csv come to?" --wait`)
}

// echoing makes a thread "orders" whose agent repeats what it is told.
func (r *reader) echoing(ctx SpecContext) {
	GinkgoHelper()
	create(ctx, harness.Scripted(r.ns, "model", harness.Echo()), harness.Prompt(r.ns, "prompt", "model"), harness.Agent(r.ns, "analyst", "prompt"),
		harness.NewThread(r.ns, "orders", "analyst"))
	r.ready(ctx, "orders")
}

func (r *reader) retained(ctx SpecContext) {
	GinkgoHelper()
	r.echoing(ctx)
	t := r.ready(ctx, "orders")
	for i := range 6 {
		say(ctx, t, i+1, "hello")
	}
	r.apply(ctx, "apiVersion: skein.dev/v1alpha1\nkind: Thread\nmetadata: {name: orders}\nspec: {agentRef: {name: analyst}, deletionPolicy: Retain}\n")
	DeferCleanup(func(ctx SpecContext) {
		for _, id := range r.ids {
			r.sh(ctx, "kubectl skein purge "+id)
		}
	}, NodeTimeout(patience))
}

func (r *reader) missingVariable(ctx SpecContext) {
	GinkgoHelper()
	r.apply(ctx, `
apiVersion: skein.dev/v1alpha1
kind: Agent
metadata: {name: needy}
spec:
  sideA: {promptRef: {name: prompt}}
  env: [{name: API_KEY, required: true}]
---
apiVersion: skein.dev/v1alpha1
kind: Thread
metadata: {name: thread-x}
spec: {agentRef: {name: needy}}
`)
	create(ctx, harness.Scripted(r.ns, "model", harness.Echo()), harness.Prompt(r.ns, "prompt", "model"))
	Expect(r.ready(ctx, "thread-x").Say(ctx, "hello")).To(Succeed())
	r.write("key.txt", "secret")
}

func (r *reader) toExport(ctx SpecContext) {
	GinkgoHelper()
	r.echoing(ctx)
	create(ctx, harness.NewThread(r.ns, "empty", "analyst"))
	say(ctx, r.ready(ctx, "orders"), 1, "hello")
	r.ready(ctx, "empty")
}

// toBackUp makes a conversation with a variable, so that there are keys.
func (r *reader) toBackUp(ctx SpecContext) {
	GinkgoHelper()
	r.echoing(ctx)
	say(ctx, r.ready(ctx, "orders"), 1, "hello")
	r.sh(ctx, "kubectl skein env set orders REGION=north --type=text")
}

// packages installs what docs/build.md has npm install.
func (r *reader) packages(ctx SpecContext) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "npm.sh"), "install", "sample").Output()
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Symlink(filepath.Join(strings.TrimSpace(string(out)), "node_modules"), filepath.Join(r.dir, "node_modules"))).To(Succeed())
}

func (r *reader) greeter(ctx SpecContext) {
	GinkgoHelper()
	server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
		harness.Say(w, req.Model, "Bonjour, Ada !")
	})
	DeferCleanup(server.Close)
	manifests := manifestsOf("docs/first-agent.md")
	Expect(manifests).To(ContainSubstring("https://api.openai.com/v1"))
	r.write("greeter.yaml", strings.ReplaceAll(manifests, "https://api.openai.com/v1", server.URL+"/v1"))
}

func (r *reader) concierge(ctx SpecContext) {
	GinkgoHelper()
	r.applyPage(ctx, "docs/handlers.md")
	create(ctx, harness.Scripted(r.ns, "small", harness.Echo()), harness.NewThread(r.ns, "orders", "concierge"))
	r.ready(ctx, "orders")
}

func (r *reader) remembering(ctx SpecContext) {
	GinkgoHelper()
	create(ctx, harness.Embedder(r.ns, "embedder"), harness.Scripted(r.ns, "gpt", harness.Echo()), harness.NewThread(r.ns, "orders", "helper"))
	for doc := range strings.SplitSeq(strings.ReplaceAll(manifestsOf("docs/memory.md"), "namespace: demo", "namespace: "+r.ns), "---\n") {
		if !strings.Contains(doc, "kind: Model") { // its provider is not ours to ask
			r.apply(ctx, doc)
		}
	}
	r.ready(ctx, "orders")
}

func (r *reader) waitingForApproval(ctx SpecContext) {
	GinkgoHelper()
	pay := func(amount int) map[string]any { return map[string]any{"amount": amount} }
	both := harness.Calls("pay_invoice", pay(120))
	both.ToolCalls = append(both.ToolCalls, harness.Calls("pay_invoice", pay(75)).ToolCalls...)
	r.apply(ctx, `
apiVersion: skein.dev/v1alpha1
kind: Tool
metadata: {name: pay-invoice}
spec:
  description: Pays an invoice.
  requiresApproval: true
  approvalTimeout: 24h
  parameters: {type: object, properties: {amount: {type: number}}}
  code: {inline: "export default { execute: async () => 'paid' };"}
`)
	create(ctx, harness.Scripted(r.ns, "model", harness.On("pay", both), harness.After("pay_invoice", harness.Answer("done"))),
		harness.Prompt(r.ns, "prompt", "model", "pay-invoice"), harness.Agent(r.ns, "clerk", "prompt"), harness.NewThread(r.ns, "orders", "clerk"))
	Expect(r.ready(ctx, "orders").Say(ctx, "pay both")).To(Succeed())
}

// logged has a tool called that logs, and whose work after its answer fails.
func (r *reader) logged(ctx SpecContext) {
	GinkgoHelper()
	create(ctx, harness.CodeTool(r.ns, "word-count", `
import { defineTool } from '@standardagents/builder';
export default defineTool({
  description: 'Counts.',
  execute: async (state) => {
    console.log('3 lines of /orders.csv');
    state.waitUntil(async () => { throw new Error('too late'); });
    return '3';
  },
});`, nil),
		harness.Scripted(r.ns, "model", harness.On("go", harness.Calls("word_count", nil)), harness.After("word_count", harness.Answer("three"))),
		harness.Prompt(r.ns, "prompt", "model", "word-count"), harness.Agent(r.ns, "counter", "prompt"), harness.NewThread(r.ns, "orders", "counter"))
	say(ctx, r.ready(ctx, "orders"), 1, "go")
}

// authorized gives the reader what docs/runtime-api.md says of applications.
func (r *reader) authorized(ctx SpecContext) {
	GinkgoHelper()
	r.echoing(ctx)
	writer(ctx)
	commands, err := guide.Commands(harness.Root(), "docs/runtime-api.md")
	Expect(err).NotTo(HaveOccurred())
	for _, c := range commands {
		if !strings.HasPrefix(c.Text, "curl ") && strings.Contains(c.Text, "shop") || strings.Contains(c.Text, "config view") {
			r.run(ctx, c)
		}
	}
}

// writer installs the role that applications are bound to.
func writer(ctx SpecContext) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, "apply", "-f", filepath.Join(harness.Root(), "config", "rbac", "conversation_writer_role.yaml"))
	Expect(err).NotTo(HaveOccurred())
}

func (r *reader) curling(ctx SpecContext) {
	GinkgoHelper()
	r.echoing(ctx)
	writer(ctx)
}

func (r *reader) skilled(ctx SpecContext) {
	GinkgoHelper()
	r.applyPage(ctx, "docs/skills.md")
	r.apply(ctx, `
apiVersion: v1
kind: ConfigMap
metadata: {name: skills}
data:
  warehouse.md: |
    ---
    description: Knows the warehouse.
    ---
    Look into the files.
`)
	for _, name := range []string{"find-order", "refund-order"} {
		create(ctx, harness.CodeTool(r.ns, name, `export default { execute: async () => 'done' };`, nil))
	}
	create(ctx, harness.Scripted(r.ns, "big", harness.Echo()), harness.Agent(r.ns, "support", "support"), harness.NewThread(r.ns, "orders", "support"))
	r.ready(ctx, "orders")
}
