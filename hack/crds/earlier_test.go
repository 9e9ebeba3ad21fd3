package main

import (
	"context"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	config "k8s.io/apiserver/pkg/apis/cel"
)

// TestRetryOfATemplateOfAnEarlierRelease holds that a schedule which an earlier release took can still be edited, for example to suspend it. New ones
// are refused.
func TestRetryOfATemplateOfAnEarlierRelease(t *testing.T) {
	g := NewWithT(t)
	_, s := schemaOf(g, "../../config/crd/bases/skein.dev_scheduledeffects.yaml")
	spec := s.Properties["spec"]
	rules := cel.NewValidator(&spec, false, config.PerCallLimit)
	check := func(now, before map[string]any) field.ErrorList {
		var old any // not a nil map: that is an object
		if before != nil {
			old = before
		}
		errs, _ := rules.Validate(context.Background(), field.NewPath("spec"), &spec, now, old, config.RuntimeCELCostBudget)
		return errs
	}
	with := func(more map[string]any) map[string]any {
		all := map[string]any{
			"schedules":      []any{"@daily"},
			"threadTemplate": map[string]any{"spec": map[string]any{"agentRef": map[string]any{"name": "a"}, "message": "go"}},
		}
		maps.Copy(all, more)
		return all
	}
	retry := map[string]any{"retry": map[string]any{"attempts": int64(2)}}
	suspended := map[string]any{"retry": retry["retry"], "suspend": true}
	refused := ConsistOf(HaveField("Detail", ContainSubstring("leave retry out")))
	g.Expect(check(with(nil), nil)).To(BeEmpty())
	g.Expect(check(with(retry), nil)).To(refused)
	g.Expect(check(with(retry), with(nil))).To(refused)
	g.Expect(check(with(suspended), with(retry))).To(BeEmpty())
	g.Expect(check(with(nil), with(retry))).To(BeEmpty())
}
