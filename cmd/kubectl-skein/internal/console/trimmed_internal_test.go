package console

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// A watch ends when it is stopped, also while an event waits that is not taken any more.
func TestAStoppedWatchEnds(t *testing.T) {
	from := watch.NewFake()
	trimmed := make(chan struct{}, 1)
	w := newTrimmedWatch(from, func(o runtime.Object) (*item, error) {
		trimmed <- struct{}{}
		return &item{ObjectMeta: metav1.ObjectMeta{Name: o.(*skeinv1.Thread).Name}}, nil
	})
	from.Add(&skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	<-trimmed
	w.Stop()
	w.Stop()                   // a second time is no error
	for range w.ResultChan() { // it is closed, perhaps after the event
	}
}
