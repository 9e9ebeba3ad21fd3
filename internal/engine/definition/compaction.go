package definition

import (
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// CompactionOf returns the policy of a prompt.
func CompactionOf(p *skeinv1.PromptSpec) skeinv1.PromptCompaction {
	c := skeinv1.PromptCompaction{Mode: skeinv1.CompactionManual}
	if p.Compaction != nil {
		c = *p.Compaction
		if c.Mode == "" {
			c.Mode = skeinv1.CompactionAuto
		}
	}
	if c.Threshold == nil {
		c.Threshold = ptr.To[int32](skeinv1.DefaultCompactionThreshold)
	}
	if c.Keep == nil {
		c.Keep = ptr.To[int32](skeinv1.DefaultCompactionKeep)
	}
	return c
}
