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
	use   map[store.QuotaResource]int64
	asked *[][]store.QuotaResource // when it is not nil, the resources of each call
}

func (u used) QuotaUse(_ context.Context, _ string, of ...store.QuotaResource) (map[store.QuotaResource]int64, error) {
	if u.asked != nil {
		*u.asked = append(*u.asked, of)
	}
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
			key := queueKey{"n", forRunning}
			if q.waiting[key] == nil {
				continue
			}
			n, err := q.capacity(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, q.take(key, n)...)
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

// The sums of what has no quota would be read in vain.
func TestOnlyResourcesWithAQuotaAreCounted(t *testing.T) {
	var asked [][]store.QuotaResource
	limits := store.Quotas{store.QuotaMessageBytes: {Hard: 10}, store.QuotaThreads: {Hard: 10}}
	q := New(Options{
		Store:  used{use: map[store.QuotaResource]int64{store.QuotaMessageBytes: 9}, asked: &asked},
		Limits: func(string) store.Quotas { return limits }, Clock: testingclock.NewFakeClock(time.Now()), Log: logr.Discard(),
	})
	check := func(of []store.QuotaResource) {
		t.Helper()
		if err := q.CheckSpent(t.Context(), "n", of); err != nil {
			t.Error(err)
		}
	}
	check(toBegin)
	check(toGoOn)
	limits[store.QuotaCost] = store.QuotaLimit{Hard: 1}
	check(toBegin)
	check(toGoOn)
	want := [][]store.QuotaResource{{store.QuotaMessageBytes}, {store.QuotaCost, store.QuotaMessageBytes}, toGoOn}
	if !slices.EqualFunc(asked, want, slices.Equal) {
		t.Errorf("asked for %v, not for %v", asked, want)
	}
}
