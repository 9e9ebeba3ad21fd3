package sandboxes

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// A caller that waited for the turn of a pod that was dropped meanwhile continues with its successor, so that a
// thread has only one record, and one pod, at a time.
func TestAThreadHoldsOnePod(t *testing.T) {
	g := NewWithT(t)
	s := NewPods(PodsOptions{})
	old := s.heldPodOf("t")
	s.drop(old)
	next := s.heldPodOf("t")
	_, ok := s.use(old)
	g.Expect(ok).To(BeFalse())
	h, conn, err := s.turnOf(t.Context(), "t")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h).To(BeIdenticalTo(next))
	g.Expect(conn).To(BeNil())

	// The record is being connected to a new pod when its former pod ends. It stays the thread's.
	pod := types.NamespacedName{Namespace: "n", Name: "p"}
	s.mu.Lock()
	h.pod, s.byPod[pod] = pod, "t"
	s.mu.Unlock()
	s.dropEnded(pod)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = s.turnOf(ctx, "t")
	g.Expect(err).To(MatchError(context.Canceled), "it is one and the same, and not free")
	s.mu.Lock()
	h.pod = types.NamespacedName{Namespace: "n", Name: "q"}
	s.mu.Unlock()
	<-h.turn
	g.Eventually(func() int { return len(h.turn) }).Should(BeZero())
	g.Expect(s.heldPodOf("t")).To(BeIdenticalTo(h))
}

// The record of a failed sandbox is useful only for a moment, and is not kept for threads that do not return to this
// replica.
func TestFailuresAreForgotten(t *testing.T) {
	g := NewWithT(t)
	clk := testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := NewPods(PodsOptions{Clock: clk})
	s.failures.record("a")
	g.Expect(s.failures.isRecent("a")).To(BeTrue())
	clk.Step(failedFor)
	g.Expect(s.failures.isRecent("a")).To(BeFalse())
	s.failures.record("b")
	g.Expect(s.failures.at).To(HaveLen(1))
}

// A run that loses its sandbox because this process ends must not start another pod.
func TestNoPodAfterClose(t *testing.T) {
	g := NewWithT(t)
	s := NewPods(PodsOptions{})
	g.Expect(s.Close()).To(Succeed())
	_, _, err := s.Acquire(t.Context(), &store.Thread{ID: "t"}, "")
	g.Expect(err).To(MatchError(errPodsClosed))
	// Nor may a run that was starting one already.
	_, err = s.createCold(t.Context(), &store.Thread{ID: "t"}, &skeinv1.SandboxPool{}, true)
	g.Expect(err).To(MatchError(errPodsClosed))
	g.Expect(s.bind(&heldPod{threadID: "t"}, &corev1.Pod{}, nil, &skeinv1.SandboxPool{})).To(BeFalse())
	g.Expect(s.held).To(BeEmpty())
}
