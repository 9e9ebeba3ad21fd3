package conformance

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// reception has the samples, whose agent the gateway of docs/gateway.md leads to, and an endpoint.
func (r *reader) reception(ctx SpecContext) {
	GinkgoHelper()
	r.samples(ctx)
	create(ctx, harness.Endpoint(r.ns, "report", "/report/[month]", "export default (request, state, params) => params.month"))
}

// servesReport adds to the gateway of docs/gateway.md what the page shows before it calls the endpoint.
func (r *reader) servesReport(ctx SpecContext) {
	GinkgoHelper()
	g := &skeinv1.ThreadGateway{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "chat"}}
	Expect(cluster.Client.Get(ctx, key(g), g)).To(Succeed())
	changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.EndpointRefs = []skeinv1.LocalRef{{Name: "report"}} })
	gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
}

// installing makes the namespace of Argo CD. Its ConfigMap and the Secret with the address of a database are all that docs/install.md
// leaves in this cluster.
func (*reader) installing(ctx SpecContext) {
	GinkgoHelper()
	create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd"}})
	DeferCleanup(func(ctx SpecContext) {
		for _, args := range [][]string{{"delete", "namespace", "argocd", "--timeout=100s"}, {"-n", harness.SystemNamespace, "delete", "secret", "skein-database"}} {
			_, err := cluster.Kubectl(ctx, append(args, "--ignore-not-found")...)
			Expect(err).NotTo(HaveOccurred())
		}
	}, NodeTimeout(patience))
}

// firedDaily makes the ScheduledEffect of docs/kubectl-skein.md in place of the sample's. Of its four due times three have fired.
func (r *reader) firedDaily(ctx SpecContext) {
	GinkgoHelper()
	r.sh(ctx, "kubectl delete scheduledeffect daily")
	create(ctx, harness.Effect(r.ns, "close-books", "export default () => {}"),
		&skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "daily"}, Spec: skeinv1.ScheduledEffectSpec{Effect: "close-books", Schedules: []string{"@daily"}}})
	r.sh(ctx, "kubectl skein effect backfill daily --from=2026-01-31T00:00:00Z --until=2026-02-02T00:00:00Z")
}

// typescript puts the compiler of npm's packages where the page has npm install it, beside a tsconfig.json.
func (r *reader) typescript(ctx SpecContext) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "tsc.sh"), "install").Output()
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Symlink(filepath.Join(strings.TrimSpace(string(out)), "node_modules"), filepath.Join(r.dir, "node_modules"))).To(Succeed())
	r.write("tsconfig.json", string(must(os.ReadFile(filepath.Join(harness.Root(), "test", "fixtures", "tsconfig.json")))))
}

// dead has a delivery that was given up. Its server answers again.
func (r *reader) dead(ctx SpecContext) {
	GinkgoHelper()
	out := newEar()
	out.answer(http.StatusInternalServerError)
	w := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
		URL: out.URL, Events: []skeinv1.WebhookEvent{"run.ended"}, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, MaxAttempts: 1,
	}}
	create(ctx, gatewayKeys(r.ns), w)
	isReady(ctx, w, func() []metav1.Condition { return w.Status.Conditions })
	r.echoing(ctx)
	say(ctx, cluster.Thread(r.ns, "orders"), 1, "hello")
	c := runtimeAs("")
	Eventually(ctx, func(g Gomega) {
		list, err := c.WebhookDeliveries(ctx, r.ns, runtimeclient.DeliveryPage{Status: runtimev1.DeliveryDead})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Deliveries).To(HaveLen(1))
	}).Should(Succeed())
	out.answer(http.StatusOK)
}
