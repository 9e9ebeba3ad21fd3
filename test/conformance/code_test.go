package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// coded makes a thread whose sandbox runs code.
func coded(ctx SpecContext) (*harness.Thread, *runtimeclient.Thread) {
	GinkgoHelper()
	t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
	return t, golang(t)
}

// runsIn has a tool of a thread run code by state.runCode; body is TypeScript that gives what the spec looks at.
func runsIn(ctx SpecContext, body string) string {
	GinkgoHelper()
	t := useTool(ctx, harness.CodeTool(namespace(ctx), "runner", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  const give = async () => { `+body+` };
  return { status: 'success', result: JSON.stringify(await give()) };
} });`, nil), map[string]any{})
	content, status := result(say(ctx, t, 1, "go"), "runner")
	Expect(status).To(Equal("success"), content)
	return content
}

// codeSocket opens the WebSocket of code through the Kubernetes API.
func codeSocket(ctx context.Context, t *harness.Thread) *websocket.Conn {
	GinkgoHelper()
	tlsConfig, err := rest.TLSConfigFor(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.HTTPWrappersForConfig(cluster.Config, &http.Transport{TLSClientConfig: tlsConfig})
	Expect(err).NotTo(HaveOccurred())
	url := strings.Replace(golangURL(t, "code"), "/v1alpha1/", "/v1alpha1/watch/", 1)
	//nolint:bodyclose // it is the connection's own
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{runtimev1.CodeSubprotocol},
	})
	Expect(err).NotTo(HaveOccurred(), "%+v", resp)
	DeferCleanup(func() { _ = conn.CloseNow() })
	return conn
}

func heard(ctx context.Context, c *websocket.Conn) (m runtimev1.CodeServerMessage) {
	GinkgoHelper()
	_, data, err := c.Read(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(data, &m)).To(Succeed(), string(data))
	return m
}

func spoken(ctx context.Context, c *websocket.Conn, m string) {
	GinkgoHelper()
	Expect(c.Write(ctx, websocket.MessageText, []byte(m))).To(Succeed())
}

var _ = Describe("Code", func() {
	It("runs as a fresh module without thread, files, network, timers or host globals", Label("COD-01"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: `
interface Point { x: number; y: number }
const p: Point = { x: 2, y: 3 };
(globalThis as any).leak = 1;
export default (k: number): number => p.x * p.y * k;`, Execute: &runtimev1.CodeExecute{Args: []json.RawMessage{json.RawMessage("7")}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON("42"))

		r, err = t.Code(ctx, runtimev1.CodeRequest{Language: "javascript", Source: `
