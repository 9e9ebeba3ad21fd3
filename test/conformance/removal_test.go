package conformance

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The removal of Skein", Serial, Label("K8S-13"), func() {
	It("ends although there are Threads, because the manager goes after them", func(ctx SpecContext) {
		own, err := harness.Up(ctx, harness.ClusterOptions{Name: "removal", Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(own.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		for _, args := range [][]string{
			{"apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd")},
			{"wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m"},
			{"apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "manager")},
		} {
			_, err := own.Kubectl(ctx, args...)
			Expect(err).NotTo(HaveOccurred())
		}
		m, err := own.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: engineArgs()})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Start(ctx)).To(Succeed())
		DeferCleanup(m.Stop)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "row-"}}
		Expect(own.Client.Create(ctx, ns)).To(Succeed())
		objects := []client.Object{harness.Scripted(ns.Name, "model", harness.Echo()), harness.Prompt(ns.Name, "prompt", "model"), harness.Agent(ns.Name, "agent", "prompt")}
		for i := range 100 {
			objects = append(objects, harness.NewThread(ns.Name, fmt.Sprintf("thread-%d", i), "agent"))
		}
		for _, o := range objects {
			Expect(own.Client.Create(ctx, o)).To(Succeed())
		}
		_, err = own.Kubectl(ctx, "wait", "--for=condition=Ready", "-n", ns.Name, "threads", "--all", "--timeout=1m")
		Expect(err).NotTo(HaveOccurred())

		// The process stands for the manager's pods: it ends with the Deployment.
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				return apierrors.IsNotFound(own.Client.Get(ctx, client.ObjectKey{Namespace: harness.SystemNamespace, Name: "skein-manager"}, &appsv1.Deployment{})), nil
			})
			m.Stop()
		}()
		undeploy := exec.CommandContext(ctx, "make", "-C", harness.Root(), "undeploy", "OVERLAY=default", "KUBECTL="+own.KubectlPath()+" --kubeconfig "+own.Kubeconfig)
		undeploy.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		undeploy.Cancel = func() error { return syscall.Kill(-undeploy.Process.Pid, syscall.SIGKILL) } // with kubectl
		out, err := undeploy.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Eventually(ctx, stopped).Should(BeClosed())
		Expect(own.Kubectl(ctx, "get", "crd", "-l", "app.kubernetes.io/part-of=skein", "-o", "name")).To(BeEmpty())
	}, SpecTimeout(3*time.Minute))
})
