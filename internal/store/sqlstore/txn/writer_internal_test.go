package txn

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/skein-dev/skein/internal/store"
)

// answering is a committer whose transactions end as the test says.
type answering struct{ end func(j *job) }

func (a answering) commit(batch []*job) {
	for _, j := range batch {
		j.notifications = []store.Notification{{ThreadID: j.threads[0]}}
		a.end(j)
	}
}

func (answering) close() error { return nil }

// A repeat of a transaction that was committed without an answer changes nothing, and so it tells nothing.
func TestATransactionThatMayHaveBeenCommittedIsTold(t *testing.T) {
	var told []string
	w := newWriter(10, answering{func(j *job) {
		switch j.threads[0] {
		case "refused":
			j.err = store.ErrFenced
		case "unanswered":
			j.err, j.unknown = store.ErrUnavailable, true
		}
	}}, func(n []store.Notification) { told = append(told, n[0].ThreadID) })
	for _, id := range []string{"written", "refused", "unanswered"} {
		_ = w.do(t.Context(), func(*Tx) error { return nil }, []string{id})
	}
	if !slices.Equal(told, []string{"written", "unanswered"}) {
		t.Errorf("told %q", told)
	}
}

// Lease releases are the last transactions of a replica, and others wait for their notifications.
func TestAWriterIsClosedOnceItsNotificationsWerePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		w := newWriter(10, answering{func(*job) {}}, func([]store.Notification) { <-leave })
		go func() { _ = w.do(context.Background(), func(*Tx) error { return nil }, []string{"t"}) }()
		synctest.Wait()
		closed := false
		go func() {
			_ = w.close()
			closed = true
		}()
		synctest.Wait()
		if closed {
			t.Error("the writer was closed before its notification was passed on")
		}
		close(leave)
		synctest.Wait()
		if !closed {
			t.Error("the writer was not closed")
		}
	})
}
