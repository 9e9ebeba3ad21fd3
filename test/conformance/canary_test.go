package conformance

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// canaries are secrets that nothing else in the world has, by where they are kept.
type canaries map[string]string

func newCanaries(names ...string) canaries {
	c := canaries{}
	for _, name := range names {
		b := make([]byte, 12)
		_, _ = rand.Read(b)
		c[name] = "Cn/" + hex.EncodeToString(b) + `+"&=`
	}
	return c
}

// in finds canaries in a text, in every encoding.
func (c canaries) in(text string) (found []string) {
	for name, v := range c {
		b64 := base64.StdEncoding.EncodeToString([]byte(v))
		for form, s := range map[string]string{
			"core": v[3:27], "base64": b64[:len(b64)-4], "base64 at 1": base64.StdEncoding.EncodeToString([]byte("x" + v))[2:36],
			"base64 at 2": base64.StdEncoding.EncodeToString([]byte("xx" + v))[4:36], "hex": hex.EncodeToString([]byte(v)), "url": url.QueryEscape(v),
		} {
			if strings.Contains(text, s) {
				found = append(found, name+" as "+form)
			}
		}
	}
	slices.Sort(found)
	return found
}

// leaking is code that does with a variable all that it should not.
const leaking = `
import { defineTool } from '@standardagents/builder';
const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
function base64(s) {
  let bits = 0, n = 0, out = '';
  for (let i = 0; i < s.length; i++) {
    bits = (bits << 8) | s.charCodeAt(i); n += 8;
    while (n >= 6) { n -= 6; out += alphabet[(bits >> n) & 63]; }
    bits &= (1 << n) - 1;
  }
  return n ? out + alphabet[(bits << (6 - n)) & 63] : out;
}
export default defineTool({
  description: 'leaks',
  execute: async (state, { name, how }) => {
    const v = await state.env(name);
    switch (how) {
      case 'return': return { status: 'success', result: 'it is ' + v };
      case 'object': return { value: v, nested: [{ [v]: base64('x' + v) }] };
      case 'base64': return { status: 'success', result: base64(v) + ' ' + base64('x' + v) + ' ' + base64('xx' + v) };
      case 'url': return { status: 'success', result: 'https://example.com/?q=' + encodeURIComponent(v) };
      case 'error': return { status: 'error', error: 'refused ' + v };
      case 'throw': { const e = new Error('no ' + v); e.name = 'Oops'; throw e; }
      case 'log': console.log('secret', v); console.error({ v }); return 'logged';
      case 'emit': await state.emit('leak', { v, deep: [base64(v)] }); return 'emitted';
      case 'kv': await state.setValue('plain', { v }); await state.setValue(v, v); return JSON.stringify(await state.getValue(v));
      case 'inject': await state.injectMessage({ role: 'system', content: 'note ' + v, metadata: { v, [v]: 1 }, silent: true }); return 'injected';
      case 'update': { const m = await state.injectMessage({ role: 'system', content: 'x', silent: true }); await state.updateMessage(m.id, { content: v, metadata: { v } }); return 'updated'; }
      case 'file': await state.writeFile('/dir-' + base64(v) + '/' + encodeURIComponent(v) + '.txt', new TextEncoder().encode('harmless'), 'text/plain'); return 'written';
      case 'effect': return 'scheduled ' + await state.scheduleEffect('later', { v }, 3600000);
      case 'runCode': { const r = await state.runCode('throw new Error(' + JSON.stringify(v) + ')'); return JSON.stringify(r); }
      case 'queue': await state.queueMessage({ role: 'user', content: 'echo ' + v }); return 'queued';
    }
  },
});`

var leaks = []string{"return", "object", "base64", "url", "error", "throw", "log", "emit", "kv", "inject", "update", "file", "effect", "runCode", "queue"}

