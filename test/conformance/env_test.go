package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/test/harness"
)

// envTool is code that reads and sets variables. Values come back reversed: so they are no secret that is known.
func envTool(ns string) *skeinv1.Tool {
	return harness.CodeTool(ns, "env", `
import { defineTool } from '@standardagents/builder';
export default defineTool({
  description: 'variables',
  execute: async (state, { op, name, value, type }) => {
    switch (op) {
      case 'get': return { status: 'success', result: [...(await state.env(name))].reverse().join('') };
      case 'type': return { status: 'success', result: await state.envType(name) };
      case 'set': await state.setEnv(name, [...value].reverse().join(''), type ? { type } : undefined); return { status: 'success', result: 'set' };
    }
  },
});`, map[string]any{"op": map[string]any{"type": "string"}, "name": map[string]any{"type": "string"}, "value": map[string]any{"type": "string"}, "type": map[string]any{"type": "string"}})
}

func reversed(s string) string {
	r := []rune(s)
	for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
		r[i], r[j] = r[j], r[i]
	}
	return string(r)
}

// withEnv calls the tool of envTool and gives its result, or its error.
func withEnv(ctx context.Context, t *runtimeclient.Thread, args map[string]any) string {
	GinkgoHelper()
	res, err := t.InvokeTool(ctx, "env", args)
	Expect(err).NotTo(HaveOccurred())
	if res.Status != "success" {
		return "error: " + res.Error
	}
	return res.Result
}

// inCode gives what state.env gives to code.
func inCode(ctx context.Context, t *runtimeclient.Thread, name string) string {
	GinkgoHelper()
	return reversed(withEnv(ctx, t, map[string]any{"op": "get", "name": name}))
}

func secretOf(ns, name string, labels map[string]string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, StringData: data}
}

func textVar(name, value string) skeinv1.EnvVar {
	return skeinv1.EnvVar{Name: name, Value: &value, Type: skeinv1.EnvText}
}

func secretVar(name, secret, key string) skeinv1.EnvVar {
	return skeinv1.EnvVar{Name: name, ValueFrom: &skeinv1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}}
}

// eachEnv declares a thread of an agent with the env tool.
func eachEnv(ctx context.Context, ns string, agent, prompt []skeinv1.EnvVar, edit ...func(*skeinv1.ThreadSpec)) *runtimeclient.Thread {
	GinkgoHelper()
	p := harness.Prompt(ns, "prompt", "model", "env")
	p.Spec.Env = prompt
	create(ctx, harness.Scripted(ns, "model", harness.Echo()), envTool(ns), p,
		harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.Env = agent }),
		harness.NewThread(ns, "thread", "agent", edit...))
	return conversation(ready(ctx, cluster.Thread(ns, "thread")))
}

