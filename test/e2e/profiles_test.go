package e2e

import (
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// A pod as a manager with --sandbox-pprof-port makes it, but of no pool, so that the manager of this tier leaves it alone.
var _ = Describe("A sandbox that serves profiles", Label("COD-08"), func() {
	It("gives them through a port-forward, and has them at no other address", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := pool(ctx, ns, 1) // its certificate is there
		const port = 6061
		pod := sandboxpod.New(p, sandboxpod.Settings{Image: "skein.dev/sandbox:dev", ImagePullPolicy: corev1.PullNever, ProfilePort: port})
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "profiled"}
		create(ctx, pod)
		_, err := cluster.Kubectl(ctx, "-n", ns, "wait", "--for=condition=Ready", "pod/profiled", "--timeout=3m")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) { // the way through the kubelet may fail
			address, stop, err := cluster.Forward(ctx, ns, pod.Name, port)
			g.Expect(err).NotTo(HaveOccurred())
			defer stop()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/goroutine?debug=1", nil)
			g.Expect(err).NotTo(HaveOccurred())
			resp, err := http.DefaultClient.Do(req)
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(text)).To(HavePrefix("goroutine profile: total"))
		}).Should(Succeed())

		By("asking at the pod's own address, which no NetworkPolicy guards here")
		Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		probe := probePod(ns, "probe", "tcp="+pod.Status.PodIP+":6061", "tcp="+pod.Status.PodIP+":8080")
		create(ctx, probe)
		Eventually(ctx, func() (string, error) { return cluster.Kubectl(ctx, "-n", ns, "logs", "probe") }).Should(And(
			ContainSubstring(":6061 closed"), ContainSubstring(":8080 open")))
	}, SpecTimeout(12*time.Minute))
})
