package scheduledeffect

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func TestAnEventOfAThreadLooksAtItsEffectsOnly(t *testing.T) {
	var u unowned
	req := func(n int) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("s-", n)}}
	}
	of := func(n int) lent {
		return lent{effect: types.UID(fmt.Sprint("e-", n)), thread: types.UID(fmt.Sprint("t-", n/2))}
	}
	thread := func(n int) *skeinv1.Thread {
		return &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("t-", n))}}
	}
	for n := range 6 {
		if !u.add(req(n), of(n)) || u.add(req(n), of(n)) {
			t.Fatalf("effect %d is new once", n)
		}
	}
	if n := len(u.of["t-1"]); n != 2 {
		t.Errorf("the Thread has %d effects, want 2", n)
	}

	u.noteThread(thread(1), true)
	for n := range 6 {
		lost, handled := u.hasLostThread(req(n), lent{effect: of(n).effect, thread: "other"})
		if !lost || handled != (n/2 == 1) {
			t.Errorf("effect %d: lost %v, handled %v", n, lost, handled)
		}
	}

	leaving := thread(2)
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{metav1.FinalizerOrphanDependents}
	u.noteThread(leaving, false)
	u.forget(req(0))
	u.add(req(1), lent{effect: "another", thread: "t-0"})
	u.forget(req(1))
	u.forget(req(2))
	u.forget(req(3))
	if len(u.all) != 0 || len(u.of) != 0 {
		t.Errorf("%v and %v are left", u.all, u.of)
	}
}
