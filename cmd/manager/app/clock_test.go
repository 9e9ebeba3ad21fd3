package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/ownclock"
)

func TestClockMovesForTestsAlone(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "clock")
	g.Expect(os.WriteFile(file, []byte("2h"), 0o600)).To(Succeed())
	o := Options{Kubeconfig: "somewhere", Logger: logr.Discard()}
	t.Setenv(clockEnv, "")
	g.Expect(o.watchClock(t.Context())).To(Succeed())
	g.Expect(time.Until(ownclock.Now())).To(BeNumerically("<", time.Hour))

	t.Setenv(clockEnv, file)
	t.Setenv("POD_NAME", "skein-manager-0")
	g.Expect(o.watchClock(t.Context())).To(MatchError(ContainSubstring("SKEIN_TEST_CLOCK is for tests of a manager outside of a cluster, and moves its clock: remove this variable")))
	g.Expect(time.Until(ownclock.Now())).To(BeNumerically("<", time.Hour))
	t.Setenv("POD_NAME", "")
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	pod := Options{Logger: logr.Discard()}
	g.Expect(pod.watchClock(t.Context())).NotTo(Succeed(), "a pod without its name")
	g.Expect(o.watchClock(t.Context())).To(Succeed())
	g.Expect(time.Until(ownclock.Now())).To(BeNumerically(">", time.Hour))
}
