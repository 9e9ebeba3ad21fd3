package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// golang is the Go client of a thread, by the cluster's own credentials.
func golang(t *harness.Thread) *runtimeclient.Thread {
	GinkgoHelper()
	c, err := runtimeclient.New(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	return c.Thread(t.Namespace, t.Name)
}

// kind matches errors of a kind of the Go client's.
func kind(target error) OmegaMatcher {
	return WithTransform(func(err error) bool { return errors.Is(err, target) }, BeTrue())
}

// adder is a tool that adds, and fails when told to.
func adder(ns string) *skeinv1.Tool {
	return harness.CodeTool(ns, "add-up", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'adds', execute: async (state, args) => {
  if (args.a < 0) return { status: 'error', error: 'no negative numbers' };
  await state.setValue('sum', args.a + args.b);
  return { status: 'success', result: String(args.a + args.b) };
} });`, map[string]any{"a": map[string]any{"type": "number"}, "b": map[string]any{"type": "number"}}, "a", "b")
}

var _ = Describe("Key-values", Label("KVS-01", "STA-07"), func() {
	It("take JSON only: anything else is an error that names the key and what is wrong", func(ctx SpecContext) {
		ns := namespace(ctx)
		source := func(set string) string {
			return `
const loop: any = {};
loop.self = loop;
const values: [string, any][] = [
  ['bigint', 10n], ['map', new Map([['a', 1]])], ['set', new Set([1])], ['nan', NaN], ['within', { list: [1, { n: -Infinity }] }], ['undefined', [undefined]],
  ['bytes', new Uint8Array(2)], ['function', () => 1], ['symbol', { s: Symbol('s') }], ['circular', loop],
  ['getter', { get x() { throw new RangeError('no x') } }],
  ['fine', { text: 'x', list: [1, null, -0.5], at: new Date(0), gone: undefined }],
];
const all = async (set: (key: string, value: any) => Promise<void>) => {
  const told: Record<string, string> = {};
  for (const [key, value] of values) await set(key, value).catch((e) => { told[key] = e.message });
  return told;
};
` + set
		}
		check := func(text, call string) {
			GinkgoHelper()
			var got map[string]string
			Expect(json.Unmarshal([]byte(text), &got)).To(Succeed(), text)
			want := map[string]string{
				"bigint": "a bigint: give a number or a text instead", "map": "a Map: give Object.fromEntries(map) instead", "set": "a Set: give an array, [...set], instead",
				"nan": "the number NaN: give null or a text instead", "within": "the number -Infinity: give null or a text instead, at .list[1].n",
				"undefined": "undefined in a list: give null instead, at [0]", "bytes": "bytes: keep them in a file, or as a base64 text", "function": "a function",
				"symbol": "a symbol, at .s", "circular": "it contains itself, at .self", "getter": "reading it throws RangeError: no x",
			}
			for key, reason := range want {
				want[key] = call + ": the value for \"" + key + "\" is not JSON: " + reason
			}
			Expect(got).To(Equal(want))
		}
		create(ctx, harness.CodeTool(ns, "odd", source(`
export default async (state: any) => JSON.stringify(await all((key, value) => state.setValue(key, value)));`), nil))
		t := converse(ctx, ns, []string{"odd"}, []skeinv1.ScriptStep{harness.Echo()})
		res, err := golang(t).InvokeTool(ctx, "odd", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Error).To(BeEmpty())
		check(res.Result, "state.setValue")
		fine := `{"text":"x","list":[1,null,-0.5],"at":"1970-01-01T00:00:00.000Z"}`
		Expect(golang(t).Value(ctx, "fine")).To(MatchJSON(fine))
		for _, key := range []string{"bigint", "map", "nan", "bytes"} {
			Expect(golang(t).Value(ctx, key)).To(BeNil(), "nothing is kept of what was refused")
		}

		h := engage(ctx, namespace(ctx), `import { createAgent } from '@agentuity/runtime';`+source(`
export default createAgent('KV', { handler: async (ctx) => all((key, value) => ctx.kv.set('odd', key, value)) });`), nil)
		check(last(say(ctx, h, 1, "go")), "kv.set")
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.KV(h.Namespace, "odd").Get(ctx, "fine")).To(HaveField("Data", MatchJSON(fine)))

		By("the runtime API and the Go client")
		for _, put := range []error{
			golang(t).SetValue(ctx, "nan", math.NaN()),
			c.KV(h.Namespace, "odd").Set(ctx, "nan", math.NaN(), 0),
			golang(t).SetState(ctx, "nan", math.NaN()),
		} {
			Expect(put).To(MatchError(And(ContainSubstring(`"nan"`), ContainSubstring("NaN"))))
		}
		Expect(t.SetValue(ctx, "broken", "{1")).To(MatchError(And(ContainSubstring("broken"), ContainSubstring("JSON"))))
		Expect(t.SetValue(ctx, "broken", "NaN")).To(MatchError(And(ContainSubstring("broken"), ContainSubstring("JSON"))))
	}, SpecTimeout(4*time.Minute))
})

var _ = Describe("Tools from outside", Label("TOL-01"), func() {
	numbers := func(a, b int) map[string]int { return map[string]int{"a": a, "b": b} }

	It("are invoked beside the conversation, and give status, result and error", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, adder(ns))
		t := converse(ctx, ns, []string{"add-up"}, []skeinv1.ScriptStep{harness.Echo()})
		state := golang(t)
		Expect(state.InvokeTool(ctx, "add_up", numbers(2, 3))).To(And(
			HaveField("Status", runtimev1.ToolSuccess), HaveField("Result", "5"), HaveField("Error", "")))
		Expect(state.InvokeTool(ctx, "add_up", numbers(-1, 3))).To(And(
			HaveField("Status", runtimev1.ToolError), HaveField("Error", ContainSubstring("no negative numbers")), HaveField("Result", "")))
		Expect(state.InvokeTool(ctx, "add_up", map[string]any{"a": "two"})).To(And(
			HaveField("Status", runtimev1.ToolError), HaveField("Error", ContainSubstring("a")))) // checked against the schema
		Expect(state.Value(ctx, "sum")).To(MatchJSON("5"))
		Expect(t.Messages(ctx)).To(BeEmpty(), "nothing is said in the conversation")
		Expect(t.Runs(ctx)).To(BeEmpty(), "and nothing was started")
		_, err := state.InvokeTool(ctx, "subtract", nil)
		Expect(err).To(And(kind(runtimeclient.ErrNotFound), MatchError(ContainSubstring("add_up"))))
	}, SpecTimeout(2*time.Minute))

	It("start an execution of a thread at rest when they are queued", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, adder(ns))
		t := converse(ctx, ns, []string{"add-up"}, []skeinv1.ScriptStep{harness.After("add_up", harness.Answer("it makes {{ .Last.Content }}"))})
		Expect(golang(t).QueueTool(ctx, "add_up", numbers(2, 3))).To(Succeed())
		ms := settled(ctx, t, 1)
		content, status := result(ms, "add_up")
		Expect(status).To(Equal("success"))
		Expect(content).To(Equal("5"))
		Expect(last(ms)).To(Equal("it makes 5"))
		Expect(golang(t).QueueTool(ctx, "subtract", nil)).To(kind(runtimeclient.ErrNotFound))
	}, SpecTimeout(2*time.Minute))

	It("are added to the execution under way when they are queued", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, adder(ns))
		model := newGate(func(w http.ResponseWriter, req harness.ChatRequest, last string) {
			switch {
			case last == "user go":
				harness.CallTool(w, req.Model, "call_of_the_model", "set_value", `{"key":"k","value":1}`)
			case strings.HasPrefix(last, "tool call_of_the_model"): // those that are queued have random ids
				harness.Say(w, req.Model, "too early: the queued call comes first")
			default:
				harness.Say(w, req.Model, "done")
			}
		})
		t := converseWith(ctx, ns, model.model(ns, "model"), []string{"add-up", "builtin:kv"})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, model.asked.Load).Should(BeEquivalentTo(1))
		Expect(golang(t).Execution(ctx)).NotTo(BeNil())
		Expect(golang(t).QueueTool(ctx, "add_up", numbers(2, 3))).To(Succeed())
		model.open()
		ms := settled(ctx, t, 1)
		Expect(last(ms)).To(Equal("done"))
		content, _ := result(ms, "add_up")
		Expect(content).To(Equal("5"))
		Expect(t.Runs(ctx)).To(HaveLen(1), "one execution")
		for _, m := range ms {
			Expect(m.RunID).To(Equal(ms[0].RunID))
		}
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("Definitions from outside", Label("AGT-07"), func() {
	It("are listed and loaded through a thread, without secrets, and unknown ones are errors", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, harness.OpenAI(ns, "real", "https://models.example/v1", "the-keys"), harness.Agent(ns, "another", "prompt"))
		state := golang(t)
		Eventually(ctx, func() ([]string, error) { return state.ModelNames(ctx) }).Should(Equal([]string{"model", "real"}))
		Expect(state.PromptNames(ctx)).To(Equal([]string{"prompt"}))
		Eventually(ctx, func() ([]string, error) { return state.AgentNames(ctx) }).Should(Equal([]string{"agent", "another"}))

		var model struct{ Name, Provider, Model string }
		raw, err := state.LoadModel(ctx, "real")
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(raw, &model)).To(Succeed())
		Expect(model.Name).To(Equal("real"))
		Expect(model.Provider).To(Equal("openai"))
		Expect(string(raw)).NotTo(ContainSubstring("the-keys"), "where the key is kept is nobody's business")
		Expect(state.LoadPrompt(ctx, "prompt")).To(ContainSubstring("You are the agent of a test."))
		Expect(state.LoadAgent(ctx, "agent")).To(ContainSubstring(`"promptRef"`))
		for _, load := range []func(context.Context, string) (json.RawMessage, error){state.LoadModel, state.LoadPrompt, state.LoadAgent} {
			_, err := load(ctx, "no-such-thing")
			Expect(err).To(And(kind(runtimeclient.ErrNotFound), MatchError(ContainSubstring("no-such-thing"))))
		}
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("Parents and children from outside", Label("SUB-05"), func() {
	It("find each other, and the child reports its progress to its parent", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{
				harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add 2 and 3", "name": "Sum"})),
				harness.After("subagent_create", harness.Answer("started")),
				harness.On("halfway", harness.Answer("so it is halfway")),
				{Content: "noted"},
			},
			[]skeinv1.ScriptStep{harness.On("add", harness.Answer("5"))},
			helper(func(s *skeinv1.AgentSubagent) { s.Resumable = true }))
		state := golang(t)
		Expect(state.ParentThread(ctx)).To(BeNil())
		Expect(state.ChildThread(ctx, "nobody")).To(BeNil())
		Expect(t.Say(ctx, "go")).To(Succeed())
		takenIn(ctx, t, reported)
		info, err := state.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Children()).To(HaveLen(1))
		reference := info.Children()[0].Reference

		child, err := state.ChildThread(ctx, reference)
		Expect(err).NotTo(HaveOccurred())
		childInfo, err := child.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		o, err := cluster.Thread(ns, info.Children()[0].ThreadName).Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(childInfo.ThreadID()).To(Equal(string(o.UID)))
		Expect(childInfo.AgentID()).To(Equal("worker"))
		up, err := child.ParentThread(ctx)
		Expect(err).NotTo(HaveOccurred())
		upInfo, err := up.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(upInfo.ThreadID()).To(Equal(info.ThreadID()))

		Expect(child.NotifyParent(ctx, "halfway there")).To(Succeed())
		ms := takenIn(ctx, t, Equal("user: halfway there"))
		Expect(ms).To(ContainElement(And(
			HaveField("Content", HaveValue(Equal("halfway there"))), HaveField("Silent", true),
			HaveField("Metadata", HaveKeyWithValue("subagent_id", reference)))))
		Expect(last(ms)).To(Equal("so it is halfway"))

		Expect(child.SetStatus(ctx, "checking the sum")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			i, err := state.Info(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(i.Children()).To(ConsistOf(HaveField("Status", "checking the sum")))
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Children).To(ConsistOf(HaveField("Status", "checking the sum")))
		}).Should(Succeed())
		Expect(state.NotifyParent(ctx, "x")).To(kind(runtimeclient.ErrInvalid))
		Expect(state.SetStatus(ctx, "x")).To(kind(runtimeclient.ErrInvalid))
	}, SpecTimeout(3*time.Minute))
})

// listen opens a WebSocket to a thread's events from now on, through the Kubernetes API.
func listen(ctx context.Context, t *harness.Thread) *websocket.Conn {
	GinkgoHelper()
	return dialThread(ctx, t, "events?after=latest", runtimev1.EventsSubprotocol)
}

// dialThread opens a WebSocket to a path below a thread, through the Kubernetes API.
func dialThread(ctx context.Context, t *harness.Thread, path, subprotocol string) *websocket.Conn {
	GinkgoHelper()
	tlsConfig, err := rest.TLSConfigFor(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.HTTPWrappersForConfig(cluster.Config, &http.Transport{TLSClientConfig: tlsConfig})
	Expect(err).NotTo(HaveOccurred())
	//nolint:bodyclose // it is the connection's own
	conn, resp, err := websocket.Dial(ctx, golangURL(t, path), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{subprotocol},
	})
	Expect(err).NotTo(HaveOccurred(), "%+v", resp)
	DeferCleanup(conn.CloseNow)
	return conn
}

func golangURL(t *harness.Thread, sub string) string {
	return strings.TrimSuffix(cluster.Config.Host, "/") + "/apis/runtime.skein.dev/v1alpha1/namespaces/" + t.Namespace + "/threads/" + t.Name + "/" + sub
}

// hear reads until an event of a type comes.
func hear(ctx context.Context, c *websocket.Conn, kind string) runtimev1.Event {
	GinkgoHelper()
	for {
		_, data, err := c.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		var e runtimev1.Event
		Expect(json.Unmarshal(data, &e)).To(Succeed(), string(data))
		if e.Type == kind {
			return e
		}
	}
}

var _ = Describe("Events from outside", Label("EVT-01"), func() {
	It("reach every WebSocket client of their thread, and no client of another thread", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, harness.NewThread(ns, "other", "agent"))
		other := ready(ctx, cluster.Thread(ns, "other"))
		first, second, apart := listen(ctx, t), listen(ctx, t), listen(ctx, other)
		state := golang(t)
		Expect(state.Emit(ctx, "progress", map[string]any{"step": 3, "total": 10})).To(Succeed())
		for _, c := range []*websocket.Conn{first, second} {
			Expect(hear(ctx, c, "event:progress").Data).To(MatchJSON(`{"step":3,"total":10}`))
		}
		Expect(golang(other).Emit(ctx, "mine", nil)).To(Succeed())
		_, data, err := apart.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(ContainSubstring(`"event:mine"`), "the first thing that is heard there")

		for _, bad := range []string{"", "two words", "1st", strings.Repeat("x", 101)} {
			Expect(state.Emit(ctx, bad, nil)).To(kind(runtimeclient.ErrInvalid), "%q", bad)
		}
		Expect(state.Emit(ctx, "ok", func() {})).To(kind(runtimeclient.ErrInvalid), "no JSON")
		err = t.Request(http.MethodPost, "events").Body([]byte(`{"event":"ok","data":nonsense}`)).SetHeader("Content-Type", "application/json").Do(ctx).Error()
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("Ids from outside", Label("IDS-01"), func() {
	It("are one identity in four spellings, accepted everywhere", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		uid := string(o.UID)
		hex := strings.ReplaceAll(uid, "-", "")
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		for i, spelling := range []string{o.Name, uid, "T-" + uid, "t-" + strings.ToUpper(uid), "thrd_" + hex} {
			state := c.Thread(ns, spelling)
			info, err := state.Info(ctx)
			Expect(err).NotTo(HaveOccurred(), spelling)
			Expect(info.ThreadID()).To(Equal(uid), spelling)
			_, err = state.Inject(ctx, runtimev1.NewMessage{Content: spelling})
			Expect(err).NotTo(HaveOccurred(), spelling)
			Expect(state.SetValue(ctx, "n", i)).To(Succeed(), spelling)
			Expect(state.Value(ctx, "n")).To(MatchJSON(json.RawMessage([]byte{byte('0' + i)})), spelling)
			if spelling != o.Name { // other namespaces have a thread of that name too
				found, err := c.Lookup(ctx, spelling)
				Expect(err).NotTo(HaveOccurred(), spelling)
				Expect(found.ThreadID).To(Equal(uid), spelling)
			}
		}
		Expect(t.Messages(ctx)).To(HaveLen(5), "all of them are the same thread")
		found, err := c.Lookup(ctx, hex[20:]) // the short form
		Expect(err).NotTo(HaveOccurred())
		Expect(found.ThreadID).To(Equal(uid))
		for _, bad := range []string{"T-" + uid[:35], "thrd_" + hex[:31], "thrd_" + strings.Repeat("z", 32), "thread-" + uid} {
			_, err := c.Thread(ns, bad).Get(ctx)
			Expect(err).To(kind(runtimeclient.ErrNotFound), bad)
		}
		_, err = c.Thread(namespace(ctx), uid).Get(ctx)
		Expect(err).To(kind(runtimeclient.ErrNotFound), "an id does not reach into another namespace")
	}, SpecTimeout(2*time.Minute))
})
