package txn

import (
	"database/sql"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
)

// Sleep is a set of reasons why the items of a thread's inbox are not taken.
type Sleep int64

// The reasons.
const (
	AsleepParked   Sleep = 1 << iota // by a user's stop (MSG-08)
	AsleepRetained                   // without an object (THR-09)
	// AsleepCutting is no such reason: it says that messages are being removed, see Whole.
	AsleepCutting
	// AsleepDeleting lasts from the deletion of the object until the thread is purged or retained. No replica gets the thread's lease.
	AsleepDeleting
)

// sleeps reports whether the items of the inbox are left alone.
func (l Life) sleeps() bool { return l.Asleep&(AsleepParked|AsleepRetained|AsleepDeleting) != 0 }

// Sleeps reports whether the items of the thread's inbox are left alone.
func (h *Head) Sleeps() bool { return h.Life.sleeps() }

// Deleting reports whether the thread's object was deleted and the thread is about to be purged or retained.
func (h *Head) Deleting() bool { return h.Life.Asleep&AsleepDeleting != 0 }

// Life is the part of a head that rarely changes. Its changes are written at once, not together with the counters.
type Life struct {
	Asleep     Sleep
	woken      bool // by this transaction
	Cleared    bool // by this transaction
	cut        bool // by this transaction
	IdleExpiry int64
	ExpiresAt  sql.NullInt64
}

// Takes returns an error when the thread does not take an operation: a retained thread takes only those about its
// object.
func (h *Head) Takes(op store.Op) error {
	if h.Life.Asleep&AsleepRetained == 0 {
		return nil
	}
	switch op := op.(type) {
	case *store.Retain, *store.Adopt, *store.MarkForPurge:
		return nil
	case *store.Destroy:
		if op.IfExpired {
			return nil // it does not expire, and this stops its timer
		}
	case *store.Enqueue:
		if op.IgnoreTerminated || (op.To != "" && op.To != h.ID) {
			return nil // the receiver decides
		}
	}
	return fmt.Errorf("thread %s: %w", h.ID, store.ErrRetained)
}

// CutError means that messages of a thread are being removed, and that the transaction must wait until they are gone.
type CutError struct{ ThreadID string }

func (e *CutError) Error() string {
	return "messages of thread " + e.ThreadID + " are being removed"
}

// BeginCut records that messages of the thread no longer belong to it, and that later transactions remove them.
func (t *Tx) BeginCut(h *Head) error {
	h.Life.cut = true
	return t.Suspend(h, AsleepCutting)
}

// EndCut records that all of them are removed. For readers nothing has changed, but that the log goes on. So the thread
// keeps its version: a writer that remembers the thread from before reads it again, see Whole.
func (t *Tx) EndCut(h *Head) error {
	h.Life.Asleep &^= AsleepCutting
	t.Notifications = append(t.Notifications, store.Notification{ThreadID: h.ID, Changed: store.ChangedLog})
	_, err := t.Exec(t.Ctx, queries.SetAsleep, int64(h.Life.Asleep), h.Key)
	return err
}

// Whole returns a CutError while messages of the thread are being removed. The transaction that has decided on their
// removal may go on: it sees none of them.
func (h *Head) Whole() error {
	if h.Life.Asleep&AsleepCutting == 0 || h.Life.cut {
		return nil
	}
	return &CutError{ThreadID: h.ID}
}

// Cuts reports whether this transaction has begun to remove messages.
func (h *Head) Cuts() bool { return h.Life.cut }

// Suspend adds a reason to keep inbox items from being taken.
func (t *Tx) Suspend(h *Head, why Sleep) error {
	if h.Life.Asleep&why != 0 {
		return nil
	}
	h.Life.Asleep |= why
	h.Touch(store.ChangedThread)
	_, err := t.Exec(t.Ctx, queries.SetAsleep, int64(h.Life.Asleep), h.Key)
	return err
}

// Wake removes a reason. Items are taken again when it was the last one.
func (t *Tx) Wake(h *Head, why Sleep) error {
	if h.Life.Asleep&why == 0 {
		return nil
	}
	h.Life.Asleep &^= why
	h.Life.woken = true
	h.Touch(store.ChangedThread)
	if h.Waiting > 0 {
		h.Touch(store.ChangedInbox)
	}
	_, err := t.Exec(t.Ctx, queries.SetAsleep, int64(h.Life.Asleep), h.Key)
	return err
}

// SetExpiresAt sets the timer of a thread, or stops it.
func (t *Tx) SetExpiresAt(h *Head, at sql.NullInt64) error {
	if h.Life.ExpiresAt == at {
		return nil
	}
	h.Life.ExpiresAt = at
	_, err := t.Exec(t.Ctx, queries.ArmExpiry, at, h.Key)
	return err
}

// armExpiry sets the timer of a thread in which something has happened since it was destroyed.
func (t *Tx) armExpiry(h *Head) error {
	if h.Life.IdleExpiry == 0 || h.Life.ExpiresAt.Valid || h.Life.Cleared || h.TerminatedAt != 0 || h.Life.Asleep&(AsleepRetained|AsleepDeleting) != 0 {
		return nil
	}
	return t.SetExpiresAt(h, sql.NullInt64{Int64: t.Now + h.Life.IdleExpiry, Valid: true})
}
