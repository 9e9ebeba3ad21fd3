package effects

import (
	"errors"
	"testing"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// TestTargetOfANewerRelease expects that a firing which only a newer release can carry out waits for that, and does not fail (K8S-10).
func TestTargetOfANewerRelease(t *testing.T) {
	for _, target := range []string{`{"needs":99,"teleport":{"to":"mars"}}`, `{"tool":["one","two"]}`} {
		_, err := TargetOf(&store.Firing{Target: []byte(target)})
		var wait *WaitError
		if !errors.As(err, &wait) {
			t.Errorf("TargetOf(%s): %v", target, err)
		}
		w := &Worker{opts: Options{Clock: clock.RealClock{}}}
		if end := w.outcome(&store.Firing{}, Target{}, err); end.Status != store.FiringPending || end.Waiting == "" {
			t.Errorf("outcome of %s: %+v", target, end)
		}
	}
}
