package watches_test

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/watches"
)

// doubting is a client that doubts one object.
type doubting struct {
	client.Client
	name string
}

func (d doubting) Doubtful(o client.Object) bool { return o.GetName() == d.name }

// update is a change of the status of a Thread, and of its spec when the generation is above 1.
func update(name string, generation int64) event.UpdateEvent {
	o := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	changed := o.DeepCopy()
	changed.Generation = generation
	changed.Status.Phase = "Idle"
	return event.UpdateEvent{ObjectOld: o, ObjectNew: changed}
}

func TestChangesOfTheSpecPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		for _, c := range []client.Client{nil, doubting{name: "doubtful"}} {
			p := watches.SpecChanged(c)
			time.Sleep(3 * time.Minute)
			g.Expect(p.Create(event.CreateEvent{Object: &skeinv1.Thread{}})).To(BeTrue())
			g.Expect(p.Delete(event.DeleteEvent{Object: &skeinv1.Thread{}})).To(BeTrue())
			g.Expect(p.Update(update("t", 2))).To(BeTrue())
			g.Expect(p.Update(update("t", 1))).To(BeFalse())
		}
	})
}

// Otherwise a status that the controller wrote, and did not see when it looked again, would stay although nothing is the matter any more.
func TestChangesOfTheStatusPassWhenTheControllerMayHaveReadAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := watches.SpecChanged(doubting{name: "doubtful"})
		g.Expect(p.Update(update("other", 1))).To(BeTrue(), "the leader before may have made it")
		time.Sleep(3 * time.Minute)
		g.Expect(p.Update(update("other", 1))).To(BeFalse())
		g.Expect(p.Update(update("doubtful", 1))).To(BeTrue())
	})
}
