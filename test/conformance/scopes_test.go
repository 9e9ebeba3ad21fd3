package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// scoped declares a thread whose tool evaluates a body of code with state, and gives a function that has it
// run bodies, one tool call each, in one run.
func scoped(ctx context.Context) (*harness.Thread, func(runs int, bodies ...string) []string) {
	GinkgoHelper()
	ns := namespace(ctx)
	create(ctx, harness.CodeTool(ns, "step", `
import { defineTool } from '@standardagents/builder';
const steps = {
  write: async (s) => { s.request.state.set('r', 1); s.session.state.set('seen', ['write']); await s.thread.state.set('n', 1); await s.thread.state.push('log', 'a', 2); await s.thread.state.push('log', 'b', 2); await s.thread.state.push('log', 'c', 2); return [s.thread.state.loaded, s.thread.state.dirty]; },
  read: async (s) => { s.session.state.push('seen', 'read'); return { request: s.request.state.has('r'), session: s.session.state.get('seen'), n: await s.thread.state.get('n'), log: await s.thread.state.get('log'), has: await s.thread.state.has('nothing'),
    keys: await s.thread.state.keys(), values: await s.thread.state.values(), entries: await s.thread.state.entries(), size: await s.thread.state.size(), loaded: s.thread.state.loaded, none: (await s.thread.state.get('nothing')) === undefined }; },
  remove: async (s) => { await s.thread.state.delete('n'); return await s.thread.state.keys(); },
  clear: async (s) => { await s.thread.state.clear(); await s.thread.state.set('fresh', true); return await s.thread.state.size(); },
  badpush: async (s) => { await s.thread.state.set('text', 'x'); try { await s.thread.state.push('text', 1); } catch (e) { return e.message; } return 'no error'; },
  badsession: (s) => { s.session.state.set('text', 'x'); try { s.session.state.push('text', 1); } catch (e) { return e.message; } return 'no error'; },
  big: async (s) => { await s.thread.state.set('big', 'x'.repeat(1100000)); await s.thread.state.set('small', 1); return 'set'; },
  bigsession: (s) => { s.session.state.set('big', 'x'.repeat(1100000)); return 'set'; },
  func: async (s) => { await s.thread.state.set('f', () => 1); await s.thread.state.set('kept', 2); return 'set'; },
  later: async (s) => { s.waitUntil(async () => { const goesOn = async () => (await s.getValue('go on')) && (await s.getMessages()).messages.some((m) => m.content === 'done'); while (!(await goesOn())) await new Promise((r) => setTimeout(r, 20)); await s.thread.state.set('late', true); s.session.state.set('late', true); }); return 'at once'; },
  context: (s) => { s.context.n = (s.context.n ?? 0) + 1; return s.context.n; },
};
export default defineTool({ description: 'x', execute: async (state, { name }) => ({ status: 'success', result: JSON.stringify(await steps[name](state)) }) });
`, map[string]any{"name": map[string]any{"type": "string"}}))
	var steps []skeinv1.ScriptStep
	steps = append(steps, harness.After("step", harness.Answer("done")))
	for _, name := range []string{"write", "read", "remove", "clear", "badpush", "badsession", "big", "bigsession", "func", "later", "context"} {
		steps = append(steps, harness.On("^"+name+"$", harness.Calls("step", map[string]any{"name": name})))
	}
	both := harness.On("^context twice$", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
		{Name: "step", Arguments: harness.Raw(map[string]any{"name": "context"})}, {Name: "step", Arguments: harness.Raw(map[string]any{"name": "context"})}}})
	wr := harness.On("^write read$", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
		{Name: "step", Arguments: harness.Raw(map[string]any{"name": "write"})}, {Name: "step", Arguments: harness.Raw(map[string]any{"name": "read"})}}})
	t := converse(ctx, ns, []string{"step"}, append(steps, both, wr))
	return t, func(runs int, bodies ...string) []string {
		GinkgoHelper()
		var ms []runtimev1.Message
		for i, b := range bodies {
			ms = say(ctx, t, runs+i, b)
		}
		var out []string
		for i := len(ms) - 1; i >= 0 && ms[i].Role != runtimev1.RoleUser; i-- {
			if ms[i].Role == runtimev1.RoleTool {
				Expect(ms[i].ToolStatus).To(Equal("success"), "%s", *ms[i].Content)
				out = append([]string{*ms[i].Content}, out...)
			}
		}
		return out
	}
}

