package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Ready", func() {
	It("waits for the SandboxPool that code needs, and says how to make it", Label("COD-09", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "six", "export default () => '42'", nil),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("six", map[string]any{})), harness.After("six", harness.Answer("it is {{ .Last.Content }}"))),
			harness.Prompt(ns, "prompt", "model", "six"), harness.Agent(ns, "agent", "prompt"),
			harness.NewThread(ns, "thread", "agent", func(s *skeinv1.ThreadSpec) { s.Message = "go" }))
		t := cluster.Thread(ns, "thread")
		var message string
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			c := meta.FindStatusCondition(o.Status.Conditions, skeinv1.ConditionReady)
			g.Expect(c).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("| kubectl apply -f -")))))
			g.Expect(meta.FindStatusCondition(o.Status.Conditions, skeinv1.ConditionStalled)).To(BeNil())
			message = c.Message
		}).Should(Succeed())
		Expect(t.Runs(ctx)).To(BeEmpty(), "the message waits")
		// What the message says to pipe into kubectl apply.
		manifest := message[strings.Index(message, "echo '")+len("echo '") : strings.Index(message, "' | kubectl apply -f -")]
		_, err := cluster.KubectlIn(ctx, manifest, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		ms := settled(ctx, t, 1)
		Expect(ms[len(ms)-1].Content).To(HaveValue(Equal("it is 42")))
	}, SpecTimeout(12*time.Minute))

	It("is said of a tool of the cluster when its Namespace opens it, and never of the API server", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		neighbour := probePod(ns, "neighbour", "serve")
		neighbour.Labels = map[string]string{"app": "neighbour"}
		create(ctx, neighbour, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "neighbour"},
			Spec: corev1.ServiceSpec{Selector: neighbour.Labels, Ports: []corev1.ServicePort{{Port: 8080}}}})
		service := harness.HTTPTool(ns, "service", skeinv1.HTTPTool{URL: "http://neighbour." + ns + ".svc:8080/"}, nil)
		api := harness.HTTPTool(ns, "api", skeinv1.HTTPTool{URL: "https://kubernetes.default.svc/version"}, nil)
		create(ctx, service, api)
		reason := func(t *skeinv1.Tool, want string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
				g.Expect(meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", want)))
			}).Should(Succeed())
		}
		reason(service, skeinv1.ReasonAddressNotAllowed)
		reason(api, skeinv1.ReasonAddressNotAllowed)
		opens(ctx, ns, "*.svc")
		reason(service, skeinv1.ReasonReady)
		reason(api, skeinv1.ReasonAddressForbidden)

		create(ctx, harness.Scripted(ns, "model", harness.On("go", harness.Calls("service", map[string]any{})), harness.After("service", harness.Answer("{{ .Last.Content }}"))),
			harness.Prompt(ns, "prompt", "model", "service"), harness.Agent(ns, "agent", "prompt"))
		t := thread(ctx, ns, "thread")
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(neighbour), neighbour)).To(Succeed())
			g.Expect(neighbour.Status.Phase).To(Equal(corev1.PodRunning))
		}).Should(Succeed())
		runs := 0
		Eventually(ctx, func(g Gomega) { // the pod may not listen yet, and the Service may not lead to it
			runs++
			g.Expect(t.Say(ctx, "go")).To(Succeed())
			ms := settled(ctx, t, runs)
			g.Expect(ms[len(ms)-1].Content).To(HaveValue(ContainSubstring("hello")))
		}).Should(Succeed())
	}, SpecTimeout(12*time.Minute))
})

// opens lets the tools of a namespace reach hosts of the cluster.
func opens(ctx context.Context, ns, hosts string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, "annotate", "--overwrite", "namespace", ns, outbound.AnnotationPrivateHosts+"="+hosts)
	Expect(err).NotTo(HaveOccurred())
}
