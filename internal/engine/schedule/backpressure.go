package schedule

import "github.com/skein-dev/skein/internal/model"

// A Model with few permits must not hold all workers. A run that would wait behind many others for its turn releases its worker and
// its lease. The model calls Resume for it when its turn has come. Until then only the id of its thread is in memory.

// backpressure records which threads wait for a model. The lock of the Queue guards it.
type backpressure struct {
	waiting map[string]*model.Deferral
	// resumed are threads for which Resume was called before they began to wait.
	resumed map[string]bool
}

func newBackpressure() backpressure {
	return backpressure{waiting: map[string]*model.Deferral{}, resumed: map[string]bool{}}
}

// ExpectResume returns the Request.Deferral of a model call: with it the model may defer the call, and calls Resume when there is room.
func (q *Queue) ExpectResume(id string) *model.Deferral {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.resumed, id)
	return &model.Deferral{Key: id, Resume: func() { q.Resume(id) }}
}

// WaitForModel records that the model has deferred a call. If Resume was called in the meantime, the thread does not wait.
func (q *Queue) WaitForModel(deferral *model.Deferral) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.resumed[deferral.Key] {
		q.waiting[deferral.Key] = deferral
	}
	delete(q.resumed, deferral.Key)
}

// Resume queues a thread whose turn at the model has come.
func (q *Queue) Resume(id string) {
	q.mu.Lock()
	if q.waiting[id] == nil {
		q.resumed[id] = true
	}
	delete(q.waiting, id)
	q.mu.Unlock()
	q.work.Add(id)
}

// WaitsForModel reports whether a thread waits for its turn at a model that still has no room. There is no use in looking at the
// thread then.
func (q *Queue) WaitsForModel(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	deferral := q.waiting[id]
	if deferral != nil && !deferral.Full() {
		delete(q.waiting, id)
		return false
	}
	return deferral != nil
}

// ForgetWait forgets that a thread waits for a model, so that it is tried again, because its definitions have changed.
func (q *Queue) ForgetWait(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, id)
}
