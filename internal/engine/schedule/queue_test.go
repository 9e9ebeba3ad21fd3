package schedule_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/store"
)

// threads is a store that knows the namespaces of threads, and nothing else.
type threads struct {
	store.Store
	namespaces map[string]string
}

func (t threads) Thread(_ context.Context, id string) (*store.Thread, error) {
	if ns, ok := t.namespaces[id]; ok {
		return &store.Thread{ID: id, Namespace: ns}, nil
	}
	return nil, store.ErrNotFound
}

func queueOf(ids ...string) *schedule.Queue {
	namespaces := map[string]string{}
	for _, id := range ids {
		namespaces[id] = "ns"
	}
	return schedule.NewQueue(schedule.Options{Store: threads{namespaces: namespaces}, Clock: clock.RealClock{}, Log: logr.Discard(), Workers: 4})
}

func TestQueueHandsOutEachThreadOnceAtATime(t *testing.T) {
	q := queueOf("a", "b")
	var mu sync.Mutex
	count, at := map[string]int{}, map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Run(context.Background(), func(_ context.Context, id string) {
			mu.Lock()
			if at[id] {
				t.Errorf("two workers have %s", id)
			}
			at[id] = true
			count[id]++
			again := count[id] < 20
			mu.Unlock()
			if again {
				q.Add(id) // while this worker has it
			}
			mu.Lock()
			at[id] = false
			all := count["a"] >= 20 && count["b"] >= 20
			mu.Unlock()
			if all {
				q.ShutDown()
			}
		})
	}()
	q.Add("a")
	q.Add("b")
	q.Add("deleted")
	<-done
	q.Wait()
	if count["deleted"] != 0 {
		t.Error("a thread that the store does not know was handed out")
	}
}

func TestQueueTellsNotifiedThreadsFromOthers(t *testing.T) {
	q := queueOf("a")
	q.Add("a")
	if q.TakeNotified("a") {
		t.Error("nothing was in the inbox")
	}
	q.AddNotified("a")
	if !q.TakeNotified("a") || q.TakeNotified("a") {
		t.Error("a notification is taken once")
	}
	q.Delay("a", true)
	if !q.IsDelayed("a") {
		t.Error("the thread waits for its retry")
	}
	q.Delay("a", false)
	if q.IsDelayed("a") {
		t.Error("the thread waits no longer")
	}
}

func TestThreadWaitsForAModelUntilThereIsRoom(t *testing.T) {
	q := queueOf("a")
	full := true
	turnedAway := func() {
		deferral := q.ExpectResume("a")
		deferral.Full = func() bool { return full }
		q.WaitForModel(deferral)
	}
	turnedAway()
	if !q.WaitsForModel("a") {
		t.Error("the model has no room")
	}
	full = false
	if q.WaitsForModel("a") {
		t.Error("the model has room")
	}
	full = true
	turnedAway()
	q.Resume("a")
	if q.WaitsForModel("a") {
		t.Error("its turn has come")
	}
	turnedAway()
	q.ForgetWait("a")
	if q.WaitsForModel("a") {
		t.Error("its definitions have changed")
	}
}

// The turn may come between the model's answer and the note that the thread waits.
func TestThreadDoesNotWaitForATurnThatHasCome(t *testing.T) {
	q := queueOf("a")
	deferral := q.ExpectResume("a")
	deferral.Full = func() bool { return true }
	deferral.Resume()
	q.WaitForModel(deferral)
	if q.WaitsForModel("a") {
		t.Error("nobody would resume the thread")
	}
	deferral = q.ExpectResume("a") // the turn that has come was that of the call before
	deferral.Full = func() bool { return true }
	q.WaitForModel(deferral)
	if !q.WaitsForModel("a") {
		t.Error("this call was deferred, and its turn has not come")
	}
}

// due is a store with parked runs.
type due struct {
	store.Store
	mu    sync.Mutex
	wakes []store.Wake
	err   error
}

func (d *due) Wakes(_ context.Context, limit, offset int) ([]store.Wake, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	return d.wakes[min(offset, len(d.wakes)):min(offset+limit, len(d.wakes))], nil
}

func TestTimersQueueWhatIsDue(t *testing.T) {
	s := &due{err: errors.New("the database is away")}
	added := make(chan string, 10)
	timers := schedule.NewTimers(s, clock.RealClock{}, 10*time.Millisecond, func(id string) { added <- id }, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		timers.Run(ctx)
	}()
	s.mu.Lock()
	s.err, s.wakes = nil, []store.Wake{{RunRef: store.RunRef{ThreadID: "past"}, At: 1}, {RunRef: store.RunRef{ThreadID: "never"}, At: time.Now().Add(time.Hour).UnixMicro()}}
	s.mu.Unlock()
	if id := <-added; id != "past" {
		t.Errorf("%s is queued", id)
	}
	cancel()
	<-stopped
	close(added)
	for id := range added {
		if id != "past" {
			t.Errorf("%s is queued", id)
		}
	}
}
