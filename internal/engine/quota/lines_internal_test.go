package quota

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
)

// used is a store that says what a namespace uses.
type used struct {
	store.Store
	use map[store.QuotaResource]int64
}

func (u used) QuotaUse(context.Context, string) (map[store.QuotaResource]int64, error) {
	return u.use, nil
}

// A run that has begun may finish when the bytes of messages are used up. So it may when it waits for one of the running threads to end.
func TestUsedUpMessagesHoldUpOnlyThoseThatBegin(t *testing.T) {
	limits := store.Quotas{store.QuotaMessageBytes: {Hard: 10}, store.QuotaRunningThreads: {Hard: 2}}
	q := New(Options{
		Store:  used{use: map[store.QuotaResource]int64{store.QuotaMessageBytes: 10, store.QuotaRunningThreads: 1}},
		Limits: func(string) store.Quotas { return limits }, Clock: testingclock.NewFakeClock(time.Now()), Log: logr.Discard(),
	})
	for thread, resource := range map[string]store.QuotaResource{"begins": store.QuotaMessageBytes, "resumes": store.QuotaRunningThreads} {
		q.AddWaiting(&WaitError{&store.NamespaceQuotaError{Namespace: "n", Resource: resource}}, thread)
	}
	woken := func() (ids []string) {
		for _, forRunning := range []bool{true, false} {
			key := lineKey{"n", forRunning}
			if q.waiting[key] == nil {
				continue
			}
			room, err := q.room(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, q.take(key, room)...)
		}
		return ids
	}
	if got := woken(); !slices.Equal(got, []string{"resumes"}) {
		t.Errorf("without room for messages %v", got)
	}
	limits[store.QuotaMessageBytes] = store.QuotaLimit{Hard: 11}
	if got := woken(); !slices.Equal(got, []string{"begins"}) {
		t.Errorf("with room for messages %v", got)
	}
}
