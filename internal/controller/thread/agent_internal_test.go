package thread

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// wokenEngine records the threads that may have waited for their definitions.
type wokenEngine struct {
	Engine
	ids []string
}

func (e *wokenEngine) WakeRefused(id string) { e.ids = append(e.ids, id) }

// The status of a thread may wait when its agent becomes ready, its work may not.
func TestThreadsGoOnWhenTheirAgentBecomesReady(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range objects.Indexes() {
		if _, ok := i.Object.(*skeinv1.Thread); ok {
			b = b.WithIndex(i.Object, i.Field, i.Extract)
		}
	}
	thread := func(namespace, name, agent string) *skeinv1.Thread {
		o := &skeinv1.Thread{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: agent}}}
		o.Namespace, o.Name, o.UID = namespace, name, types.UID(namespace+"-"+name)
		return o
	}
	b = b.WithObjects(thread("n", "one", "a"), thread("n", "two", "a"), thread("n", "other", "b"), thread("elsewhere", "one", "a"))
	engine := &wokenEngine{}
	r := &Reconciler{Options: Options{Engine: engine}}
	h, q := r.agentReady(b.Build()), controllertest.NewQueue()
	agent := func(status metav1.ConditionStatus, message string) *skeinv1.Agent {
		a := &skeinv1.Agent{}
		a.Namespace, a.Name = "n", "a"
		a.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: status, Message: message}}
		return a
	}
	const ready, not = metav1.ConditionTrue, metav1.ConditionFalse
	for name, c := range map[string]struct {
		before, after *skeinv1.Agent
		woken         bool
	}{
		"becomes ready":     {agent(not, "x"), agent(ready, ""), true},
		"is still ready":    {agent(ready, ""), agent(ready, ""), false},
		"is still not":      {agent(not, "x"), agent(not, "y"), false},
		"is not any more":   {agent(ready, ""), agent(not, "x"), false},
		"is there":          {nil, agent(ready, ""), true},
		"is there, not yet": {nil, agent(not, "x"), false},
	} {
		engine.ids = nil
		if c.before == nil {
			h.Create(t.Context(), event.CreateEvent{Object: c.after}, q)
		} else {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}, q)
		}
		if c.woken {
			g.Expect(engine.ids).To(ConsistOf("n-one", "n-two"), name)
		} else {
			g.Expect(engine.ids).To(BeEmpty(), name)
		}
	}
	g.Expect(q.Due).To(BeEmpty(), "statuses are computed for other requests")
}
