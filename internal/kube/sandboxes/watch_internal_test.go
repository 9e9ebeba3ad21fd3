package sandboxes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
)

// A manager that starts finds pods that an earlier one claimed, and gives them up when they are idle.
func TestAdoption(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Labels: map[string]string{
		skeinv1.LabelPool: "default", skeinv1.LabelSandboxState: sandboxpod.Claimed, skeinv1.LabelThreadID: "t"}}, Status: corev1.PodStatus{PodIP: "10.0.0.7"}}
	pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "default"},
		Spec: skeinv1.SandboxPoolSpec{IdleTimeout: &metav1.Duration{Duration: 20 * time.Second}}}
	clk := testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, pool).Build()
	asked := make(chan Endpoint, 1)
	s := NewPods(PodsOptions{Client: c, Clock: clk, Logger: logr.Discard(), Dial: func(_ context.Context, e Endpoint) (sandbox.Sandbox, error) {
		asked <- e
		return nil, errors.New("nobody answers")
	}})
	exists := func() bool {
		var p corev1.Pod
		return c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "p"}, &p) == nil
	}

	s.handleChange(pod)
	s.handleChange(pod) // an update changes nothing
	g.Eventually(clk.HasWaiters).Should(BeTrue())
	clk.Step(19 * time.Second)
	g.Expect(exists()).To(BeTrue())
	clk.Step(time.Second)
	g.Eventually(exists).Should(BeFalse())
	g.Expect(asked).To(Receive(Equal(Endpoint{Address: "10.0.0.7:8443", ServerName: "sandbox.default.n.skein.dev", ThreadID: "t"})), "it was asked whether it idles")

	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	s.handleChange(ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.Expect(s.held).To(BeEmpty(), "what has ended is not taken over")
}