var _ = Describe("State", func() {
	It("has three scopes, each with its life", Label("STA-01", "STA-02", "STA-03", "STA-04"), func(ctx SpecContext) {
		t, run := scoped(ctx)
		results := run(1, "write read")
		Expect(results).To(HaveLen(2))
		Expect(results[0]).To(MatchJSON(`[false, true]`), "writing fetches nothing")
		Expect(results[1]).To(MatchJSON(`{"request":false,"session":["write","read"],"n":1,"log":["b","c"],"has":false,"keys":["n","log"],"values":[1,["b","c"]],
			"entries":[["n",1],["log",["b","c"]]],"size":2,"loaded":true,"none":true}`))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0].SessionState).To(MatchJSON(`{"seen":["write","read"]}`), "readable when the run completed")

		Expect(run(2, "read")[0]).To(And(ContainSubstring(`"session":["read"]`), ContainSubstring(`"log":["b","c"]`)), "a new session, the same thread")
		Expect(run(3, "remove")[0]).To(MatchJSON(`["log"]`))
		Expect(run(4, "clear")[0]).To(MatchJSON(`1`))
		c := api().Thread(t.Namespace, t.Name)
		list, err := c.State(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Entries).To(HaveExactElements(HaveField("Key", "fresh")))
		Expect(run(5, "badpush")[0]).To(ContainSubstring("not an array"))
		Expect(run(6, "badsession")[0]).To(ContainSubstring("not an array"))
	}, SpecTimeout(3*time.Minute))

	It("is merged over the API without fetching, all or nothing", Label("STA-02", "STA-03", "STA-04"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		c := api().Thread(t.Namespace, t.Name)
		for i := range 5 {
			Expect(c.PushState(ctx, "list", i, 3)).To(Succeed())
		}
		v, ok, err := c.StateValue(ctx, "list")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(v).To(MatchJSON(`[2,3,4]`))
		err = c.ChangeState(ctx, runtimev1.StateOperation{Op: "set", Key: "kept", Value: json.RawMessage(`1`)}, runtimev1.StateOperation{Op: "set", Key: "text", Value: json.RawMessage(`"x"`)},
			runtimev1.StateOperation{Op: "push", Key: "text", Value: json.RawMessage(`1`)})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(c.State(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(1)))
	}, SpecTimeout(2*time.Minute))

	It("that is too large is not saved: the run succeeds, and an event and a condition say so", Label("STA-05"), func(ctx SpecContext) {
		t, run := scoped(ctx)
		Expect(run(1, "big")[0]).To(ContainSubstring("set"))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0].Status).To(Equal(runtimev1.RunSucceeded))
		c := api().Thread(t.Namespace, t.Name)
		Expect(c.State(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(0)))
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(log).To(ContainElement(And(HaveField("Type", runtimev1.EventStateSkipped), HaveField("RunID", runs[0].ID), HaveField("Data", ContainSubstring("1048576")))))
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionStatePersisted, metav1.ConditionFalse, "StateTooLarge")))
		}).Should(Succeed())
		Eventually(ctx, func() (string, error) {
			return cluster.Kubectl(ctx, "get", "events", "-n", t.Namespace, "--field-selector", "involvedObject.name="+t.Name, "-o", "jsonpath={.items[*].reason}")
		}).Should(ContainSubstring("StateTooLarge"))

		run(2, "func")
		log, err = t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(log).To(ContainElement(And(HaveField("Type", runtimev1.EventStateSkipped), HaveField("Data", ContainSubstring("NotSerializable")))))
		list, err := c.State(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Entries).To(HaveExactElements(HaveField("Key", "kept")), "what cannot be written is left out, the rest is kept")
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionStatePersisted, metav1.ConditionTrue)))
		}).Should(Succeed(), "a save that fits takes the warning away")

		run(3, "bigsession")
		runs, err = t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0].Status).To(Equal(runtimev1.RunSucceeded))
		Expect(runs[0].SessionState).To(BeEmpty())
		Expect(c.SetState(ctx, "big", strings.Repeat("x", 700_000))).To(Succeed())
		Expect(apierrors.IsInvalid(c.SetState(ctx, "more", strings.Repeat("x", 700_000)))).To(BeTrue(), "a client is told at once")
	}, SpecTimeout(4*time.Minute))

	It("that cannot be serialised is logged and skipped: the run succeeds, and reads go on", Label("STA-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "odd", `
import { defineTool } from '@standardagents/builder';
const loop: any = {};
loop.self = loop;
const odd: [string, any][] = [
  ['function', () => 1], ['nested', { list: [1, () => 2] }], ['symbol', Symbol('s')], ['circular', loop], ['bigint', 10n], ['bigint within', { n: [10n] }],
  ['toJSON', new (class { toJSON() { throw new RangeError('no JSON') } })()], ['getter', { get x() { throw new RangeError('no x') } }],
];
export default defineTool({ description: 'x', execute: async (state) => {
  for (const [key, value] of odd) {
    state.request.state.set(key, value);
    state.session.state.set(key, value);
    await state.thread.state.set(key, value);
    await state.thread.state.push(key + ' list', value);
  }
  const read = await state.thread.state.get('function');
  state.session.state.set('kept', 1);
  await state.thread.state.set('kept', { nan: NaN, list: [1, undefined], at: new Date(0), map: new Map([['a', 1]]) });
  return { status: 'success', result: String([typeof read, (await state.thread.state.entries()).length > 0, state.session.state.size]) };
} });`, nil))
		t := converse(ctx, ns, []string{"odd"}, []skeinv1.ScriptStep{harness.After("odd", harness.Answer("done")), harness.Calls("odd", nil)})
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(ContainElement("tool: undefined,true,9"))
		run := ended(ctx, t)
		Expect(run.Status).To(Equal(runtimev1.RunSucceeded), run.Message)
		Expect(run.SessionState).To(MatchJSON(`{"kept":1}`))
		list, err := api().Thread(t.Namespace, t.Name).State(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Entries).To(HaveExactElements(And(HaveField("Key", "kept"), HaveField("Value", MatchJSON(`{"nan":null,"list":[1,null],"at":"1970-01-01T00:00:00.000Z","map":{"a":1}}`)))))
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		skipped := map[string]int{}
		for _, e := range log {
			if e.Type == runtimev1.EventStateSkipped {
				var s struct{ Scope, Key, Reason string }
				Expect(json.Unmarshal(e.Data, &s)).To(Succeed())
				Expect(s.Reason).To(Equal("NotSerializable"))
				skipped[s.Scope+" "+s.Key]++
			}
		}
		for _, key := range []string{"function", "nested", "symbol", "circular", "bigint", "bigint within", "toJSON", "getter"} {
			Expect(skipped).To(And(HaveKey("thread "+key), HaveKey("thread "+key+" list"), HaveKey("session "+key)))
		}
	}, SpecTimeout(3*time.Minute))

	It("of work after the response is saved, and what happens is told to listeners", Label("STA-06"), func(ctx SpecContext) {
		t, _ := scoped(ctx)
		var seen []runtimev1.LifecycleEvent
		watched := make(chan struct{})
		watch, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			defer close(watched)
			for e, err := range api().Lifecycle(watch, t.Namespace, runtimeclient.LifecycleOptions{}) {
				if err != nil {
					return
				}
				if seen = append(seen, e); e.Type == runtimev1.LifecycleThreadDestroyed {
					return
				}
			}
		}()
		// The work ends when it is told to, which is after its tool's response has been seen, and when it sees itself what the
		// model has made of that: neither waited for it.
		Expect(t.Say(ctx, "later")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(texts(ms)).To(ContainElement(`tool: "at once"`))
		}).Should(Succeed())
		Expect(must(t.Runs(ctx))).To(HaveExactElements(HaveField("Status", "running")))
		Expect(t.SetValue(ctx, "go on", "true")).To(Succeed())
		Expect(texts(settled(ctx, t, 1))).To(Equal([]string{"user: later", "assistant:", `tool: "at once"`, "assistant: done"}))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0].SessionState).To(MatchJSON(`{"late":true}`))
		c := api().Thread(t.Namespace, t.Name)
		v, ok, err := c.StateValue(ctx, "late")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(v).To(MatchJSON(`true`))

		Expect(t.Delete(ctx)).To(Succeed())
		Eventually(watched).Should(BeClosed())
		var types []string
		for _, e := range seen {
			Expect(e.ThreadName).To(Equal(t.Name))
			types = append(types, e.Type)
		}
		Expect(types).To(Equal([]string{runtimev1.LifecycleThreadCreated, runtimev1.LifecycleSessionStarted, runtimev1.LifecycleSessionCompleted, runtimev1.LifecycleThreadDestroyed}))
		Expect(seen[2].SessionID).To(Equal(runs[0].ID))
		Expect(seen[2].Reason).To(Equal(runtimev1.RunSucceeded))
		var rest []string
		for e, err := range api().Lifecycle(ctx, t.Namespace, runtimeclient.LifecycleOptions{After: seen[1].Cursor, NoFollow: true}) {
			Expect(err).NotTo(HaveOccurred())
			rest = append(rest, e.Type)
		}
		Expect(rest).To(Equal(types[2:]), "a reader goes on where it was")
	}, SpecTimeout(3*time.Minute))

	It("has values that expire, beside threads", Label("STA-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		kv := api().KV(ns, "conversations")
		Expect(kv.Get(ctx, "a/b")).To(And(HaveField("Exists", false), HaveField("Data", MatchJSON(`null`))))
		Expect(kv.Set(ctx, "a/b", map[string]any{"x": []int{1}}, 0)).To(Succeed())
		Expect(kv.Set(ctx, "soon", "x", time.Second)).To(Succeed())
		got, err := kv.Get(ctx, "a/b")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Exists).To(BeTrue())
		Expect(got.Data).To(MatchJSON(`{"x":[1]}`))
		Eventually(ctx, func() (*runtimev1.ValueRecord, error) { return kv.Get(ctx, "soon") }).Should(HaveField("Exists", false))
		Expect(kv.Keys(ctx, runtimeclient.KeyOptions{})).To(HaveField("Keys", []string{"a/b"}))
		Expect(api().KV(namespace(ctx), "conversations").Get(ctx, "a/b")).To(HaveField("Exists", false))
		Expect(kv.Delete(ctx, "a/b")).To(BeTrue())
		Expect(kv.Delete(ctx, "a/b")).To(BeFalse())
	}, SpecTimeout(2*time.Minute))

	It("of one run's tools is shared by state.context, and gone after it", Label("STA-08"), func(ctx SpecContext) {
		_, run := scoped(ctx)
		Expect(run(1, "context twice")).To(Equal([]string{"1", "2"}))
		Expect(run(2, "context twice")).To(Equal([]string{"1", "2"}))
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("Values", func() {
	It("are any JSON, per thread, and last", Label("KVS-01"), Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, harness.NewThread(ns, "other", "agent"))
		other := ready(ctx, cluster.Thread(ns, "other"))
		c := api().Thread(ns, t.Name)
		for key, value := range map[string]string{"n": `1.5`, "s": `"é\u0001"`, "f": `false`, "a": `[1,[null]]`, "o": `{"x":{"y":null}}`, "deep/er": `""`} {
			Expect(t.SetValue(ctx, key, value)).To(Succeed())
			Expect(t.Value(ctx, key)).To(MatchJSON(value))
		}
		page, err := c.Keys(ctx, runtimeclient.KeyOptions{Limit: 4})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Keys).To(Equal([]string{"a", "deep/er", "f", "n"}))
		Expect(page.HasMore).To(BeTrue())
		Expect(c.Keys(ctx, runtimeclient.KeyOptions{After: "n"})).To(HaveField("Keys", []string{"o", "s"}))
		Expect(t.Value(ctx, "missing")).To(Equal("null"))
		Expect(other.Value(ctx, "n")).To(Equal("null"))
		Expect(t.SetValue(ctx, "f", `null`)).To(Succeed())
		Expect(t.Value(ctx, "f")).To(Equal("null"))
		Expect(c.Keys(ctx, runtimeclient.KeyOptions{Prefix: "f"})).To(HaveField("Keys", BeEmpty()))
		for _, bad := range []string{`{not json`, `undefined`, ``} {
			err := t.SetValue(ctx, "n", bad)
			Expect(err).To(HaveOccurred(), "%q", bad)
			Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)).To(BeTrue(), "%q: %v", bad, err)
		}
		Expect(t.Value(ctx, "n")).To(Equal("1.5"))
		manager.Stop()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "n") }).Should(Equal("1.5"))
	}, SpecTimeout(3*time.Minute))

	It("are not copied to children", Label("KVS-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.CodeTool(ns, "look", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => ({ status: 'success', result: JSON.stringify([await state.getValue('mine'), await state.thread.state.has('mine')]) }) });
`, nil),
			harness.Scripted(ns, "child-model", harness.On(".*", harness.Calls("look", map[string]any{})), harness.After("look", skeinv1.ScriptStep{Content: "child saw {{ .Last.Content }}"})),
			harness.Prompt(ns, "child-prompt", "child-model", "look"),
			harness.Agent(ns, "child-agent", "child-prompt"),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "look"})),
				harness.After("subagent_create", skeinv1.ScriptStep{Content: "{{ .Last.Content }}"})),
			harness.Prompt(ns, "prompt", "model", "builtin:subagents"),
			harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) {
				a.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child-agent"}, Blocking: true}}
			}),
			harness.NewThread(ns, "thread", "agent"),
		)
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.SetValue(ctx, "mine", `"parent's"`)).To(Succeed())
		Expect(api().Thread(ns, "thread").SetState(ctx, "mine", 1)).To(Succeed())
		ms := say(ctx, t, 1, "go")
		Expect(last(ms)).To(ContainSubstring("child saw [null,false]"), fmt.Sprint(texts(ms)))
	}, SpecTimeout(2*time.Minute))
})
