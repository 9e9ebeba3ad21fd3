package admission

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var _ = Describe("the policy about work for threads", Label("K8S-04"), func() {
	It("asks for the rights of the runtime API of whoever declares work for a thread", func(ctx SpecContext) {
		for resource, spec := range map[string]map[string]any{
			"scheduledeffects": {"threadRef": map[string]any{"name": "t"}, "effect": "e"},
			"subagents":        {"parentRef": map[string]any{"name": "t"}, "agentRef": map[string]any{"name": "a"}},
		} {
			o := object("X", spec)
			Expect(refused(ctx, "skein-work", &rights{user: "eve"}, resource, o, nil)).To(ConsistOf(
				ContainSubstring(`the user "eve" cannot get resource "threads/messages" of thread "t" in API group "runtime.skein.dev" in the namespace "team"`),
				ContainSubstring(`the user "eve" cannot create resource "threads/effects" of thread "t"`)))
			Expect(refused(ctx, "skein-work", &rights{user: "eve", may: []string{"get threads/messages t"}}, resource, o, nil)).To(HaveLen(1))
			Expect(refused(ctx, "skein-work", &rights{user: "eve", may: []string{"get threads/messages t", "create threads/effects t"}}, resource, o, nil)).To(BeEmpty())
		}
		adopting := object("Subagent", map[string]any{"parentRef": map[string]any{"name": "t"}, "threadRef": map[string]any{"name": "other"}})
		mine := &rights{user: "eve", may: []string{"get threads/messages t", "create threads/effects t"}}
		Expect(refused(ctx, "skein-work", mine, "subagents", adopting, nil)).To(HaveLen(2), "a Thread that is adopted counts too")
		many := object("ScheduledEffect", map[string]any{"threadSelector": map[string]any{}, "effect": "e"})
		Expect(refused(ctx, "skein-work", mine, "scheduledeffects", many, nil)).To(ConsistOf(ContainSubstring("of all threads"), ContainSubstring("of all threads")))
		Expect(refused(ctx, "skein-work", &rights{user: "eve"}, "scheduledeffects", object("ScheduledEffect", map[string]any{"effect": "e"}), nil)).To(BeEmpty(), "no thread, no conversation")
	})
})
