package conformance

import (
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The samples", func() {
	It("are what they say, and can be tried without a provider", Label("AGT-05", "RUN-08", "TOL-01", "SUB-01"), func(ctx SpecContext) {
		ns, folder := namespace(ctx), filepath.Join(harness.Root(), "config", "samples")
		kubectl := func(args ...string) {
			GinkgoHelper()
			_, err := cluster.Kubectl(ctx, append([]string{"-n", ns}, args...)...)
			Expect(err).NotTo(HaveOccurred())
		}
		kubectl("apply", "-k", folder)
		kubectl("apply", "-f", filepath.Join(folder, "model-anthropic.yaml"))
		kubectl("apply", "--dry-run=server", "-f", filepath.Join(folder, "tool-mcp.yaml")) // its server is not ours to ask
		kubectl("wait", "--for=condition=Ready", "models,prompts,tools,effects,agents,threadendpoints,threads", "--all", "--timeout=60s")

		kubectl("apply", "-f", filepath.Join(folder, "thread-fork.yaml")) // it waits for its origin's first message

		By("remembering in one conversation what was said in another")
		say(ctx, ready(ctx, cluster.Thread(ns, "diary")), 1, "The boiler was repaired in May.")
		Eventually(ctx, func() (string, error) { return cluster.Plugin(ctx, "-n", ns, "memory", "diary", "boiler") }).Should(ContainSubstring("repaired"))
		Expect(last(say(ctx, ready(ctx, cluster.Thread(ns, "diary-again")), 1, "Do you remember the boiler?"))).To(ContainSubstring("repaired in May"))

		By("forking it")
		fork := ready(ctx, cluster.Thread(ns, "diary-aside"))
		Expect(last(say(ctx, fork, 1, "What was repaired?"))).NotTo(BeEmpty())

		By("having a prompt called by a model, and by code")
		edits := ready(ctx, cluster.Thread(ns, "edits"))
		Expect(last(say(ctx, edits, 1, "A long text about nothing in particular."))).To(Equal("In short: A long text about no…"))
		Expect(last(say(ctx, edits, 2, "List:\nThe first of two lines of text\nThe second of two lines of text"))).To(Equal("In short: The first of two lin…; The second of two li…"))

		By("attaching a child to a conversation")
		kubectl("apply", "-f", filepath.Join(folder, "subagent.yaml"))
		kubectl("wait", "--for=jsonpath={.status.entry.status}=completed", "subagent/edits-second-opinion", "--timeout=60s")
		Expect(texts(must(cluster.Thread(ns, "edits-second-opinion").Messages(ctx)))).To(ContainElement("assistant: In short: A text that somebody…"))
	}, SpecTimeout(3*time.Minute))
})
