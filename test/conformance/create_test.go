package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("kubectl skein create", Label("K8S-04"), func() {
	It("prints what it has made, as programs want it", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		Expect(cluster.Plugin(ctx, "-n", ns, "create", "named", "--agent", "agent", "-o", "name")).To(Equal("thread.skein.dev/named\n"))
		for _, format := range []string{"json", "yaml"} {
			out, err := cluster.Plugin(ctx, "-n", ns, "create", "--agent", "agent", "-o", format)
			Expect(err).NotTo(HaveOccurred())
			var t skeinv1.Thread
			Expect(yaml.UnmarshalStrict([]byte(out), &t)).To(Succeed(), out)
			Expect([]string{t.APIVersion, t.Kind, t.Spec.AgentRef.Name}).To(Equal([]string{"skein.dev/v1alpha1", "Thread", "agent"}))
			ready(ctx, cluster.Thread(ns, t.Name))
		}
		_, err := cluster.Plugin(ctx, "-n", ns, "create", "--agent", "agent", "-o", "table")
		Expect(err).To(MatchError(ContainSubstring("give json, yaml, wide or name")))
		_, err = cluster.Plugin(ctx, "-n", ns, "create", "--agent", "agent", "--dry-run", "-o", "name")
		Expect(err).To(MatchError(ContainSubstring("--dry-run prints a manifest as YAML")))
	}, SpecTimeout(2*time.Minute))
})
