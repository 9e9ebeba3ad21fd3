package e2e

import (
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A user", func() {
	It("applies the samples, talks with kubectl skein, and deletes the whole tree", Label("SUB-08", "THR-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := cluster.Kubectl(ctx, "-n", ns, "apply", "-k", filepath.Join(harness.Root(), "config", "samples"))
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, "-n", ns, "wait", "--for=condition=Ready", "agents,prompts,models,tools,effects,threadendpoints,sandboxpools", "--all", "--timeout=180s")
		Expect(err).NotTo(HaveOccurred())
		echo(ctx, ns)
		thread(ctx, ns, "hello")

		out, err := cluster.Plugin(ctx, "-n", ns, "send", "hello", "good morning", "--wait")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("echo: good morning"))
		out, err = cluster.Plugin(ctx, "-n", ns, "messages", "hello")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("good morning"), ContainSubstring("echo: good morning")))
		out, err = cluster.Plugin(ctx, "-n", ns, "tree")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("hello"))
		_, err = cluster.Plugin(ctx, "-n", ns, "messages", "nobody")
		Expect(err).To(MatchError(ContainSubstring("not found")))

		_, err = cluster.Kubectl(ctx, "-n", ns, "delete", "thread", "hello", "--timeout=180s")
		Expect(err).NotTo(HaveOccurred())
		out, err = cluster.Kubectl(ctx, "-n", ns, "get", "threads", "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.TrimSpace(out)).NotTo(ContainSubstring("hello"))
	}, SpecTimeout(12*time.Minute))
})