var _ = Describe("Variables", func() {
	It("come from the thread, the user, the instance, the agent, the prompt, in this order", Label("ENV-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		const user = "Ada <ada@example.com>" // no value of a label
		create(ctx,
			secretOf(ns, "of-ada", map[string]string{skeinv1.LabelEnvScope: "user", skeinv1.LabelUser: skeinv1.UserLabel(user)},
				map[string]string{"A": "user-a", "B": "user-b"}),
			secretOf(ns, "of-eve", map[string]string{skeinv1.LabelEnvScope: "user", skeinv1.LabelUser: "eve"},
				map[string]string{"B": "eve-b", "EVE": "eve-only"}),
			secretOf(ns, "unlabelled", nil, map[string]string{"HIDDEN": "not-for-threads"}),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "instance", Labels: map[string]string{skeinv1.LabelEnvScope: "instance"}},
				Data: map[string]string{"A": "instance-a", "B": "instance-b", "C": "instance-c", "not-a-name": "x"}})
		t := eachEnv(ctx, ns,
			[]skeinv1.EnvVar{textVar("A", "agent-a"), textVar("B", "agent-b"), textVar("C", "agent-c"), textVar("D", "agent-d")},
			[]skeinv1.EnvVar{textVar("A", "prompt-a"), textVar("B", "prompt-b"), textVar("C", "prompt-c"), textVar("D", "prompt-d"), textVar("E", "prompt-e")},
			func(s *skeinv1.ThreadSpec) { s.UserID, s.Env = user, []skeinv1.EnvVar{textVar("A", "thread-a")} })
		for name, want := range map[string]string{"A": "thread-a", "B": "user-b", "C": "instance-c", "D": "agent-d", "E": "prompt-e"} {
			Expect(inCode(ctx, t, name)).To(Equal(want))
		}
		for _, name := range []string{"NONE", "EVE", "HIDDEN"} {
			Expect(withEnv(ctx, t, map[string]any{"op": "get", "name": name})).To(And(HavePrefix("error: "), ContainSubstring("no such variable: "+name)))
			_, err := t.Env(ctx, name)
			Expect(err).To(MatchError(runtimeclient.ErrEnvUnknown))
		}
		list, err := t.ListEnv(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		var shown []string
		for _, v := range list.Variables {
			shown = append(shown, fmt.Sprint(v.Name, " ", v.Type, " ", v.Source, " ", ptr.Deref(v.Value, "-")))
		}
		Expect(shown).To(Equal([]string{"A text thread thread-a", "B secret user -", "C text instance instance-c", "D text agent agent-d", "E text prompt prompt-e"}))
		page, err := t.ListEnv(ctx, runtimeclient.Page{Limit: 2, Offset: 3})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Variables).To(HaveLen(2))
		Expect(page.HasMore).To(BeFalse())

		By("changing a Secret, without a restart")
		changed := secretOf(ns, "of-ada", map[string]string{skeinv1.LabelEnvScope: "user", skeinv1.LabelUser: skeinv1.UserLabel(user)}, map[string]string{"B": "user-b2", "C": "user-c"})
		Expect(cluster.Client.Update(ctx, changed)).To(Succeed())
		Eventually(ctx, func() string { return inCode(ctx, t, "C") }).Should(Equal("user-c"))
		Expect(inCode(ctx, t, "B")).To(Equal("user-b2"))
	}, SpecTimeout(5*time.Minute))

	It("are secret unless said otherwise, and keep their type", Label("ENV-02"), func(ctx SpecContext) {
		t := eachEnv(ctx, namespace(ctx), nil, nil)
		Expect(withEnv(ctx, t, map[string]any{"op": "type", "name": "NEW"})).To(Equal("secret"))
		Expect(withEnv(ctx, t, map[string]any{"op": "set", "name": "NEW", "value": reversed("of-code")})).To(Equal("set"))
		Expect(t.EnvType(ctx, "NEW")).To(Equal("secret"))
		_, err := t.Env(ctx, "NEW")
		Expect(err).To(MatchError(runtimeclient.ErrEnvSecret))
		Expect(inCode(ctx, t, "NEW")).To(Equal("of-code"))

		Expect(withEnv(ctx, t, map[string]any{"op": "set", "name": "LABEL", "value": "AQ", "type": "text"})).To(Equal("set"))
		Expect(t.Env(ctx, "LABEL")).To(Equal("QA"))
		Expect(t.SetEnv(ctx, "LABEL", "by-client", "")).To(Succeed())
		Expect(t.Env(ctx, "LABEL")).To(Equal("by-client"), "still a text")
		Expect(withEnv(ctx, t, map[string]any{"op": "type", "name": "LABEL"})).To(Equal("text"))
		Expect(t.SetEnv(ctx, "LABEL", "now-secret", "secret")).To(Succeed())
		Expect(t.SetEnv(ctx, "LABEL", "still-secret", "")).To(Succeed())
		Expect(t.EnvType(ctx, "LABEL")).To(Equal("secret"))
		Expect(t.UnsetEnv(ctx, "LABEL")).To(BeTrue())
		Expect(t.UnsetEnv(ctx, "LABEL")).To(BeFalse())
		for name, want := range map[string]string{"1BAD": "name", "pending": "name"} {
			err := t.SetEnv(ctx, name, "v", "")
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(want)))
		}
		Expect(t.SetEnv(ctx, "A", "v", "loud")).To(MatchError(ContainSubstring("type")))
		Expect(t.SetEnv(ctx, "A", strings.Repeat("x", 32<<10+1), "")).To(MatchError(ContainSubstring("32768")))
	}, SpecTimeout(5*time.Minute))

	It("reach active descendants, but not where they are scoped", Label("ENV-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		sub := func(name, agent string) skeinv1.AgentSubagent {
			return skeinv1.AgentSubagent{Name: name, AgentRef: skeinv1.LocalRef{Name: agent}, Description: "d", Resumable: true}
		}
		start := func(name string) skeinv1.ScriptStep {
			return harness.On("start "+name, harness.Calls("subagent_create", map[string]any{"agent": name, "message": "hello", "name": name}))
		}
		create(ctx, envTool(ns),
			harness.Scripted(ns, "model", start("plain"), start("scoping"), start("below"), harness.After("subagent_create", harness.Answer("started")), harness.Echo()),
			harness.Prompt(ns, "prompt", "model", "env", "builtin:subagents"),
			harness.Agent(ns, "root", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{sub("plain", "plain"), sub("scoping", "scoping")}
			}),
			harness.Agent(ns, "plain", "prompt"),
			harness.Agent(ns, "scoping", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents, s.Env = []skeinv1.AgentSubagent{sub("below", "plain")}, []skeinv1.EnvVar{{Name: "OWN", Scoped: true}}
			}),
			harness.NewThread(ns, "thread", "root"))
		rootThread := ready(ctx, cluster.Thread(ns, "thread"))
		root := conversation(rootThread)
		Expect(root.SetEnv(ctx, "BEFORE", "before", "text")).To(Succeed())
		Expect(root.SetEnv(ctx, "OWN", "of-root", "text")).To(Succeed())
		child := func(of *harness.Thread, kind string) *harness.Thread {
			GinkgoHelper()
			Expect(of.Say(ctx, "start "+kind)).To(Succeed())
			var name string
			Eventually(ctx, func(g Gomega) {
				o, err := of.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				for _, c := range o.Status.Children {
					if c.Name == kind {
						name = c.ThreadName
					}
				}
				g.Expect(name).NotTo(BeEmpty())
			}).Should(Succeed())
			return ready(ctx, cluster.Thread(ns, name))
		}
		plainThread, scopingThread := child(rootThread, "plain"), child(rootThread, "scoping")
		plain, scoping := conversation(plainThread), conversation(scopingThread)
		below := conversation(child(scopingThread, "below"))

		sees := func(t *runtimeclient.Thread, name string) string {
			GinkgoHelper()
			v, err := t.Env(ctx, name)
			if err != nil {
				Expect(err).To(MatchError(runtimeclient.ErrEnvUnknown))
			}
			return v
		}
		Expect([]string{sees(plain, "BEFORE"), sees(scoping, "BEFORE"), sees(below, "BEFORE")}).To(HaveEach("before"))
		Expect(sees(plain, "OWN")).To(Equal("of-root"))
		Expect(sees(scoping, "OWN")).To(BeEmpty(), "not inherited at its creation")

		Expect(root.SetEnv(ctx, "OWN", "again", "")).To(Succeed())
		Expect(sees(plain, "OWN")).To(Equal("again"))
		Expect(sees(scoping, "OWN")).To(BeEmpty(), "not inherited later")
		Expect(sees(below, "OWN")).To(BeEmpty(), "nor past it")
		Expect(scoping.SetEnv(ctx, "OWN", "of-scoping", "text")).To(Succeed())
		Expect(sees(below, "OWN")).To(Equal("of-scoping"), "inherited by its own descendants")
		Expect(sees(root, "OWN")).To(Equal("again"))

		Expect(plain.Terminate(ctx)).To(Succeed())
		Expect(root.SetEnv(ctx, "BEFORE", "after", "")).To(Succeed())
		Expect(sees(plain, "BEFORE")).To(Equal("before"), "terminated ones are skipped")
		Expect([]string{sees(scoping, "BEFORE"), sees(below, "BEFORE")}).To(HaveEach("after"))
	}, SpecTimeout(5*time.Minute))

	It("come from Secrets and ConfigMaps, and are sealed at rest under keys that change", Label("ENV-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, secretOf(ns, "creds", nil, map[string]string{"token": "spec-token-1", "agent": "agent-token-1"}),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, Data: map[string]string{"region": "north"}})
		th := eachEnv(ctx, ns, []skeinv1.EnvVar{secretVar("AGENT_TOKEN", "creds", "agent")}, nil, func(s *skeinv1.ThreadSpec) {
			s.Env = []skeinv1.EnvVar{secretVar("TOKEN", "creds", "token"), {Name: "REGION", Type: skeinv1.EnvText, ValueFrom: &skeinv1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "region"}}}}
		})
		Expect(inCode(ctx, th, "TOKEN")).To(Equal("spec-token-1"))
		Expect(inCode(ctx, th, "AGENT_TOKEN")).To(Equal("agent-token-1"))
		Expect(th.Env(ctx, "REGION")).To(Equal("north"))

		Expect(cluster.Client.Update(ctx, secretOf(ns, "creds", nil, map[string]string{"token": "spec-token-2", "agent": "agent-token-2"}))).To(Succeed())
		Eventually(ctx, func() string { return inCode(ctx, th, "TOKEN") }).Should(Equal("spec-token-2"))
		Eventually(ctx, func() string { return inCode(ctx, th, "AGENT_TOKEN") }).Should(Equal("agent-token-2"))
		Expect(th.SetEnv(ctx, "TOKEN", "set-token-3", "")).To(Succeed())
		Expect(inCode(ctx, th, "TOKEN")).To(Equal("set-token-3"), "set wins until the entry changes")

		By("looking at the database's bytes")
		stored(func(path string, data []byte) {
			for _, value := range []string{"spec-token-", "agent-token-", "set-token-"} {
				Expect(bytes.Contains(data, []byte(value))).To(BeFalse(), "%s has %s", path, value)
			}
		})

		By("rotating the key")
		old, before := keyIDs(ctx), managerLog()
		out, err := cluster.Plugin(ctx, "env", "rotate")
		Expect(err).NotTo(HaveOccurred(), out)
		keys := keyIDs(ctx)
		Expect(keys).To(HaveLen(len(old) + 1))
		fresh := keys[slices.IndexFunc(keys, func(id uint32) bool { return !slices.Contains(old, id) })]
		Eventually(ctx, func() bool { // BeTrue: the log is long
			for line := range bytes.Lines(managerLog()[len(before):]) {
				if bytes.Contains(line, []byte("none remains under another")) && bytes.Contains(line, []byte(fmt.Sprint(fresh))) {
					return true
				}
			}
			return false
		}).WithTimeout(4 * time.Minute).Should(BeTrue())
		Expect(inCode(ctx, th, "TOKEN")).To(Equal("set-token-3"))
		out, err = cluster.Plugin(ctx, "env", "rotate", "--prune") // what the manager holds is the new key alone from its next start on
		Expect(err).NotTo(HaveOccurred(), out)
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := th.EnvType(ctx, "TOKEN"); return err }).Should(Succeed())
		Expect(inCode(ctx, th, "TOKEN")).To(Equal("set-token-3"), "with the new key alone")
	}, SpecTimeout(10*time.Minute))

	It("that are required and missing keep a child waiting until they are set", Label("ENV-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, envTool(ns),
			harness.Scripted(ns, "parent", harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "worker", "message": "work", "name": "W"})),
				harness.After("subagent_create", harness.Answer("the child said: {{ .Last.Content }}"))),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{{Name: "worker", AgentRef: skeinv1.LocalRef{Name: "worker"}, Description: "d", Blocking: true, Resumable: true}}
			}),
			harness.Scripted(ns, "worker", harness.On("work", harness.Answer("worked"))),
			harness.Prompt(ns, "worker", "worker", "env"),
			harness.Agent(ns, "worker", "worker", func(s *skeinv1.AgentSpec) {
				s.Env = []skeinv1.EnvVar{{Name: "API_KEY", Scoped: true, Required: true}, {Name: "REGION", Scoped: true, Required: true, Type: skeinv1.EnvText}}
			}),
			harness.NewThread(ns, "thread", "parent"))
		parent := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(conversation(parent).SetEnv(ctx, "API_KEY", "of-the-parent", "")).To(Succeed())
		Expect(parent.Say(ctx, "go")).To(Succeed())
		var childThread *harness.Thread
		Eventually(ctx, func(g Gomega) {
			o, err := parent.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Children).To(HaveLen(1))
			childThread = cluster.Thread(ns, o.Status.Children[0].ThreadName)
			c, err := childThread.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonEnvMissing),
				HaveField("Message", And(ContainSubstring("API_KEY"), ContainSubstring("REGION"))))))
			g.Expect(c.Status.Phase).To(Equal("Waiting"))
		}).Should(Succeed())
		child := conversation(childThread)
		pending := func() (names []string) {
			GinkgoHelper()
			req, err := child.PendingEnv(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, v := range req.Variables {
				names = append(names, v.Name+" "+v.Type)
			}
			return names
		}
		Expect(pending()).To(Equal([]string{"API_KEY secret", "REGION text"}))

		manager.Kill() // it waits durably
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := child.PendingEnv(ctx); return err }).Should(Succeed(), "the API is reached again")
		Eventually(ctx, pending).Should(Equal([]string{"API_KEY secret", "REGION text"}))
		Expect(child.SetEnv(ctx, "API_KEY", "of-the-child", "")).To(Succeed())
		Eventually(ctx, pending).Should(Equal([]string{"REGION text"}))
		ms, err := childThread.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, m := range ms {
			Expect(m.Role).NotTo(Equal(runtimev1.RoleAssistant), "it has not run")
		}

		By("giving the last one by a Secret of the instance")
		create(ctx, secretOf(ns, "instance", map[string]string{skeinv1.LabelEnvScope: "instance"}, map[string]string{"REGION": "north"}))
		Expect(last(settled(ctx, parent, 1))).To(And(HavePrefix("the child said: "), ContainSubstring("worked")))
		Expect(pending()).To(BeEmpty())
	}, SpecTimeout(5*time.Minute))

	It("from a Secret are never shown, also when a Thread declares them as text", Label("ENV-03", "ENV-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		v := secretVar("KEY", "vault", "k")
		v.Type = skeinv1.EnvText
		create(ctx, secretOf(ns, "vault", nil, map[string]string{"k": "hunter2-canary"}))
		t := eachEnv(ctx, ns, nil, nil, func(s *skeinv1.ThreadSpec) { s.Env = []skeinv1.EnvVar{v} })
		list, err := t.ListEnv(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Variables).To(ConsistOf(And(HaveField("Name", "KEY"), HaveField("Type", "secret"), HaveField("Value", BeNil()))))
		Expect(inCode(ctx, t, "KEY")).To(Equal("hunter2-canary"), "code has it")
		Expect(withEnv(ctx, t, map[string]any{"op": "get", "name": "KEY"})).NotTo(ContainSubstring("hunter2"))
	}, SpecTimeout(2*time.Minute))
})

// managerLog is what the manager has logged since the suite began.
func managerLog() []byte {
	GinkgoHelper()
	log, err := os.ReadFile(logFile.Name())
	Expect(err).NotTo(HaveOccurred())
	return log
}

// keyIDs lists the keys by which variables are sealed.
func keyIDs(ctx context.Context) []uint32 {
	GinkgoHelper()
	var s corev1.Secret
	Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: "skein-system", Name: envkeys.DefaultSecret}, &s)).To(Succeed())
	ids, _, err := envkeys.IDs(s.Data[envkeys.SecretKey])
	Expect(err).NotTo(HaveOccurred())
	return ids
}
