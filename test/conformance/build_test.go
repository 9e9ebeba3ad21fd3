package conformance

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// sampleFolder returns a copy of the sample for kubectl skein build, with its package installed.
func sampleFolder(ctx context.Context) string {
	GinkgoHelper()
	dir := filepath.Join(GinkgoT().TempDir(), "shop")
	Expect(os.CopyFS(dir, os.DirFS(filepath.Join(harness.Root(), "config", "samples", "typescript")))).To(Succeed())
	Expect(os.Symlink(filepath.Join(npm(ctx, "sample"), "node_modules"), filepath.Join(dir, "node_modules"))).To(Succeed())
	return dir
}

// npm installs packages that hack/npm pins, and returns their folder.
func npm(ctx context.Context, name string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "npm.sh"), "install", name).Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(out))
}

func edit(file, from, to string) {
	GinkgoHelper()
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(text)).To(ContainSubstring(from))
	Expect(os.WriteFile(file, []byte(strings.Replace(string(text), from, to, 1)), 0o644)).To(Succeed())
}

var _ = Describe("A folder of TypeScript", Label("TOL-02", "K8S-04"), func() {
	It("becomes manifests, whose tools use shared files and packages of npm", func(ctx SpecContext) {
		ns, dir := namespace(ctx), sampleFolder(ctx)
		manifests := filepath.Join(dir, "manifests")
		out, err := cluster.Plugin(ctx, "build", dir, "-o", manifests)
		Expect(err).NotTo(HaveOccurred(), out)
		_, err = cluster.Kubectl(ctx, "-n", ns, "apply", "--server-side", "-f", manifests)
		Expect(err).NotTo(HaveOccurred())
		create(ctx, harness.NewThread(ns, "parcel", "courier"))
		ready(ctx, cluster.Thread(ns, "parcel"))
		Expect(cluster.Plugin(ctx, "-n", ns, "tool", "parcel", "delivery_time", "--args", `{"ordered":"2024-03-01","delivered":"2024-03-02T12:00"}`)).To(Equal("The delivery took 2 days.\n"))
		_, err = cluster.Plugin(ctx, "-n", ns, "tool", "parcel", "delivery_time", "--args", `{"ordered":"x"}`)
		Expect(err).To(MatchError(ContainSubstring("missing property 'delivered'")), "the schema of the code")
	}, SpecTimeout(3*time.Minute))

	It("has its types checked", Label("TOL-03"), func(ctx SpecContext) {
		installed, err := exec.CommandContext(ctx, tsc(), "install").Output()
		Expect(err).NotTo(HaveOccurred())
		dir := sampleFolder(ctx)
		modules := filepath.Join(dir, "node_modules")
		Expect(os.Remove(modules)).To(Succeed())
		Expect(os.MkdirAll(modules, 0o755)).To(Succeed())
		for _, name := range []string{".bin", "typescript", "@typescript", "zod"} {
			Expect(os.Symlink(filepath.Join(strings.TrimSpace(string(installed)), "node_modules", name), filepath.Join(modules, name))).To(Succeed())
		}
		Expect(os.Symlink(filepath.Join(npm(ctx, "sample"), "node_modules", "ms"), filepath.Join(modules, "ms"))).To(Succeed())
		out, err := cluster.Plugin(ctx, "build", dir, "--check=always")
		Expect(err).NotTo(HaveOccurred(), out)
		edit(filepath.Join(dir, "tools", "delivery-time.ts"), "between(ordered, delivered)", "between(ordered, 5)")
		_, err = cluster.Plugin(ctx, "build", dir)
		Expect(err).To(MatchError(And(ContainSubstring("the types do not fit"), ContainSubstring("tools/delivery-time.ts"), ContainSubstring("'number' is not assignable"))))
	}, SpecTimeout(3*time.Minute))

	It("is tried in a namespace that follows it and goes away", func(ctx SpecContext) {
		dir := sampleFolder(ctx)
		typed, typing := io.Pipe()
		out := gbytes.NewBuffer()
		cmd := exec.Command(harness.Bin("kubectl-skein"), "--kubeconfig", cluster.Kubeconfig, "dev", dir)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = typed, out, out
		Expect(cmd.Start()).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		DeferCleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
		say := func(text, answer string) {
			GinkgoHelper()
			_, err := io.WriteString(typing, text+"\n")
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, out).Should(gbytes.Say(answer))
		}
		Eventually(ctx, out).Should(gbytes.Say("dev: namespace skein-dev-"))
		ns := &corev1.Namespace{}
		ns.Name = regexp.MustCompile(`namespace (skein-dev-\S+) created`).FindStringSubmatch(string(out.Contents()))[1]
		Eventually(ctx, out).Should(gbytes.Say("tool/delivery-time applied"))
		say("How long?", "The delivery took 3 days.")

		By("a change, after a mistake")
		tool := filepath.Join(dir, "tools", "delivery-time.ts")
		edit(tool, "The delivery took", "It took ${")
		Eventually(ctx, out).Should(gbytes.Say("waiting for a change"))
		edit(tool, "It took ${", "It took")
		Eventually(ctx, out).Should(gbytes.Say("tool/delivery-time applied"))
		Eventually(ctx, func() (string, error) {
			return cluster.Kubectl(ctx, "-n", ns.Name, "get", "tool", "delivery-time", "-o", `jsonpath={.metadata.generation} {.status.observedGeneration}`)
		}).Should(Equal("2 2"))
		say("And now?", "It took 3 days.")

		By("the end")
		Expect(typing.Close()).To(Succeed())
		Eventually(ctx, ended).Should(Receive(Not(HaveOccurred())), string(out.Contents()))
		Expect(out).To(gbytes.Say("namespace " + ns.Name + " deleted"))
		Eventually(ctx, func() bool {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
			return apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil
		}).Should(BeTrue())
	}, SpecTimeout(4*time.Minute))

	It("is interrupted, and leaves nothing in a namespace that was there before", func(ctx SpecContext) {
		ns, dir := namespace(ctx), sampleFolder(ctx)
		pool := &skeinv1.SandboxPool{}
		pool.Namespace, pool.Name = ns, "default"
		if !onV8 {
			create(ctx, pool)
		}
		out := gbytes.NewBuffer()
		cmd := exec.Command(harness.Bin("kubectl-skein"), "--kubeconfig", cluster.Kubeconfig, "-n", ns, "dev", dir)
		stdin, err := cmd.StdinPipe() // stays open
		Expect(err).NotTo(HaveOccurred())
		defer stdin.Close()
		cmd.Stdout, cmd.Stderr = out, out
		Expect(cmd.Start()).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		Eventually(ctx, out).Should(gbytes.Say("thread/courier-.* created"))
		Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Eventually(ctx, ended).Should(Receive(MatchError(ContainSubstring("130"))))
		Eventually(ctx, func() (string, error) {
			return cluster.Kubectl(ctx, "-n", ns, "get", "agents,tools,prompts,models,threads,sandboxpools", "-o", "name")
		}).Should(Equal("sandboxpool.skein.dev/default\n"))
	}, SpecTimeout(3*time.Minute))
})
