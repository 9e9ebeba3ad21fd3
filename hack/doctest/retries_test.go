package doctest

import (
	"strings"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/engine/effects"
)

// The defaults of retries are in the code, in the comments of the API that become descriptions, and in the guide. "Where a change goes" in
// docs/architecture.md lists these places.
func TestDefaultsOfRetriesAreTheSameEverywhere(t *testing.T) {
	attempts := map[int]string{2: "two", 3: "three", 4: "four", 5: "five"}[effects.DefaultAttempts]
	short := func(d time.Duration) string { // 10m, not 10m0s
		if text := d.String(); strings.HasSuffix(text, "m0s") {
			return strings.TrimSuffix(text, "0s")
		}
		return d.String()
	}
	backoff, most := short(effects.DefaultBackoff), short(effects.DefaultMaxBackoff)
	comments := strings.Join(strings.Fields(strings.ReplaceAll(read(t, root, "api/v1alpha1/scheduledeffect_policies.go"), "//", "")), " ")
	crd := strings.Join(strings.Fields(read(t, root, "config/crd/bases/skein.dev_scheduledeffects.yaml")), " ")
	guide := strings.Join(strings.Fields(read(t, root, "docs/effects.md")), " ")
	for _, want := range []struct{ where, text, says string }{
		{"api/v1alpha1/scheduledeffect_policies.go", comments, "A service that callTool calls: " + attempts + " when absent."},
		{"api/v1alpha1/scheduledeffect_policies.go", comments, "A handler that could not be run has at least " + attempts + "."},
		{"api/v1alpha1/scheduledeffect_policies.go", comments, "Backoff before the second attempt; " + backoff + " when absent."},
		{"api/v1alpha1/scheduledeffect_policies.go", comments, "MaxBackoff bounds the delay between attempts; " + most + " when absent."},
		{"the CRD", crd, "Backoff before the second attempt; " + backoff + " when absent."},
		{"the CRD", crd, "MaxBackoff bounds the delay between attempts; " + most + " when absent."},
		{"docs/effects.md", guide, "Skein makes " + attempts + " attempts in all."},
		{"docs/effects.md", guide, "`retry.attempts` in all, " + attempts + " when absent"},
		{"docs/effects.md", guide, "with `backoff` (" + backoff + ", doubling) up to `maxBackoff` (" + most + ") between them"},
		{"docs/effects.md", guide, "up to `retry.maxBackoff` (" + most + ")"},
	} {
		if attempts == "" || !strings.Contains(want.text, want.says) {
			t.Errorf("%s does not say %q", want.where, want.says)
		}
	}
}
