package watches

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func requestOf(namespace string, n int) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(n)}}
}

// queueOf returns the queue that a controller of this number of workers gets.
func queueOf(t *testing.T, workers int) priorityqueue.PriorityQueue[ctrl.Request] {
	o := Options(workers)
	q := o.NewQueue(t.Name(), workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry))
	return q.(priorityqueue.PriorityQueue[ctrl.Request])
}

// Reconciles of one namespace may take long, such as those of sources that take long to compile.
func TestObjectsOfOneNamespaceHoldUpNoOthers(t *testing.T) {
	g := NewWithT(t)
	for _, workers := range []int{2, 8, 16} {
		q := queueOf(t, workers)
		for n := range 1000 {
			q.Add(requestOf("flood", n))
		}
		var work sync.WaitGroup
		var began, ended atomic.Int64
		release, calm := make(chan struct{}), make(chan struct{})
		for range workers {
			work.Go(func() {
				for {
					r, shutdown := q.Get()
					if shutdown {
						return
					}
					if r.Namespace == "flood" {
						began.Add(1)
						<-release
						ended.Add(1)
					} else {
						close(calm)
					}
					q.Done(r)
				}
			})
		}
		g.Eventually(began.Load, time.Minute).Should(BeNumerically(">=", max(workers*3/4, 1)))
		q.Add(requestOf("calm", 1))
		g.Eventually(calm, time.Minute).Should(BeClosed())
		close(release)
		g.Eventually(ended.Load, time.Minute).Should(BeEquivalentTo(1000), "nothing that was set aside is forgotten")
		q.ShutDown()
		work.Wait()
	}
}

func TestWhatIsSetAsideIsKeptOnceInOrder(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 2)
	q.Add(requestOf("flood", 0))
	under, _ := q.Get()
	low := -100
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, requestOf("flood", 1), requestOf("flood", 2))
	q.Add(requestOf("calm", 0))
	calm, _ := q.Get() // sets the other two aside, at the latest when it is asked again
	g.Expect(calm.Namespace).To(Equal("calm"))
	for range 3 { // they change again and again
		for n := 3; n >= 2; n-- {
			q.Add(requestOf("flood", n))
		}
	}
	q.Done(calm)
	next := make(chan ctrl.Request)
	go func() {
		defer close(next)
		for {
			r, shutdown := q.Get()
			if shutdown {
				return
			}
			next <- r
		}
	}()
	aside := func() int {
		s := q.(*sharedQueue)
		s.mu.Lock()
		defer s.mu.Unlock()
		if a := s.aside["flood"]; a != nil {
			return len(a.priorities)
		}
		return 0
	}
	g.Eventually(aside, time.Minute).Should(Equal(3))
	g.Eventually(q.Len, time.Minute).Should(BeZero())
	done := under
	for _, want := range []int{3, 2, 1} {
		q.Done(done)
		g.Eventually(next, time.Minute).Should(Receive(&done))
		g.Expect(done).To(Equal(requestOf("flood", want)))
	}
	q.Done(done)
	g.Expect(aside()).To(BeZero())
	q.ShutDown()
	g.Eventually(next, time.Minute).Should(BeClosed())
}

func TestWhatIsDuePassesWhatIsSetAside(t *testing.T) {
	g := NewWithT(t)
	a := &aside{priorities: map[ctrl.Request]int{}}
	for n := range 3 {
		a.add(requestOf("flood", n), 0)
	}
	a.add(requestOf("flood", 3), MissedPriority)
	a.add(requestOf("flood", 6), DependentPriority)
	a.add(requestOf("flood", 5), ChangedPriority)
	a.add(requestOf("flood", 4), 100)
	a.add(requestOf("flood", 2), 100) // it becomes due while it waits because it changed
	a.add(requestOf("flood", 2), 0)
	type set struct{ n, priority int }
	for _, want := range []set{{4, 100}, {2, 100}, {5, 10}, {0, 0}, {1, 0}, {6, -50}, {3, -100}} {
		request, priority := a.next()
		g.Expect(request).To(Equal(requestOf("flood", want.n)))
		g.Expect(priority).To(Equal(want.priority))
	}
	g.Expect(a.priorities).To(BeEmpty())
}
