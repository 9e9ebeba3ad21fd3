package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The demo of the repository", func() {
	// A folder of its own with links into the repository, so that a demo that runs in the repository is not touched.
	It("plays to its end, with a node where there can be one, and leaves nothing when it is taken down", func(ctx SpecContext) {
		root, err := filepath.Abs("../../..")
		Expect(err).NotTo(HaveOccurred())
		here, err := filepath.EvalSymlinks(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"bin", "config", "hack", "docs", "go.mod", "go.sum", "cmd", "internal", "api"} {
			Expect(os.Symlink(filepath.Join(root, name), filepath.Join(here, name))).To(Succeed())
		}
		Expect(os.Mkdir(filepath.Join(here, "build"), 0o755)).To(Succeed())
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(here, "build", "demo"), "./hack/demo")
		build.Dir = root
		out, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		play := func(ctx SpecContext, args ...string) (string, error) {
			cmd := exec.CommandContext(ctx, filepath.Join(here, "build", "demo"), args...)
			cmd.Dir = here
			cmd.Env = append(os.Environ(), "PWD="+here, fmt.Sprintf("SKEIN_DEMO_CLUSTER=t%d-demo", os.Getpid()))
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes what it has started
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		DeferCleanup(func(ctx SpecContext) { _, _ = play(ctx, "--down") }, NodeTimeout(patience))
		text, err := play(ctx)
		Expect(err).NotTo(HaveOccurred(), text)
		Expect(text).To(And(ContainSubstring("1. A Kubernetes cluster"), ContainSubstring("The demo is over after"), ContainSubstring("make demo-down")))
		text, err = play(ctx, "--down")
		Expect(err).NotTo(HaveOccurred(), text)
		Expect(filepath.Join(here, "build", "demo-state")).NotTo(BeAnExistingFile())
	}, SpecTimeout(3*patience))
})