export function there() {
  return ['state', 'process', 'require', 'fetch', 'setTimeout', 'setInterval', 'XMLHttpRequest', 'WebSocket', 'Deno', 'Bun', 'os', 'std', 'leak']
    .filter((n) => typeof globalThis[n] !== 'undefined');
}`, Execute: &runtimev1.CodeExecute{Fn: "there"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON("[]"))
	}, SpecTimeout(5*time.Minute))

	It("is given exactly the globals and imports that are named", Label("COD-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "bridge", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  const seen: unknown[] = [];
  const run = state.runCode(`+"`"+`
    import { rate } from 'shop/config';
    const text = await readText('/in.txt');
    report({ length: text.length });
    export function summarize(limit: number) { return { head: text.slice(0, limit), rate, more: typeof secret }; }
  `+"`"+`, {
    execute: { fn: 'summarize', args: [3] },
    globals: { readText: async (path: string) => new TextDecoder().decode(await state.readFile(path)) },
    imports: { 'shop/config': { rate: 0.2 } },
    report: (v: unknown) => seen.push(v),
  });
  const r = await run;
  return { status: 'success', result: JSON.stringify({ status: r.status, result: r.result, seen, error: r.error }) };
} });`, nil), map[string]any{})
		Expect(t.WriteFile(ctx, "/in.txt", "text/plain", []byte("hello"))).To(Succeed())
		content, status := result(say(ctx, t, 1, "go"), "bridge")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`{"status":"success","result":{"head":"hel","rate":0.2,"more":"undefined"},"seen":[{"length":5}]}`))

		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: `import { x } from 'not/given'; export default () => x;`})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeLinkError))
		Expect(r.Error.Message).To(ContainSubstring("not/given"))
	}, SpecTimeout(5*time.Minute))

	It("is ended through its handle, and the first settle wins", Label("COD-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "handle", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  const run = state.runCode('await tick(); for (;;);', { globals: { tick: async () => { run.terminate('enough'); } } });
  const was = run.running;
  const r = await run;
  run.terminate('too late');
  const again = await run;
  return { status: 'success', result: JSON.stringify({ was, now: run.running, status: r.status, message: r.error.message, same: again.status }) };
} });`, nil), map[string]any{})
		content, status := result(say(ctx, t, 1, "go"), "handle")
		Expect(status).To(Equal("success"), content)
		var got struct {
			Was, Now              bool
			Status, Message, Same string
		}
		Expect(json.Unmarshal([]byte(content), &got)).To(Succeed())
		Expect(got.Was).To(BeTrue())
		Expect(got.Now).To(BeFalse())
		Expect(got.Status).To(Equal("terminated"))
		Expect(got.Message).To(ContainSubstring("enough"))
		Expect(got.Same).To(Equal("terminated"))
	}, SpecTimeout(5*time.Minute))

	It("is aborted with its thread", Label("COD-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		tool := harness.CodeTool(ns, "spin", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => { await state.setValue('spinning', true); for (;;); } });`, nil)
		t := useTool(ctx, tool, map[string]any{})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "spinning") }).Should(MatchJSON("true"))
		start := time.Now()
		Expect(t.Terminate(ctx)).To(Succeed())
		settled(ctx, t, 1)
		Expect(time.Since(start)).To(BeNumerically("<", 50*time.Second), "its own timeout is a minute: it was aborted, not waited for")
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0].Status).To(Equal(runtimev1.RunTerminated))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("Options of code", Label("COD-02"), func() {
	It("all work, in Go and in TypeScript", func(ctx SpecContext) {
		_, state := coded(ctx)
		run := state.RunCode(ctx, `
import { b } from './lib/b';
import data from './data.json';
import { rate, when } from 'shop/rates';
export function f(x: number, y: string) { return [x, y, b(), data.n, rate, when.getTime(), limit, new Error('here').stack!.includes('calc/sum.ts')] }`, runtimeclient.CodeOptions{
			Fn: "f", Args: []any{1, "two"}, Language: "typescript", Filename: "calc/sum.ts",
			Modules: map[string]string{"./lib/b.ts": "export const b = (): string => 'b'", "./data.json": `{"n": 7}`},
			Globals: map[string]any{"limit": 5}, Imports: map[string]map[string]any{"shop/rates": {"rate": 0.2, "when": time.UnixMilli(3)}},
			MemoryLimitBytes: 32 << 20, WallTime: 20 * time.Second,
		})
		r, err := run.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON(`[1,"two","b",7,0.2,3,5,true]`))
		r, err = state.RunCode(ctx, "const x: number = 1", runtimeclient.CodeOptions{Language: "javascript"}).Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r).To(And(HaveField("Status", runtimev1.CodeLinkError), HaveField("Error.Stack", ContainSubstring("main.js:1"))), "it is not TypeScript")

		Expect(runsIn(ctx, `
const reports: unknown[] = [];
const r = await state.runCode(`+"`"+`
import { b } from './lib/b';
import data from './data.json';
import { rate, today } from 'shop/rates';
report({ at: 'load' });
export async function f(x: number, y: string) { return [x, y, b(), data.n, rate, await today(), limit, new Error('here').stack!.includes('calc/sum.ts')] }`+"`"+`, {
  execute: { fn: 'f', args: [1, 'two'] }, language: 'typescript', filename: 'calc/sum.ts',
  modules: { './lib/b.ts': "export const b = (): string => 'b'", './data.json': '{"n": 7}' },
  globals: { limit: 5 }, imports: { 'shop/rates': { rate: 0.2, today: async () => 'monday' } },
  memoryLimitBytes: 32 << 20, report: (v: unknown) => { reports.push(v); },
});
return [r.status, r.result, reports, r.reports];`)).To(MatchJSON(`["success",[1,"two","b",7,0.2,"monday",5,true],[{"at":"load"}],[{"at":"load"}]]`))
	}, SpecTimeout(5*time.Minute))

	It("that are unknown settle as link_error before anything runs", func(ctx SpecContext) {
		t, _ := coded(ctx)
		raw, err := t.Request(http.MethodPost, "code").SetHeader("Content-Type", "application/json").Body([]byte(`{"source":"export default 1","timeout":5}`)).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(raw)).To(And(ContainSubstring(`"status":"link_error"`), ContainSubstring("timeout")))

		for _, run := range []string{`{"source":"report(1)","timeout":5}`, `{"source":"report(1)","execute":{"function":"f"}}`, `{"source":"report(1)","language":"perl"}`, `{"source":"report(1)","memoryLimitBytes":"much"}`} {
			conn := codeSocket(ctx, t)
			spoken(ctx, conn, `{"type":"run","run":`+run+`}`)
			m := heard(ctx, conn)
			Expect(m.Type).To(Equal(runtimev1.CodeMessageResult), run)
			Expect(m.Result.Status).To(Equal(runtimev1.CodeLinkError), run)
		}

		Expect(runsIn(ctx, `
const out = [];
for (const o of [{ timeout: 5 }, { execute: { function: 'f' } }, { report: 7 }, { globals: 'x' }, { modules: { './a': 1 } }, { memoryLimitBytes: -1 }]) {
  const r = await state.runCode('report(1)', o as any);
  out.push(r.status, r.reports.length, typeof r.error.message);
}
return out;`)).To(MatchJSON(`["link_error",0,"string","link_error",0,"string","link_error",0,"string","link_error",0,"string","link_error",0,"string","link_error",0,"string"]`))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("Functions of the client", Label("COD-03", "COD-04"), func() {
	It("are served over a WebSocket, while reports and logs come", func(ctx SpecContext) {
		t, _ := coded(ctx)
		conn := codeSocket(ctx, t)
		spoken(ctx, conn, `{"type":"run","run":{"source":"import { rate } from 'shop'; report(await read('/a')); console.warn('careful'); try { await rate(1n) } catch (e) { report(e.name + ' ' + e.message) } export default () => read(new Map([[1, undefined]]))",
			"functions":[{"name":"read"},{"import":"shop","name":"rate"}]}}`)
		m := heard(ctx, conn)
		Expect(m).To(And(HaveField("Type", "call"), HaveField("Function", HaveValue(Equal(runtimev1.CodeFunction{Name: "read"}))), HaveField("Args", ConsistOf(MatchJSON(`"/a"`)))))
		spoken(ctx, conn, `{"type":"return","id":1,"value":{"$date":0}}`)
		Expect(heard(ctx, conn).Value).To(MatchJSON(`{"$date":0}`))
		Expect(heard(ctx, conn).Log).To(HaveValue(And(HaveField("Level", "warn"), HaveField("Message", "careful"))))
		Expect(heard(ctx, conn)).To(And(HaveField("Function", HaveValue(Equal(runtimev1.CodeFunction{Import: "shop", Name: "rate"}))), HaveField("Args", ConsistOf(MatchJSON(`{"$bigint":"1"}`)))))
		spoken(ctx, conn, `{"type":"throw","id":2,"error":{"name":"RangeError","message":"sold out"}}`)
		Expect(heard(ctx, conn).Value).To(MatchJSON(`"RangeError sold out"`))
		Expect(heard(ctx, conn).Args).To(ConsistOf(MatchJSON(`{"$map":[[1,{"$undefined":true}]]}`)))
		spoken(ctx, conn, `{"type":"return","id":3}`)
		m = heard(ctx, conn)
		Expect(m.Result).To(HaveValue(And(HaveField("Status", runtimev1.CodeSuccess), HaveField("Result", MatchJSON(`{"$undefined":true}`)), HaveField("DurationMs", BeNumerically(">", 0)))))
	}, SpecTimeout(5*time.Minute))

	It("are Go functions in Go, as globals and as imports", func(ctx SpecContext) {
		_, state := coded(ctx)
		var reported []string
		run := state.RunCode(ctx, `
import { region } from 'shop/config';
const rows = await fetchRows(await region(), 3);
for (const row of rows) report(row.amount);
let failed; try { await fetchRows('nowhere', 1) } catch (e) { failed = e.name + ': ' + e.message }
export default () => ({ sum: rows.reduce((a, r) => a + r.amount, 0), failed })`, runtimeclient.CodeOptions{
			Globals: map[string]any{"fetchRows": func(_ context.Context, region string, n int) ([]map[string]any, error) {
				if region != "north" {
					return nil, &runtimev1.CodeError{Name: "RangeError", Message: "no region " + region}
				}
				return []map[string]any{{"amount": n}, {"amount": n * 2}}, nil
			}},
			Imports: map[string]map[string]any{"shop/config": {"region": func() string { return "north" }}},
			Report:  func(v json.RawMessage) { reported = append(reported, string(v)) },
		})
		r, err := run.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON(`{"sum":9,"failed":"RangeError: no region nowhere"}`))
		Expect(reported).To(Equal([]string{"3", "6"}))
	}, SpecTimeout(5*time.Minute))

	It("let code run code, within a depth", func(ctx SpecContext) {
		Expect(runsIn(ctx, `
const run = (source: string) => state.runCode(source, { globals: { run } });
const nest = (n: number): string => n === 0 ? 'export default () => 7'
  : 'const r = await run(' + JSON.stringify(nest(n - 1)) + '); if (r.error) throw new Error(r.error.message); export default () => r.result + 1';
const [ok, over] = [await run(nest(3)), await run(nest(4))];
return [ok.status, ok.result, over.status, /waits? for each other/.test(over.error.message)];`)).To(MatchJSON(`["success",10,"error",true]`))
	}, SpecTimeout(5*time.Minute))

	It("run in parallel as far as the sandbox goes, and queue beyond", func(ctx SpecContext) {
		Expect(runsIn(ctx, `
const runs = Array.from({ length: 12 }, (_, i) => state.runCode('export default async () => (await twice(' + i + '))', { globals: { twice: async (n: number) => 2 * n }, memoryLimitBytes: 8 << 20 }));
return (await Promise.all(runs)).map((r) => r.result);`)).To(MatchJSON(`[0,2,4,6,8,10,12,14,16,18,20,22]`))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("The right to run code", Label("COD-01", "K8S-04"), func() {
	It("is the verb create, over the WebSocket too", func(ctx SpecContext) {
		t, _ := coded(ctx)
		ns := t.Namespace
		user := "watcher-of-" + ns
		create(ctx,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "watcher"}, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"threads", "threads/code"}, Verbs: []string{"get", "list", "watch"},
			}}},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "watcher"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "watcher"},
			})
		Eventually(ctx, func() string { // until the role is known
			_, err := runtimeAs(user).Thread(ns, t.Name).RunCode(ctx, "export default 1", runtimeclient.CodeOptions{}).Wait(ctx)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			return err.Error()
		}).Should(ContainSubstring("create on threads/code"))
	}, SpecTimeout(5*time.Minute))
})
