package kube

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// kept is what a port wants to be connected to.
type kept map[string]string

func (k kept) Keep(name, address, serverName string) {
	k[name] = fmt.Sprintf("%s as %s", address, serverName)
}
func (k kept) Drop(name string) { delete(k, name) }
func (k kept) Close() error     { clear(k); return nil }

// A connection waits for each pod that waits, and for no other.
func TestLines(t *testing.T) {
	g := NewWithT(t)
	lines := kept{}
	s := NewPodSandboxes(PodSandboxesOptions{Clock: testingclock.NewFakeClock(metav1.Now().Time), Logger: logr.Discard(), Lines: lines})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Labels: map[string]string{
		skeinv1.LabelPool: "default", skeinv1.LabelSandboxState: SandboxWarm}}, Status: corev1.PodStatus{PodIP: "10.0.0.7"}}
	s.changed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "manager", UID: "m"}})
	s.changed(pod)
	g.Expect(lines).To(BeEmpty(), "it is starting")

	ready := pod.DeepCopy()
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	waits := kept{"u": "10.0.0.7:8443 as sandbox.default.n.skein.dev"}
	s.changed(ready)
	g.Expect(lines).To(Equal(waits))

	claimed := ready.DeepCopy()
	claimed.Labels[skeinv1.LabelSandboxState] = SandboxClaimed
	s.changed(claimed)
	g.Expect(lines).To(BeEmpty(), "its claimer has taken the connection, or is another manager")

	s.changed(ready)
	g.Expect(lines).To(Equal(waits))
	leaving := ready.DeepCopy()
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	s.changed(leaving)
	g.Expect(lines).To(BeEmpty())

	s.changed(ready)
	g.Expect(s.Close()).To(Succeed())
	g.Expect(lines).To(BeEmpty())
}
