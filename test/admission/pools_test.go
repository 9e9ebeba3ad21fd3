package admission

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var _ = Describe("the policy about pools", Label("K8S-04"), func() {
	pool := func(spec map[string]any) *unstructured.Unstructured { return object("SandboxPool", spec) }
	// with is a pool with tolerations of some keys, and annotations of some.
	with := func(tolerations, annotations []string) *unstructured.Unstructured {
		var list []any
		for _, key := range tolerations {
			list = append(list, map[string]any{"key": key, "operator": "Exists"})
		}
		values := map[string]any{}
		for _, key := range annotations {
			values[key] = "on"
		}
		return pool(map[string]any{"tolerations": list, "podMetadata": map[string]any{"annotations": values}})
	}
	may := func(names ...string) *rights {
		r := &rights{user: "eve"}
		for _, n := range names {
			r.may = append(r.may, "use sandboxsettings "+n)
		}
		return r
	}

	It("limits a pool to the images and settings that its author may use", func(ctx SpecContext) {
		const image = "registry.example.com/sandbox@sha256:0123"
		whole := map[string]any{"warm": int64(1), "image": image, "tolerations": []any{map[string]any{"operator": "Exists"}}, "priorityClassName": "high", "runtimeClassName": "own",
			"podMetadata": map[string]any{"annotations": map[string]any{"sidecar.example.com/inject": "true"}, "labels": map[string]any{"team": "blue"}}}
		Expect(refused(ctx, "skein-pools", &rights{user: "eve"}, "sandboxpools", pool(whole), nil)).To(ConsistOf(
			ContainSubstring(`spec.image "`+image+`" is not allowed`), ContainSubstring(`the setting "tolerations" is not allowed`),
			ContainSubstring(`the setting "priorityClassName/high" is not`), ContainSubstring(`the setting "runtimeClassName/own" is not`),
			ContainSubstring(`the setting "annotations/sidecar.example.com/inject" is not`)))
		some := &rights{user: "eve", may: []string{"use sandboximages " + image, "use sandboxsettings tolerations"}}
		Expect(refused(ctx, "skein-pools", some, "sandboxpools", pool(whole), nil)).To(HaveLen(3))
		Expect(refused(ctx, "skein-pools", &rights{user: "eve"}, "sandboxpools", pool(map[string]any{"warm": int64(1), "tolerations": []any{},
			"podMetadata": map[string]any{"labels": map[string]any{"team": "blue"}}}), nil)).To(BeEmpty())
		more := pool(whole).DeepCopy()
		_ = unstructured.SetNestedField(more.Object, int64(2), "spec", "warm")
		Expect(refused(ctx, "skein-pools", &rights{user: "eve"}, "sandboxpools", more, pool(whole))).To(BeEmpty(), "what it says about its pods is as before")
		_ = unstructured.SetNestedField(more.Object, "other", "spec", "image")
		Expect(refused(ctx, "skein-pools", some, "sandboxpools", more, pool(whole))).To(ConsistOf(ContainSubstring(`spec.image "other"`)))
	})

	It("allows single values of a field", func(ctx SpecContext) {
		const key, other = "example.com/gpu", "example.com/control-plane"
		both := with([]string{key}, []string{key})
		Expect(refused(ctx, "skein-pools", may("tolerations/"+key, "annotations/"+key), "sandboxpools", both, nil)).To(BeEmpty())
		Expect(refused(ctx, "skein-pools", may("tolerations/"+key), "sandboxpools", both, nil)).To(ConsistOf(
			`the setting "annotations/` + key + `" is not allowed: it is no name of resource "sandboxsettings" that you may use in API group "runtime.skein.dev" ` +
				`in the namespace "team": leave it out, or have an administrator allow the user "eve" to use it`))
		classes := pool(map[string]any{"priorityClassName": "high", "runtimeClassName": "gvisor"})
		Expect(refused(ctx, "skein-pools", may("priorityClassName/high", "runtimeClassName/kata"), "sandboxpools", classes, nil)).To(ConsistOf(ContainSubstring(`"runtimeClassName/gvisor"`)))
		Expect(refused(ctx, "skein-pools", may("priorityClassName", "runtimeClassName"), "sandboxpools", classes, nil)).To(BeEmpty(), "the name of a field stands for all its values")
		Expect(refused(ctx, "skein-pools", may("tolerations/", "tolerations/"+key), "sandboxpools", with([]string{""}, nil), nil)).To(ConsistOf(ContainSubstring(`the setting "tolerations" is not allowed`)),
			"a toleration without a key tolerates everything")

		By("judging what an update adds")
		Expect(refused(ctx, "skein-pools", may("tolerations/"+key), "sandboxpools", with([]string{other, key}, nil), with([]string{other}, nil))).To(BeEmpty())
		Expect(refused(ctx, "skein-pools", may("tolerations/"+key), "sandboxpools", with([]string{other, key}, nil), with([]string{key}, nil))).To(ConsistOf(ContainSubstring(other)))
		Expect(refused(ctx, "skein-pools", may(), "sandboxpools", with([]string{other}, nil), with([]string{other, key}, []string{key}))).To(BeEmpty(), "less than before")
		changed := with(nil, []string{key})
		_ = unstructured.SetNestedField(changed.Object, "off", "spec", "podMetadata", "annotations", key)
		Expect(refused(ctx, "skein-pools", may(), "sandboxpools", changed, with(nil, []string{key}))).To(ConsistOf(ContainSubstring("annotations/"+key)), "another value")
	})

	It("checks single values up to a bound, within what CEL may cost", func(ctx SpecContext) {
		keys := func(n int) (list []string) {
			for i := range n {
				list = append(list, fmt.Sprint("example.com/", i))
			}
			return list
		}
		var each []string
		for _, k := range keys(100) {
			each = append(each, "tolerations/"+k, "annotations/"+k)
		}
		const tooMany = "this change has more than 8 settings, and single ones are checked up to 8"
		Expect(refused(ctx, "skein-pools", may(each...), "sandboxpools", with(keys(4), keys(4)), nil)).To(BeEmpty())
		Expect(refused(ctx, "skein-pools", may(each...), "sandboxpools", with(keys(4), keys(5)), nil)).To(ConsistOf(ContainSubstring(tooMany)))
		Expect(refused(ctx, "skein-pools", may(each...), "sandboxpools", with(keys(9), nil), nil)).To(ConsistOf(ContainSubstring(tooMany)))
		Expect(refused(ctx, "skein-pools", may("tolerations", "annotations"), "sandboxpools", with(keys(100), keys(100)), nil)).To(BeEmpty())
		Expect(refused(ctx, "skein-pools", may("tolerations"), "sandboxpools", with(keys(100), keys(9)), nil)).To(ContainElement(ContainSubstring(tooMany)))

		By("checking the most expensive request, which asks for everything without any right")
		dearest := with(keys(100), keys(100))
		for field, value := range map[string]string{"image": "i", "priorityClassName": "p", "runtimeClassName": "r"} {
			Expect(unstructured.SetNestedField(dearest.Object, value, "spec", field)).To(Succeed())
		}
		Expect(refused(ctx, "skein-pools", may(), "sandboxpools", dearest, nil)).To(HaveLen(10))
		Expect(refused(ctx, "skein-pools", may("tolerations"), "sandboxpools", dearest, with(keys(1), keys(1)))).To(ContainElement(ContainSubstring(tooMany)))
	})
})
