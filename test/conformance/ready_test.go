package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/test/harness"
	"github.com/skein-dev/skein/test/health"
)

const defines = "import { defineTool, defineEffect, defineHook } from '@standardagents/builder';\nimport { z } from 'zod';\n"

// becomes waits until the Ready condition of a Tool has a status, a reason and a message.
func becomes(ctx context.Context, t *skeinv1.Tool, status metav1.ConditionStatus, reason string, says ...string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, key(t), t)).To(Succeed())
		g.Expect(t.Status.ObservedGeneration).To(Equal(t.Generation))
		c := And(condition(skeinv1.ConditionReady, status, reason))
		for _, s := range says {
			c = And(c, HaveField("Message", ContainSubstring(s)))
		}
		g.Expect(t.Status.Conditions).To(ContainElement(c))
	}).Should(Succeed())
}

var _ = Describe("Ready", func() {
	DescribeTable("is not said of code that could not run", Label("TOL-02", "K8S-01"), func(ctx SpecContext, source string, says ...string) {
		t := harness.CodeTool(namespace(ctx), "tool", source, nil)
		create(ctx, t)
		becomes(ctx, t, metav1.ConditionFalse, skeinv1.ReasonInvalidCode, says...)
		Expect(t.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionStalled, metav1.ConditionTrue, skeinv1.ReasonInvalidCode)))
		t.Spec.Code.Inline = defines + "export default defineTool({ args: z.object({}), execute: async () => 'done' });"
		Expect(cluster.Client.Update(ctx, t)).To(Succeed())
		becomes(ctx, t, metav1.ConditionTrue, skeinv1.ReasonReady)
		Expect(t.Status.Conditions).NotTo(ContainElement(HaveField("Type", skeinv1.ConditionStalled)))
	},
		Entry("a file beside it", defines+"import { read } from '../lib/files';\nexport default defineTool({ args: { a: z.string() }, execute: read });", "tool.ts:3:22", "../lib/files", "npx esbuild", SpecTimeout(2*patience)),
		Entry("a package", defines+"import { nanoid } from 'nanoid';\nexport default defineTool({ args: { a: z.string() }, execute: async () => nanoid() });", "nanoid is not available in sandboxes", SpecTimeout(2*patience)),
		Entry("no default export", defines+"export const tool = defineTool({ args: { a: z.string() }, execute: async () => 1 });", "no default export", SpecTimeout(2*patience)),
		Entry("defineTool not imported", "export default defineTool({ execute: async () => 1 });", "add import { defineTool } from '@standardagents/builder'", SpecTimeout(2*patience)),
		Entry("an effect in a Tool", defines+"export default defineEffect({ args: { a: z.string() }, execute: async () => {} });", "an effect (defineEffect)", SpecTimeout(2*patience)),
	)

	It("is not said of an Effect, an endpoint, a hook or a handler whose code could not run", Label("TOL-02", "EFF-01", "END-01", "HOK-01", "AGT-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		wrong := "import { nanoid } from 'nanoid';\nexport default () => nanoid();"
		prompt := harness.Prompt(ns, "prompt", "model")
		prompt.Spec.Hooks = []skeinv1.Hook{{Hook: skeinv1.HookAfterCreateMessage, Code: skeinv1.CodeSource{Inline: wrong}}}
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Effect(ns, "effect", wrong), harness.Endpoint(ns, "endpoint", "/e", wrong), prompt, harness.Handler(ns, "handler", wrong, nil))
		for _, object := range []string{"effect/effect", "threadendpoint/endpoint", "prompt/prompt", "agent/handler"} {
			Eventually(ctx, func() (string, error) {
				return cluster.Kubectl(ctx, "-n", ns, "get", object, "-o", "jsonpath={.status.conditions[?(@.type=='Stalled')].message}")
			}).Should(ContainSubstring("nanoid is not available in sandboxes"), object)
		}
	}, SpecTimeout(2*patience))

	It("is said of twenty Tools at once that could run, and of none of twenty that could not", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var good, wrong []*skeinv1.Tool
		for i := range 20 {
			good = append(good, harness.CodeTool(ns, fmt.Sprintf("good-%d", i), fmt.Sprintf("%sexport default defineTool({ args: z.object({}), execute: async () => %d });", defines, i), nil))
			wrong = append(wrong, harness.CodeTool(ns, fmt.Sprintf("wrong-%d", i), fmt.Sprintf("import x from 'package-%d';\nexport default () => x;", i), nil))
		}
		for i := range good {
			create(ctx, good[i], wrong[i])
		}
		for i := range good {
			becomes(ctx, good[i], metav1.ConditionTrue, skeinv1.ReasonReady)
			becomes(ctx, wrong[i], metav1.ConditionFalse, skeinv1.ReasonInvalidCode, fmt.Sprintf("package-%d", i))
		}
	}, SpecTimeout(3*patience))

	It("is not said of a Tool whose address tools may not reach, until the Namespace opens it", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server, at := elsewhere(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "from within") })
		service := harness.HTTPTool(ns, "service", skeinv1.HTTPTool{URL: "http://orders.shop.svc:8080/orders"}, nil)
		mcp := mcpTool(ns, "mcp", "http://10.9.8.7:8080/mcp")
		own := harness.HTTPTool(ns, "own", skeinv1.HTTPTool{URL: "http://" + at + "/{{ arguments.id }}"}, map[string]any{"id": stringProperty})
		metadata := harness.HTTPTool(ns, "metadata", skeinv1.HTTPTool{URL: "http://169.254.169.254/latest/meta-data"}, nil)
		create(ctx, service, mcp, own, metadata)
		for _, t := range []*skeinv1.Tool{service, mcp, own} {
			becomes(ctx, t, metav1.ConditionFalse, skeinv1.ReasonAddressNotAllowed, outbound.AnnotationPrivateHosts)
			Expect(t.Status.Conditions).NotTo(ContainElement(HaveField("Type", skeinv1.ConditionStalled)), "it heals when the Namespace opens it")
		}
		becomes(ctx, metadata, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden, "metadata")

		annotate := func(value string) {
			GinkgoHelper()
			_, err := cluster.Kubectl(ctx, "annotate", "--overwrite", "namespace", ns, outbound.AnnotationPrivateHosts+"="+value)
			Expect(err).NotTo(HaveOccurred())
		}
		annotate("*.shop.svc https://nonsense")
		becomes(ctx, service, metav1.ConditionTrue, skeinv1.ReasonReady)
		becomes(ctx, mcp, metav1.ConditionFalse, skeinv1.ReasonAddressNotAllowed, "https://nonsense")
		annotate("*.shop.svc, 10.9.8.7:8080, 169.254.169.254, " + at)
		becomes(ctx, mcp, metav1.ConditionTrue, skeinv1.ReasonReady)
		becomes(ctx, metadata, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden)
		if server != nil {
			becomes(ctx, own, metav1.ConditionTrue, skeinv1.ReasonReady)
			t := converse(ctx, ns, []string{"own"}, []skeinv1.ScriptStep{
				harness.On("go", harness.Calls("own", map[string]any{"id": "7"})), harness.After("own", harness.Answer("{{ .Last.Content }}")),
			})
			Expect(last(say(ctx, t, 1, "go"))).To(Equal("from within"))
			annotate("*.shop.svc")
			becomes(ctx, own, metav1.ConditionFalse, skeinv1.ReasonAddressNotAllowed)
			Expect(last(say(ctx, t, 2, "go"))).To(ContainSubstring(outbound.AnnotationPrivateHosts), "it is closed again at once")
		}
	}, SpecTimeout(4*patience))

	It("is not said of a Tool whose address becomes that of one more API server", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		tool := harness.HTTPTool(ns, "tool", skeinv1.HTTPTool{URL: "https://10.9.8.6:6443/version"}, nil)
		create(ctx, tool)
		opened := 0
		open := func() {
			GinkgoHelper()
			opened++ // each change has the address checked again
			_, err := cluster.Kubectl(ctx, "annotate", "--overwrite", "namespace", ns, fmt.Sprintf("%s=10.9.8.6 other-%d.svc", outbound.AnnotationPrivateHosts, opened))
			Expect(err).NotTo(HaveOccurred())
		}
		open()
		becomes(ctx, tool, metav1.ConditionTrue, skeinv1.ReasonReady)
		server := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes-" + ns, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6443)}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.9.8.6"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}},
		}
		Expect(cluster.Client.Create(ctx, server)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Client.Delete(ctx, server)).To(Succeed()) }, NodeTimeout(patience))
		Eventually(ctx, func(g Gomega) {
			open()
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(tool), tool)).To(Succeed())
			g.Expect(meta.FindStatusCondition(tool.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", skeinv1.ReasonAddressForbidden)))
		}).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(2*patience))

	It("is not said of a Model that the manager may not reach, and its errors quote no other service", Label("AGT-06", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + ns}, Spec: corev1.NodeSpec{PodCIDR: "2600:1f00:77::/64", PodCIDRs: []string{"2600:1f00:77::/64"}}}
		create(ctx, node)
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Client.Delete(ctx, node)).To(Succeed()) }, NodeTimeout(patience))
		bare := node.DeepCopy()
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.8.5"}}
		Expect(cluster.Client.Status().Patch(ctx, node, client.MergeFrom(bare))).To(Succeed()) // controllers of nodes write it too
		annotate := func(value string) {
			GinkgoHelper()
			_, err := cluster.Kubectl(ctx, "annotate", "--overwrite", "namespace", ns, outbound.AnnotationPrivateHosts+"="+value)
			Expect(err).NotTo(HaveOccurred())
		}
		model := func(name, endpoint string) *skeinv1.Model {
			GinkgoHelper()
			m := harness.OpenAI(ns, name, endpoint, "")
			create(ctx, m)
			return m
		}
		private, pod, nodes, link := model("private", "http://10.9.8.4/v1"), model("pod", "http://[2600:1f00:77::9]:8000/v1"), model("node", "http://10.9.8.5/v1"), model("link", "http://169.254.169.254/latest")
		public := model("public", "https://8.8.8.8/v1")
		turns := func(m *skeinv1.Model, status metav1.ConditionStatus, reason string, said ...string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
				c := meta.FindStatusCondition(m.Status.Conditions, skeinv1.ConditionReady)
				g.Expect(c).To(HaveValue(And(HaveField("Status", status), HaveField("Reason", reason))), m.Name)
				for _, text := range said {
					g.Expect(c.Message).To(ContainSubstring(text))
				}
			}).Should(Succeed())
		}
		turns(public, metav1.ConditionTrue, skeinv1.ReasonReady)
		turns(private, metav1.ConditionFalse, skeinv1.ReasonAddressNotAllowed, outbound.AnnotationPrivateHosts)
		turns(pod, metav1.ConditionFalse, skeinv1.ReasonAddressNotAllowed, "is not public")
		turns(nodes, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden, "no model may reach")
		turns(link, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden)
		annotate("10.9.8.4,10.9.8.5,2600:1f00:77::9,169.254.169.254")
		turns(private, metav1.ConditionTrue, skeinv1.ReasonReady)
		turns(pod, metav1.ConditionTrue, skeinv1.ReasonReady)
		turns(nodes, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden)
		turns(link, metav1.ConditionFalse, skeinv1.ReasonAddressForbidden)

		By("asking something that is no model")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","message":"the database's password is swordfish"}`))
		}))
		DeferCleanup(server.Close)
		create(ctx, harness.OpenAI(ns, "other", server.URL+"/v1", ""), harness.Prompt(ns, "p", "other"), harness.Agent(ns, "a", "p"), harness.NewThread(ns, "t", "a"))
		t := ready(ctx, cluster.Thread(ns, "t"))
		Expect(t.Say(ctx, "hi")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.LastRun).To(HaveValue(HaveField("Message", And(ContainSubstring("status 403"), Not(ContainSubstring("swordfish"))))))
		}).Should(Succeed())
	}, SpecTimeout(3*patience))

	It("leaves it to the cluster's administrators what a namespace opens", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dev"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "dev"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}})
		Eventually(ctx, func() error {
			_, err := cluster.Kubectl(ctx, "--as=dev", "-n", ns, "create", "configmap", "mine")
			return err
		}).Should(Succeed(), "the role holds by now")
		_, err := cluster.Kubectl(ctx, "--as=dev", "annotate", "namespace", ns, outbound.AnnotationPrivateHosts+"=*.svc")
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	}, SpecTimeout(patience))

	It("is read correctly by kstatus and Argo CD", Label("K8S-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		scripts, err := health.ArgoScripts(harness.Root())
		Expect(err).NotTo(HaveOccurred())
		create(ctx, harness.CodeTool(ns, "wrong", "export default {", nil), harness.CodeTool(ns, "right", "export default () => 1", nil),
			harness.Effect(ns, "later", remind), harness.Endpoint(ns, "report", "/report", "export default () => 'report';"),
			&skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}},
			harness.Agent(ns, "lonely", "nothing"), harness.NewThread(ns, "waiting", "nobody"))
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "hi")
		for _, want := range []struct{ kind, name, kstatus, argo string }{
			{"Tool", "wrong", health.Failed, "Degraded"},
			{"Tool", "right", health.Current, "Healthy"},
			{"Effect", "later", health.Current, "Healthy"},
			{"ThreadEndpoint", "report", health.Current, "Healthy"},
			{"SandboxPool", "default", health.Current, "Healthy"},
			{"Agent", "lonely", health.InProgress, "Progressing"},
			{"Agent", "agent", health.Current, "Healthy"},
			{"Prompt", "prompt", health.Current, "Healthy"},
			{"Model", "model", health.Current, "Healthy"},
			{"Thread", "waiting", health.InProgress, "Progressing"},
			{"Thread", "thread", health.Current, "Healthy"},
		} {
			Eventually(ctx, func(g Gomega) {
				o := &unstructured.Unstructured{}
				o.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(want.kind))
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: want.name}, o)).To(Succeed())
				verdict, message := health.KStatus(o)
				g.Expect(verdict).To(Equal(want.kstatus), message)
				status, message, err := health.Argo(scripts[health.ArgoKey(o)], o)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(status).To(Equal(want.argo), message)
			}).Should(Succeed(), want.kind+" "+want.name)
		}
	}, SpecTimeout(3*patience))

	It("is in progress for kstatus before any controller has seen a new object", Label("K8S-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		created, err := cluster.KubectlIn(ctx, "apiVersion: skein.dev/v1alpha1\nkind: Agent\nmetadata: {name: new, namespace: "+ns+"}\nspec: {sideA: {promptRef: {name: p}}}\n", "create", "--dry-run=server", "-o", "json", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		o := &unstructured.Unstructured{}
		Expect(o.UnmarshalJSON([]byte(created))).To(Succeed())
		verdict, _ := health.KStatus(o)
		Expect(verdict).To(Equal(health.InProgress), created)
	}, SpecTimeout(patience))

	It("goes to Argo CD by a ConfigMap that leaves the rest of it as it is", Label("K8S-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "argocd-cm"}, Data: map[string]string{"url": "https://argocd.example.com"}})
		_, err := cluster.Kubectl(ctx, "apply", "--server-side", "-n", ns, "-k", harness.Root()+"/config/argocd")
		Expect(err).NotTo(HaveOccurred())
		var m corev1.ConfigMap
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "argocd-cm"}, &m)).To(Succeed())
		scripts, err := health.ArgoScripts(harness.Root())
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Data).To(HaveKeyWithValue("url", "https://argocd.example.com"))
		for k, script := range scripts {
			Expect(m.Data).To(HaveKeyWithValue(k, script))
		}
	}, SpecTimeout(patience))

	It("refuses changes of a Thread that would do nothing, and takes manifests that are applied again", Label("K8S-02", "K8S-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		manifest := func(more string) string {
			return "apiVersion: skein.dev/v1alpha1\nkind: Thread\nmetadata: {name: thread, namespace: " + ns + "}\nspec: {agentRef: {name: agent}" + more + "}\n"
		}
		apply := func(more string) error {
			_, err := cluster.KubectlIn(ctx, manifest(more), "apply", "--server-side", "-f", "-")
			return err
		}
		Expect(apply(", message: Hello, taskID: t-1")).To(Succeed())
		ms := settled(ctx, cluster.Thread(ns, "thread"), 1)
		Expect(apply(", message: Hello, taskID: t-1")).To(Succeed(), "as GitOps tools do")
		Expect(apply(", message: Good-bye, taskID: t-1")).To(MatchError(And(ContainSubstring("message is queued once"), ContainSubstring("kubectl skein send"))))
		Expect(apply(", message: Hello, taskID: t-2")).To(MatchError(ContainSubstring("taskID is fixed")))
		Expect(apply(", message: Hello")).To(MatchError(ContainSubstring("taskID is fixed")))
		Expect(apply(", taskID: t-1")).To(Succeed(), "a message that was said may leave the manifest")
		Expect(apply(", message: Hello again, taskID: t-1")).To(MatchError(ContainSubstring("message is queued once")))
		Expect(cluster.Thread(ns, "thread").Messages(ctx)).To(HaveLen(len(ms)), "nothing was said again")
	}, SpecTimeout(2*patience))
})

// elsewhere is a server at an address of this machine that is neither public nor a loopback one; nil, and an unused
// address, where the machine has none.
func elsewhere(answer http.HandlerFunc) (*httptest.Server, string) {
	GinkgoHelper()
	addresses, err := net.InterfaceAddrs()
	Expect(err).NotTo(HaveOccurred())
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || outbound.Public(p.Addr()) || outbound.Closed(p.Addr()) {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(p.Addr().String(), "0"))
		Expect(err).NotTo(HaveOccurred())
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: answer}}
		s.Start()
		DeferCleanup(s.Close)
		return s, l.Addr().String()
	}
	return nil, "10.9.8.6:8080"
}
