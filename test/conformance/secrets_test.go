package conformance

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// overlay builds an installation of config/persistent with a component, as users write it.
func overlay(ctx context.Context, component string) string {
	GinkgoHelper()
	dir, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	config, err := filepath.Rel(dir, filepath.Join(harness.Root(), "config"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: ["+config+"/persistent]\ncomponents: ["+config+"/"+component+"]\n"), 0o600)).To(Succeed())
	installed, err := cluster.Kubectl(ctx, "kustomize", dir)
	Expect(err).NotTo(HaveOccurred())
	return installed
}

var _ = Describe("A manager without the right to the Secrets of all namespaces", Serial, Label("K8S-13"), func() {
	It("says of each object that names one what to bind, and goes on once that is bound", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		installed := overlay(ctx, "bound-secrets")
		Expect(installed).To(ContainSubstring("- --secrets-by-binding"))
		installRights(ctx, installed)
		for _, namespace := range []string{ns, other, "kube-system", ""} {
			for _, verb := range []string{"get", "list", "watch", "create", "patch"} {
				Expect(managerMay(ctx, verb, "secrets", namespace)).To(BeFalse(), "%s secrets in %q", verb, namespace)
			}
		}
		log := &lines{}
		running := startInstalled(ctx, log, "--secrets-by-binding", "--tool-private-hosts=127.0.0.1")

		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, _ harness.ChatRequest) {
			harness.Say(w, "test-model", "the key fits")
		})
		DeferCleanup(server.Close)
		model := harness.OpenAI(ns, "model", server.URL+"/v1", "key")
		astray := harness.OpenAI(ns, "astray", server.URL+"/v1", "nowhere")
		tool := harness.HTTPTool(ns, "orders", skeinv1.HTTPTool{URL: server.URL, Auth: &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{SecretKeyRef: refOf("key", "apiKey")}}}, nil)
		webhook := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
			URL: newEar().URL, Events: []skeinv1.WebhookEvent{"run.ended"}, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}}}
		agent := harness.Agent(ns, "agent", "prompt", func(a *skeinv1.AgentSpec) { a.Env = []skeinv1.EnvVar{secretVar("TOKEN", "key", "apiKey")} })
		create(ctx, gatewayKeys(ns), secretOf(ns, "key", nil, map[string]string{"apiKey": "the-key-of-the-model"}),
			secretOf(ns, "labelled", map[string]string{skeinv1.LabelEnvScope: skeinv1.EnvScopeInstance}, map[string]string{"LABELLED": "of-a-secret"}),
			model, astray, tool, webhook, agent, harness.Prompt(ns, "prompt", "model"),
			harness.NewThread(ns, "thread", "agent"),
			harness.NewThread(ns, "variable", "agent", func(t *skeinv1.ThreadSpec) { t.Env = []skeinv1.EnvVar{secretVar("TOKEN", "key", "apiKey")} }))

		const command = "kubectl create rolebinding skein-secret-reader --namespace="
		named := map[client.Object]func() []metav1.Condition{
			model:   func() []metav1.Condition { return model.Status.Conditions },
			astray:  func() []metav1.Condition { return astray.Status.Conditions },
			tool:    func() []metav1.Condition { return tool.Status.Conditions },
			webhook: func() []metav1.Condition { return webhook.Status.Conditions },
			agent:   func() []metav1.Condition { return agent.Status.Conditions },
		}
		variable := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "variable"}}
		named[variable] = func() []metav1.Condition { return variable.Status.Conditions }
		of := func(o client.Object, matches OmegaMatcher) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				g.Expect(named[o]()).To(ContainElement(matches))
			}).Should(Succeed(), "%T %s", o, o.GetName())
		}
		for o := range named {
			of(o, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonSecretForbidden),
				HaveField("Message", ContainSubstring(command+ns+" --clusterrole=skein-secret-reader --serviceaccount=skein-system:skein-manager"))))
		}
		elsewhere := converse(ctx, other, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(last(say(ctx, elsewhere, 1, "hello"))).NotTo(BeEmpty(), "what needs no Secret works")
		t := cluster.Thread(ns, "thread")
		Eventually(ctx, func() error { return t.Say(ctx, "does the key fit?") }).Should(Succeed())

		var message string
		for _, c := range named[model]() {
			if c.Type == skeinv1.ConditionReady {
				_, message, _ = strings.Cut(c.Message, "kubectl ")
			}
		}
		_, err := cluster.Kubectl(ctx, strings.Fields(message)...)
		Expect(err).NotTo(HaveOccurred(), "the command of the condition")
		for o := range named {
			if o == client.Object(astray) {
				of(o, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`"nowhere"`))))
				continue
			}
			of(o, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		}
		Expect(last(settled(ctx, t, 1))).To(Equal("the key fits"), "the message that waited")
		_, keys := server.Requests()
		Expect(keys).To(HaveEach(ContainSubstring("the-key-of-the-model")))
		Eventually(ctx, func() (string, error) { return cluster.Plugin(ctx, "-n", ns, "env", "list", "thread") }).Should(ContainSubstring("LABELLED"))

		Expect(cluster.Client.Delete(ctx, secretOf(ns, "key", nil, nil))).To(Succeed())
		of(model, condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound))
		Expect(managerMay(ctx, "get", "secrets", other)).To(BeFalse())
		Expect(running.Running()).To(BeTrue())
		var refused []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "secrets") && strings.Contains(line, "is forbidden") {
				refused = append(refused, line)
			}
		}
		Expect(refused).To(BeEmpty(), "it asks before it reads, and watches nothing in vain")
	}, SpecTimeout(5*patience))
})