var _ = Describe("Secrets", Label("ENV-03"), func() {
	It("do not leak in any form, from any source of variables", func(ctx SpecContext) {
		ns := namespace(ctx)
		c := newCanaries("THREAD", "SPEC", "USER", "INSTANCE", "AGENT", "PROMPT", "model")
		create(ctx,
			secretOf(ns, "spec", nil, map[string]string{"k": c["SPEC"], "agent": c["AGENT"], "prompt": c["PROMPT"]}),
			secretOf(ns, "user", map[string]string{skeinv1.LabelEnvScope: "user", skeinv1.LabelUser: "ada"}, map[string]string{"USER": c["USER"]}),
			secretOf(ns, "instance", map[string]string{skeinv1.LabelEnvScope: "instance"}, map[string]string{"INSTANCE": c["INSTANCE"] + "\n"}))
		leak := harness.CodeTool(ns, "leak", leaking, map[string]any{"name": map[string]any{"type": "string"}, "how": map[string]any{"type": "string"}})
		steps := []skeinv1.ScriptStep{}
		for name := range c {
			for _, how := range leaks {
				if name != "model" {
					steps = append(steps, harness.On("^"+name+" "+how+"$", harness.Calls("leak", map[string]any{"name": name, "how": how})))
				}
			}
		}
		prompt := harness.Prompt(ns, "prompt", "model", "leak")
		prompt.Spec.Env = []skeinv1.EnvVar{secretVar("PROMPT", "spec", "prompt")}
		create(ctx, leak, prompt, harness.Effect(ns, "later", `export default () => {};`),
			harness.Scripted(ns, "model", append(steps, harness.Echo())...),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.Env = []skeinv1.EnvVar{secretVar("AGENT", "spec", "agent")} }),
			harness.NewThread(ns, "thread", "agent", func(s *skeinv1.ThreadSpec) {
				s.UserID, s.Env = "ada", []skeinv1.EnvVar{secretVar("SPEC", "spec", "k")}
			}))
		th := ready(ctx, cluster.Thread(ns, "thread"))
		t := conversation(th)
		Expect(t.SetEnv(ctx, "THREAD", c["THREAD"], "")).To(Succeed())

		var answers strings.Builder // of the API, while things happen
		keep := func(v any) {
			b, err := json.Marshal(v)
			Expect(err).NotTo(HaveOccurred())
			answers.Write(b)
		}
		By("leaking within runs")
		results := 0
		for _, name := range slices.Sorted(maps.Keys(c)) {
			hows := leaks
			switch name {
			case "model":
				continue
			case "THREAD":
			default:
				hows = []string{"return", "throw", "base64"}
			}
			for _, how := range hows {
				results++
				Expect(th.Say(ctx, name+" "+how)).To(Succeed())
				Eventually(ctx, func(g Gomega) {
					ms := settled(ctx, th, 1)
					keep(ms)
					n := 0
					for _, m := range ms {
						if m.Role == runtimev1.RoleTool {
							n++
						}
					}
					g.Expect(n).To(Equal(results), "the tool was called")
				}).Should(Succeed())
			}
		}
		ms, err := th.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(strings.Join(texts(ms), "\n"), "it is [redacted]")).To(BeNumerically(">=", 6), "the code did have each of them, and this is what shows")

		By("leaking outside runs")
		for _, how := range leaks {
			res, err := t.InvokeTool(ctx, "leak", map[string]any{"name": "THREAD", "how": how})
			keep(res)
			if err != nil {
				answers.WriteString(err.Error())
			}
		}
		code, err := th.Code(ctx, runtimev1.CodeRequest{Source: fmt.Sprintf("console.log(%q); throw new Error(%[1]q)", c["THREAD"])})
		Expect(err).NotTo(HaveOccurred())
		keep(code)
		_, err = th.Inject(ctx, runtimev1.NewMessage{Content: "the user says " + c["THREAD"], ID: "id-" + c["THREAD"], Metadata: map[string]any{"x": c["USER"]}})
		Expect(err).NotTo(HaveOccurred())
		for path, body := range map[string]any{
			"env/THREAD": map[string]any{"value": "x", "type": c["THREAD"]},
			"env/" + strings.ReplaceAll(url.PathEscape(c["THREAD"]), "/", "%2F"): map[string]any{"value": "x"},
			"messages": map[string]any{"role": c["SPEC"], "content": "x"},
		} {
			body, err := json.Marshal(body)
			Expect(err).NotTo(HaveOccurred())
			raw, err := th.Request(http.MethodPut, path).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
			Expect(err).To(HaveOccurred())
			answers.Write(raw)
		}

		By("a provider that returns its key, in pieces and in an error")
		tail := ", is it not" + strings.Repeat("?", 5<<10) // more than may wait to be written
		provider := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			if len(req.Messages) > 2 {
				http.Error(w, `{"error":{"message":"Incorrect API key provided: `+strings.ReplaceAll(key, `"`, `\"`)+`","type":"invalid_request_error","code":"invalid_api_key"}}`, http.StatusUnauthorized)
				return
			}
			pieces := []string{"your key is "}
			for len(key) > 0 {
				n := min(5, len(key))
				pieces, key = append(pieces, key[:n]), key[n:]
			}
			harness.SaySlowly(w, req.Model, 20*time.Millisecond, append(pieces, tail)...)
		})
		DeferCleanup(provider.Close)
		create(ctx, secretOf(ns, "key", nil, map[string]string{"apiKey": c["model"]}), harness.OpenAI(ns, "openai", provider.URL, "key"),
			harness.Prompt(ns, "talk", "openai"), harness.Agent(ns, "talk", "talk"), harness.NewThread(ns, "talk", "talk"))
		talk := ready(ctx, cluster.Thread(ns, "talk"))
		Expect(last(say(ctx, talk, 1, "hello"))).To(Equal("your key is [redacted]" + tail))
		log, err := talk.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		var streamed string
		for _, e := range log {
			if e.Type == runtimev1.EventDelta {
				var d struct{ Text string }
				Expect(json.Unmarshal(e.Data, &d)).To(Succeed())
				streamed += d.Text
			}
		}
		Expect(streamed).To(ContainSubstring("your key is [redacted]"), "there were pieces")
		say(ctx, talk, 2, "again")
		Eventually(ctx, func(g Gomega) {
			o, err := talk.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunFailed)))
		}).Should(Succeed())

		By("searching answers, objects, logs and the database")
		Expect(c.in(answers.String())).To(BeEmpty(), "answers of the runtime API on the way")
		Expect(c.in(everyAnswer(ctx, th)+everyAnswer(ctx, talk))).To(BeEmpty(), "answers of the runtime API")
		listed, err := golang(th).ScheduledEffects(ctx, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(must(json.Marshal(listed)))).To(ContainSubstring("[redacted]"), "the scheduled effect's arguments")
		objects, err := cluster.Kubectl(ctx, "-n", ns, "get", "threads,agents,prompts,models,tools,effects,subagents,scheduledeffects,sandboxpools,configmaps,events,pods", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(ContainSubstring("argsRef: "), "the scheduled effect's arguments are in the store")
		Expect(c.in(objects)).To(BeEmpty(), "objects of the cluster")
		data, err := os.ReadFile(logFile.Name())
		Expect(err).NotTo(HaveOccurred())
		Expect(c.in(string(data))).To(BeEmpty(), "the manager's log")
		expectNotStored(c)
		secret := &corev1.Secret{}
		Expect(cluster.Client.Get(ctx, key(secretOf(ns, "user", nil, nil)), secret)).To(Succeed())
		Expect(c.in(string(secret.Data["USER"]))).To(Equal([]string{"USER as core"}), "the search does find a canary")
	}, SpecTimeout(20*time.Minute))
})

// expectNotStored looks for canaries in all that the manager has stored.
func expectNotStored(c canaries) {
	GinkgoHelper()
	stored(func(path string, data []byte) {
		Expect(c.in(path)).To(BeEmpty())
		Expect(c.in(string(data))).To(BeEmpty(), path)
	})
}

// everyAnswer gives the answers to all reads of a thread, one after the other.
func everyAnswer(ctx context.Context, th *harness.Thread) string {
	GinkgoHelper()
	var all strings.Builder
	for _, sub := range []string{
		"", "messages?limit=1000&includeSilent=true&maxDepth=-1", "queue", "runs", "events?after=0&follow=false", "files?recursive=true", "env", "env/THREAD", "env/none",
		"kv/plain", "kv", "effects", "children", "execution", "state", "usage", "export", "logs", "definitions/agents/agent", "definitions/models/openai", "definitions/prompts/prompt", "relationships", "env/pending",
	} {
		raw, err := th.Request(http.MethodGet, sub).DoRaw(ctx)
		all.Write(raw)
		if err != nil {
			all.WriteString(err.Error())
		}
	}
	Expect(all.Len()).To(BeNumerically(">", 2000))
	return all.String()
}
