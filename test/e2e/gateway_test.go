package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// forwarded forwards a free port of this machine to the gateway's port of the manager, and returns the address. The NetworkPolicy of the manager does
// not count for what its kubelet forwards.
func forwarded(ctx SpecContext) string {
	GinkgoHelper()
	forward := exec.CommandContext(ctx, cluster.KubectlPath(), "--kubeconfig", cluster.Kubeconfig, "-n", harness.SystemNamespace, "port-forward", "deployment/skein-manager", ":8090")
	forward.Stderr = GinkgoWriter
	out, err := forward.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(forward.Start()).To(Succeed())
	DeferCleanup(func() { _ = forward.Process.Kill(); _ = forward.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	Expect(address).NotTo(BeEmpty(), line)
	return address
}

var _ = Describe("A gateway whose ids come from code", Label("IDS-02"), func() {
	It("runs the code in a pod of the namespace's pool", func(ctx SpecContext) {
		ns := namespace(ctx)
		echo(ctx, ns)
		pool(ctx, ns, 1)
		source, err := os.ReadFile(filepath.Join(harness.Root(), "test", "fixtures", "ids", "user.ts"))
		Expect(err).NotTo(HaveOccurred())
		g := &skeinv1.ThreadGateway{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "chat"}, Spec: skeinv1.ThreadGatewaySpec{
			AgentRef:    skeinv1.LocalRef{Name: "agent"},
			SigningKeys: []corev1.SecretKeySelector{{LocalObjectReference: corev1.LocalObjectReference{Name: "gateway-keys"}, Key: "current"}},
			IDProvider:  &skeinv1.GatewayIDProvider{Code: &skeinv1.GatewayCodeIDs{Source: skeinv1.CodeSource{Inline: string(source)}, Headers: []string{"X-User-Id"}}},
		}}
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gateway-keys"}, StringData: map[string]string{"current": "a key of thirty-two bytes or more"}}, g)
		Eventually(ctx, func(o Gomega) {
			o.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			o.Expect(g.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
		}).Should(Succeed())

		address := forwarded(ctx)
		sum := sha256.Sum256([]byte("Ada"))
		for _, text := range []string{"hello", "again"} {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/"+ns+"/chat/v1/message", strings.NewReader(`{"content": "`+text+`"}`))
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-User-Id", "Ada")
			resp, err := http.DefaultClient.Do(req)
			Expect(err).NotTo(HaveOccurred())
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.StatusCode).To(Equal(http.StatusOK), string(body))
			Expect(string(body)).To(ContainSubstring("echo: " + text))
			Expect(resp.Header.Get("x-thread-id")).To(HavePrefix("thrd_" + hex.EncodeToString(sum[:])[:27] + ";"))
		}
		Expect(sandboxes(ctx, Default, ns, claimed())).To(HaveLen(1), "the conversation itself runs no code")
		Expect(cluster.Client.Delete(ctx, g)).To(Succeed())
	}, SpecTimeout(3*patience))
})
