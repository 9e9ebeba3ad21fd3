package e2e

import (
	"crypto/tls"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Certificates of sandboxes", Label("COD-08"), func() {
	It("reach a pod that runs, under a run that goes on", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := pool(ctx, ns, 1, func(s *skeinv1.SandboxPoolSpec) { s.MaxWallTime = &metav1.Duration{Duration: 10 * time.Minute} })
		hold := harness.CodeTool(ns, "hold", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
	await state.setValue('holding', true);
	while (!(await state.getValue('go')));
	return 'held';
} });`, nil)
		hold.Spec.Timeout = &metav1.Duration{Duration: 10 * time.Minute}
		create(ctx, hold,
			harness.Scripted(ns, "model", harness.On("start", harness.Calls("hold", map[string]any{})), harness.After("hold", harness.Answer("done"))),
			harness.Prompt(ns, "prompt", "model", "hold"), harness.Agent(ns, "agent", "prompt"))
		t := thread(ctx, ns, "thread")
		Expect(t.Say(ctx, "start")).To(Succeed())
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "holding") }).Should(MatchJSON("true"))
		pod := sandboxes(ctx, Default, ns, claimed())[0]
		serial := func(g Gomega) string {
			address, stop, err := cluster.Forward(ctx, ns, pod.Name, sandboxpod.Port)
			g.Expect(err).NotTo(HaveOccurred())
			defer stop()
			// Whom the pod would let in does not matter here: it shows what it has before that.
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, ServerName: pki.ServerName(p.Name, ns), MinVersion: tls.VersionTLS13})
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = conn.Close() }()
			return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
		}
		var before string
		Eventually(ctx, func(g Gomega) { before = serial(g) }).Should(Succeed()) // the way through the kubelet may fail

		By("saying that the certificate is due")
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: sandboxpod.SecretName(p.Name)}}
		Expect(cluster.Client.Patch(ctx, s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{"skein.dev/renew-at":%q}}}`, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))))).To(Succeed())
		// The kubelet brings a Secret to a running pod at its next look, within about a minute, or when the pod itself changes.
		Eventually(ctx, func(g Gomega) string {
			g.Expect(cluster.Client.Patch(ctx, &pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
				`{"metadata":{"annotations":{"example.com/looked-at":%q}}}`, time.Now().Format(time.RFC3339Nano))))).To(Succeed())
			return serial(g)
		}).WithTimeout(3 * patience).WithPolling(time.Second).ShouldNot(Equal(before))

		By("letting the run end")
		Expect(t.SetValue(ctx, "go", "true")).To(Succeed())
		ms := settled(ctx, t, 1)
		Expect(*ms[len(ms)-1].Content).To(Equal("done"))
		Expect(*ms[len(ms)-2].Content).To(ContainSubstring("held"))
		Expect(sandboxes(ctx, Default, ns, claimed())).To(HaveExactElements(HaveField("UID", pod.UID)), "in the same pod")

		By("dialling a pod with the new certificate")
		other := thread(ctx, ns, "other")
		r, err := other.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
	}, SpecTimeout(15*time.Minute))
})
