package sandboxes

import (
	"fmt"
	"maps"
	"sync"
	"testing"

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
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// kept records what a port wants to be connected to.
type kept struct {
	mu          sync.Mutex
	connections map[string]string
}

func (k *kept) Keep(name, address, serverName string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.connections[name] = fmt.Sprintf("%s as %s", address, serverName)
}

func (k *kept) Drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.connections, name)
}

func (k *kept) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.connections)
	return nil
}

func (k *kept) all() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.connections)
}

// connectionsPort returns a port with a pool that it has not seen yet, and pods.
func connectionsPort(g *WithT, pods ...client.Object) (*Pods, *kept, *skeinv1.SandboxPool) {
	scheme := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pods...)
	for _, i := range objects.Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	connections := &kept{connections: map[string]string{}}
	s := NewPods(PodsOptions{Client: b.Build(), Clock: testingclock.NewFakeClock(metav1.Now().Time), Logger: logr.Discard(), Connections: connections})
	return s, connections, &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "default", UID: "pool"}}
}

func readyPod(uid, pool string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "pod-" + uid, UID: "u", Labels: map[string]string{skeinv1.LabelPool: pool, skeinv1.LabelSandboxState: sandboxpod.Warm}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return p
}

func ownerOf(pool *skeinv1.SandboxPool) *metav1.OwnerReference {
	return metav1.NewControllerRef(pool, skeinv1.GroupVersion.WithKind("SandboxPool"))
}

// There is a connection to each warm pod, and to no other.
func TestConnections(t *testing.T) {
	g := NewWithT(t)
	s, connections, pool := connectionsPort(g)
	s.warm.setPool(t.Context(), pool, true)
	ready := readyPod("u", "default", ownerOf(pool))
	pod := ready.DeepCopy()
	pod.Status.Conditions = nil
	s.handleChange(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "manager", UID: "m"}})
	s.handleChange(pod)
	g.Expect(connections.all()).To(BeEmpty(), "it is starting")

	waits := map[string]string{"u": "10.0.0.7:8443 as sandbox.default.n.skein.dev"}
	s.handleChange(ready)
	g.Expect(connections.all()).To(Equal(waits))

	claimed := ready.DeepCopy()
	claimed.Labels[skeinv1.LabelSandboxState] = sandboxpod.Claimed
	s.handleChange(claimed)
	g.Expect(connections.all()).To(BeEmpty(), "its claimer has taken the connection, or is another manager")

	s.handleChange(ready)
	g.Expect(connections.all()).To(Equal(waits))
	leaving := ready.DeepCopy()
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	s.handleChange(leaving)
	g.Expect(connections.all()).To(BeEmpty())

	s.handleChange(ready)
	g.Expect(s.Close()).To(Succeed())
	g.Expect(connections.all()).To(BeEmpty())
}

// Foreign pods with the labels get no connection, and a pool's own pods get theirs in any order in which pool and
// pods are seen.
func TestConnectionsOfPoolsOnly(t *testing.T) {
	g := NewWithT(t)
	own := readyPod("u", "default", &metav1.OwnerReference{APIVersion: "skein.dev/v1alpha1", Kind: "SandboxPool", Name: "default", UID: "pool", Controller: new(bool)})
	*own.OwnerReferences[0].Controller = true
	s, connections, pool := connectionsPort(g, own)
	s.handleChange(own)
	g.Expect(connections.all()).To(BeEmpty(), "the pool is not known yet")
	s.warm.setPool(t.Context(), pool, true)
	g.Eventually(connections.all).Should(HaveKey("u"))
	connections.Drop("u")

	another := pool.DeepCopy()
	another.Name, another.UID = "another", "another"
	notControlled := ownerOf(pool)
	notControlled.Controller = nil
	for why, p := range map[string]*corev1.Pod{
		"nobody's":              readyPod("u", "default", nil),
		"of a pool that is not": readyPod("u", "another", ownerOf(another)),
		"of another pool":       readyPod("u", "another", ownerOf(pool)),
		"not the pool's own":    readyPod("u", "default", notControlled),
	} {
		s.handleChange(p)
		g.Expect(connections.all()).To(BeEmpty(), why)
	}
	s.handleChange(own)
	g.Expect(connections.all()).To(HaveKey("u"))
	connections.Drop("u")
	s.warm.setPool(t.Context(), pool, false)
	s.handleChange(own)
	g.Expect(connections.all()).To(BeEmpty(), "the pool is no more")
}
