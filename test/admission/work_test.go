package admission

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var _ = Describe("the policy about work for threads", Label("K8S-04"), func() {
	It("requires the rights of the runtime API from authors who declare work for a thread", func(ctx SpecContext) {
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

	// counts are the fields in which a change is judged anew: they say for which threads something happens, or what happens.
	counts := map[string][]string{
		"ScheduledEffect": {"threadRef", "threadSelector", "maxThreads", "effect", "callTool", "queueTool", "message", "threadTemplate", "args", "argsRef",
			"sandboxPool", "env", "hookDepth", "at", "after", "runOnCreation"},
		"WebhookReceiver": {"threadRef", "agentRef", "form", "signingKeys"},
	}
	It("judges an update by whether it changes the threads or the work", func(ctx SpecContext) {
		seen := 0
		for _, k := range kinds() {
			if counts[k.name] == nil {
				continue
			}
			seen++
			base := func() *unstructured.Unstructured {
				return object(k.name, map[string]any{"threadRef": map[string]any{"name": "t"}})
			}
			for field := range k.spec.Properties {
				value := any("changed")
				if field == "threadRef" {
					value = map[string]any{"name": "other"}
				}
				changed := base()
				Expect(unstructured.SetNestedField(changed.Object, value, "spec", field)).To(Succeed())
				judged := BeEmpty()
				if slices.Contains(counts[k.name], field) {
					judged = Not(BeEmpty())
				}
				eve := &rights{user: "eve"}
				Expect(refused(ctx, "skein-work", eve, k.resource, changed, base())).To(judged, "%s.%s is set: list it in config/admission/work.yaml if it is harmless, or else here", k.name, field)
				if field != "threadRef" {
					Expect(refused(ctx, "skein-work", eve, k.resource, base(), changed)).To(judged, "%s.%s is removed", k.name, field)
				}
				Expect(eve.checks).To(judged, "%s.%s", k.name, field)
			}
			for _, field := range counts[k.name] {
				Expect(k.spec.Properties).To(HaveKey(field), "%s has no such field", k.name)
			}
		}
		Expect(seen).To(Equal(len(counts)))
	})
})
