package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/guide"
	"github.com/skein-dev/skein/test/harness"
)

// printed runs a command of the guide as a page prints it, in the repository and for the suite's cluster, and returns what it prints.
// It fails when no page has the command.
func printed(ctx context.Context, text string) string {
	GinkgoHelper()
	cmd := asPrinted(ctx, text, strings.NewReplacer())
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", text, out)
	return string(out)
}

// asPrinted returns a command of the guide as a page prints it. names replaces what the page leaves to the reader, such as the name of a pod.
func asPrinted(ctx context.Context, text string, names *strings.Replacer) *exec.Cmd {
	GinkgoHelper()
	pages, err := guide.Pages(harness.Root())
	Expect(err).NotTo(HaveOccurred())
	var found []guide.Command
	for _, page := range pages {
		commands, err := guide.Commands(harness.Root(), page)
		Expect(err).NotTo(HaveOccurred())
		for _, c := range commands {
			if strings.TrimSpace(c.Text) == text {
				found = append(found, c)
			}
		}
	}
	Expect(found).NotTo(BeEmpty(), "no page has the command %s", text)
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", names.Replace(found[0].Text))
	cmd.Dir = harness.Root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+cluster.Path(), "SKEIN_DEVCLUSTER_DIR="+filepath.Dir(cluster.Kubeconfig))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// install puts Skein into the cluster as docs/install.md prints it.
func install(ctx context.Context) {
	GinkgoHelper()
	for _, text := range []string{
		"hack/devcluster/devcluster.sh load --name skein.dev/manager:dev --binary bin/manager",
		"hack/devcluster/devcluster.sh load --name skein.dev/sandbox:dev --binary bin/sandbox --file bin/sandbox-child:/sandbox-child",
		"make deploy",
		"kubectl -n skein-system rollout status deployment/skein-manager",
	} {
		printed(ctx, text)
	}
	_, err := cluster.Kubectl(ctx, "wait", "--for=condition=Available", "apiservice/v1alpha1.runtime.skein.dev", "--timeout=5m")
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("The guide", Label("K8S-04"), func() {
	It("has commands that ask about an installation, which work as printed", func(ctx SpecContext) {
		Expect(printed(ctx, "kubectl -n skein-system logs deployment/skein-manager")).NotTo(BeEmpty())
		Expect(printed(ctx, "kubectl skein check --pre")).To(MatchRegexp(`(?m)^ok    nodes: `))
		// Warnings about objects of other specs do not change the exit code.
		Expect(printed(ctx, "kubectl skein check")).To(MatchRegexp(`(?m)^ok    manager: `))
	}, SpecTimeout(5*time.Minute))
})
