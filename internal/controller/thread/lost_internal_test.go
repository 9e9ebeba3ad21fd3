package thread

import (
	"testing"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/thread"
)

// A Thread that is deleted while it waits leaves nothing behind, and the next one of its name is checked for lost calls (SUB-08).
func TestLostCallsOfADeletedThreadAreForgotten(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Client: fake.NewClientBuilder().WithScheme(controllertest.Scheme()).Build(), Threads: thread.NewService(thread.Options{})})
	req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "demo", Name: "a"}}
	g.Expect(r.lost.startCheck(req)).To(BeTrue())
	g.Expect(r.Reconcile(t.Context(), req)).To(BeZero())
	g.Expect(r.lost.checked).To(BeEmpty())
}
