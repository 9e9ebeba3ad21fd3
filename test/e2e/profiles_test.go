package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/test/harness"
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

// The commands of docs/metrics.md, as it prints them.
var _ = Describe("Profiles", Serial, Label("K8S-06", "COD-08"), func() {
	It("can be taken from an installed manager and from a sandbox of a pool while they work, and name the functions of Skein", func(ctx SpecContext) {
		managerWith(ctx, "--pprof-bind-address=127.0.0.1:6060", "--sandbox-pprof-port=6061")
		ns := namespace(ctx)
		pool(ctx, ns, 1)
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")
		work := func(ctx context.Context) error {
			r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 6 * 7"})
			if err == nil {
				Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
			}
			return err
		}
		Expect(work(ctx)).To(Succeed())
		names := strings.NewReplacer("-n demo ", "-n "+ns+" ", "SANDBOX", podOf(ctx, ns, "thread").Name)
		forward(ctx, "kubectl -n skein-system port-forward deployment/skein-manager 6060", names)
		forward(ctx, "kubectl -n demo port-forward pod/SANDBOX 6061", names)

		working, rest := context.WithCancel(ctx)
		var clients sync.WaitGroup
		defer clients.Wait()
		defer rest()
		clients.Go(func() {
			defer GinkgoRecover()
			for working.Err() == nil {
				if err := work(working); working.Err() == nil {
					Expect(err).NotTo(HaveOccurred())
				}
			}
		})
		var profiled sync.WaitGroup
		for command, part := range map[string]string{
			"go tool pprof -top http://127.0.0.1:6060/debug/pprof/profile": "github.com/skein-dev/skein/internal/",
			"go tool pprof -top http://127.0.0.1:6061/debug/pprof/profile": "github.com/skein-dev/skein/internal/sandbox/supervisor",
		} {
			cmd := asPrinted(ctx, command, names)
			cmd.Env = append(cmd.Env, "PPROF_TMPDIR="+GinkgoT().TempDir()) // not the home of who runs this
			profiled.Go(func() {
				defer GinkgoRecover()
				out, err := cmd.CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s: %s", command, out)
				Expect(string(out)).To(And(ContainSubstring("Type: cpu"), ContainSubstring(part)), command)
			})
		}
		profiled.Wait()
	}, SpecTimeout(15*time.Minute))
})

// managerWith adds flags to the installed manager. It restores the manager when the spec ends.
func managerWith(ctx context.Context, flags ...string) {
	GinkgoHelper()
	var d appsv1.Deployment
	Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: harness.SystemNamespace, Name: "skein-manager"}, &d)).To(Succeed())
	before := d.Spec.Template.Spec.Containers[0].Args
	set := func(ctx context.Context, args []string) {
		GinkgoHelper()
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}})
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "-n", harness.SystemNamespace, "patch", "deployment", d.Name, "--type=json", "-p", string(patch))).Error().NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "-n", harness.SystemNamespace, "rollout", "status", "deployment/"+d.Name, "--timeout=5m")).Error().NotTo(HaveOccurred())
	}
	DeferCleanup(func(ctx SpecContext) { set(ctx, before) }, NodeTimeout(6*time.Minute))
	set(ctx, slices.Concat(before, flags))
}

// forward runs a port-forward as the guide prints it, until the spec ends. It returns once the port can be reached.
func forward(ctx context.Context, text string, names *strings.Replacer) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) { // the port may be another program's, and the way through the kubelet may fail
		life, end := context.WithCancel(context.Background())
		cmd := asPrinted(life, text, names)
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cmd.Start()).To(Succeed())
		stop := func() {
			end()
			_ = cmd.Wait()
		}
		lines := bufio.NewReader(out)
		line, err := lines.ReadString('\n')
		if err != nil {
			stop()
		}
		g.Expect(err).NotTo(HaveOccurred(), said.String())
		DeferCleanup(stop)
		g.Expect(line).To(HavePrefix("Forwarding from 127.0.0.1:"))
		go func() { _, _ = io.Copy(io.Discard, lines) }() // a line for each connection
	}).Should(Succeed())
}
