//go:build linux && (amd64 || arm64)

package conformance

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox/hostiletest"
	"github.com/skein-dev/skein/test/harness"
)

// every is which of the hostile programs come through the API: all of them run in the suite of the sandbox.
const every = 3

var _ = Describe("Hostile code", func() {
	It("ends as it must, one program after the other in the sandbox of one thread, and the next run is as the first", Label("COD-01", "COD-06"), func(ctx SpecContext) {
		programs, err := hostiletest.Load(engineName())
		Expect(err).NotTo(HaveOccurred())
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		statuses := map[string]int{}
		for i, p := range alone(programs) {
			if i%every != 0 {
				continue
			}
			By(p.Title())
			r, err := t.Code(ctx, runtimev1.CodeRequest{Source: p.Source, MemoryLimitBytes: p.Memory, WallTime: &metav1.Duration{Duration: p.Wall}})
			Expect(err).NotTo(HaveOccurred(), p.Title())
			expected(p, r)
			statuses[r.Status]++
		}
		Expect(len(statuses)).To(BeNumerically(">=", 4), "%v", statuses)
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => [Object.keys(globalThis), 42]"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Result).To(MatchJSON("[[], 42]"))
	}, SpecTimeout(5*time.Minute))
})

func alone(programs []hostiletest.Program) (out []hostiletest.Program) {
	for _, p := range programs {
		if p.Alone() && p.Name != "source that is not there" {
			out = append(out, p)
		}
	}
	return out
}

// expected holds a result against what the program says of itself.
func expected(p hostiletest.Program, r runtimev1.CodeResult) {
	GinkgoHelper()
	var may []string
	for _, s := range p.Status {
		may = append(may, string(s))
	}
	Expect(r.Status).To(BeElementOf(may), "%s: %+v", p.Title(), r.Error)
	if r.Status == runtimev1.CodeMemory {
		Expect(r.MemoryUsedBytes).To(And(BeNumerically(">", 0), BeNumerically("<", 2*p.Memory+20_000_000)), p.Title())
	}
	if r.Status != runtimev1.CodeSuccess {
		Expect(r.Error).NotTo(BeNil(), p.Title())
		Expect(r.Error.Message).To(ContainSubstring(p.Message), p.Title())
		if p.Error != "" {
			Expect(r.Error.Name).To(Equal(p.Error), p.Title())
		}
		return
	}
	if p.HasResult {
		want, err := json.Marshal(p.Result)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Result).To(MatchJSON(want), p.Title())
	}
}
