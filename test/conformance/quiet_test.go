package conformance

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// etcd returns what look finds in the files of the cluster's etcd, its log among them. They have what objects had before they were changed
// or deleted, too.
func etcd(look func(text string) []string) (found []string) {
	GinkgoHelper()
	logs := 0
	Expect(filepath.WalkDir(cluster.Etcd(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if filepath.Ext(path) == ".wal" {
			logs++
		}
		data, err := os.ReadFile(path)
		for _, one := range look(string(data)) {
			found = append(found, one+" in "+filepath.Base(path))
		}
		return err
	})).To(Succeed())
	Expect(logs).To(BeNumerically(">", 0))
	return found
}

// quiet expects that no object of the cluster has a canary, nor had one, while objects have the text known.
func (c canaries) quiet(ctx context.Context, known string) {
	GinkgoHelper()
	all := everyObject(ctx)
	Expect(all).To(ContainSubstring(known), "the search is over objects of the family")
	Expect(c.in(all)).To(BeEmpty())
	Expect(etcd(func(text string) []string {
		if strings.Contains(text, known) {
			return []string{"known"}
		}
		return nil
	})).NotTo(BeEmpty(), "the search is over what these objects are stored in")
	Expect(etcd(c.in)).To(BeEmpty())
}

// varies is code that sets a variable.
const varies = `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'sets it', execute: async (state, { name }) => {
  await state.setEnv(name, 'plain', { type: 'text' });
  return { status: 'success', result: 'set' };
} });`

// breaks is an agent that keeps what it is given in the thread's state, or fails with it.
const breaks = `
import { createAgent } from '@agentuity/runtime';
export default createAgent('Breaks', { handler: async (ctx, input) => {
  if (input.startsWith('break ')) throw new Error('thrown ' + input);
  await ctx.thread.state.set(input, { deep: [input] });
  return 'kept';
} });`

var _ = Describe("What a model, a provider or code says", Label("K8S-07"), func() {
	It("is neither in objects nor in the files of etcd: ids of calls, names of variables, calls that wait, titles, thread state, errors of handlers", func(ctx SpecContext) {
		ns := namespace(ctx)
		c := newCanaries("id", "variable", "approval", "title", "queued", "state", "handler")
		// core is the part of a canary that may stand in names.
		core := func(name string) string { return c[name][3:27] }
		provider := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			results := 0
			for _, m := range req.Messages {
				if m.Role == "tool" {
					results++
				}
			}
			switch {
			case req.Model == "namer":
				harness.Say(w, req.Model, core("title")+" and what follows")
			case req.Model == "caller" && results == 0:
				harness.CallTool(w, req.Model, "call_"+core("id"), "varies", `{"name":"V_`+core("variable")+`"}`)
			case req.Model == "caller":
				harness.CallTool(w, req.Model, "call_2", "set_value", `{"key":"`+core("approval")+`","value":{"v":"`+core("approval")+`"}}`)
			default:
				harness.Say(w, req.Model, "heard")
			}
		})
		DeferCleanup(provider.Close)
		tool := harness.CodeTool(ns, "varies", varies, map[string]any{"name": map[string]any{"type": "string"}})
		calls := harness.Prompt(ns, "caller", "caller", "builtin:kv", "varies")
		calls.Spec.Tools[0].RequiresApproval = true
		for _, name := range []string{"caller", "namer", "talker"} {
			model := harness.OpenAI(ns, name, provider.URL, "")
			model.Spec.Model = name // as the provider knows it
			create(ctx, model)
		}
		create(ctx, tool, calls, harness.Agent(ns, "caller", "caller"),
			harness.Prompt(ns, "talker", "talker", "varies"),
			harness.Agent(ns, "talker", "talker", func(a *skeinv1.AgentSpec) {
				a.TitlePolicy, a.TitleModelRef = skeinv1.TitleAuto, &skeinv1.LocalRef{Name: "namer"}
			}),
			harness.Handler(ns, "breaker", breaks, nil),
			harness.NewThread(ns, "caller", "caller"), harness.NewThread(ns, "talker", "talker"), harness.NewThread(ns, "breaker", "breaker"))
		caller, talker, breaker := ready(ctx, cluster.Thread(ns, "caller")), ready(ctx, cluster.Thread(ns, "talker")), ready(ctx, cluster.Thread(ns, "breaker"))

		By("a call with an id of the provider, which sets a variable, and one that waits for approval")
		Expect(caller.Say(ctx, "go")).To(Succeed())
		Expect(awaiting(ctx, conversation(caller), 1)[0].Arguments).To(ContainSubstring(core("approval")))
		Expect(conversation(caller).Env(ctx, "V_"+core("variable"))).To(Equal("plain"))

		By("a call that waits for the run, and one that begins a run")
		arguments := map[string]any{"name": "Q_" + core("queued")}
		Expect(conversation(caller).QueueTool(ctx, "varies", arguments)).To(Succeed())
		Expect(conversation(talker).QueueTool(ctx, "varies", arguments)).To(Succeed())
		settled(ctx, talker, 1)
		Expect(conversation(talker).Env(ctx, "Q_"+core("queued"))).To(Equal("plain"))

		By("a title that a model writes")
		say(ctx, talker, 2, "one")
		say(ctx, talker, 3, "two")
		Eventually(ctx, conversation(talker).Get).Should(HaveField("Title", HavePrefix(core("title"))))

		By("state of a thread, and an error of a handler")
		say(ctx, breaker, 1, core("state"))
		_, kept, err := conversation(breaker).StateValue(ctx, core("state"))
		Expect(err).NotTo(HaveOccurred())
		Expect(kept).To(BeTrue())
		say(ctx, breaker, 2, "break "+core("handler"))
		Expect(ended(ctx, breaker).Message).To(ContainSubstring(core("handler")))
		for name, runs := range map[*harness.Thread]int64{talker: 3, breaker: 2} {
			Eventually(ctx, func(g Gomega) { // what the runs have said of themselves
				o, err := name.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(ptr.Deref(o.Status.Usage, skeinv1.UsageStatus{}).Runs).To(Equal(runs))
			}).Should(Succeed())
		}

		c.quiet(ctx, ns)
		var said []string
		for _, t := range []*harness.Thread{caller, talker, breaker} {
			said = append(said, texts(must(t.Messages(ctx)))...)
		}
		Expect(slices.ContainsFunc(said, func(text string) bool { return len(c.in(text)) > 0 })).To(BeTrue(), "the search does find them")
	}, SpecTimeout(4*time.Minute))
})
