// Package threads serves the record of a thread, its life from stop to purge, and the lists of threads.
package threads

import (
	"context"
	"errors"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// shownOfEach bounds each list within a thread's record.
const shownOfEach = 100

// shownBytes bounds the texts of the queued messages within a thread's record.
const shownBytes = 1 << 20

// Records serves the record of a thread.
type Records struct {
	Threads *thread.Service
	Find    *lookup.Finder
}

// Get answers GET of the thread itself (THR-02).
func (h *Records) Get(c *call.Call) error { return h.write(c) }

// write answers with the record of the thread as it is now.
func (h *Records) write(c *call.Call) error {
	row, err := c.Thread.Info(c.Context())
	if err != nil {
		return err
	}
	record, err := h.Record(c.Context(), row)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, record)
}

// Record returns the record of a thread that was read.
func (h *Records) Record(ctx context.Context, row *store.Thread) (*runtimev1.ThreadRecord, error) {
	last, err := h.Threads.Store().Run(ctx, row.ID, "")
	if errors.Is(err, store.ErrNotFound) {
		last = nil
	} else if err != nil {
		return nil, err
	}
	record := convert.ThreadRecord(row, last)
	return record, h.addRelated(ctx, row, record)
}

// addRelated adds the first queued messages and the relationships to a record. They are not in the thread's row.
func (h *Records) addRelated(ctx context.Context, row *store.Thread, r *runtimev1.ThreadRecord) error {
	if row.Queued > 0 {
		adjust, err := membudget.Reserve(ctx, shownBytes)
		if err != nil {
			return err
		}
		waiting, err := h.Threads.StateOf(row).QueuedMessages(ctx, store.MessageQuery{Limit: shownOfEach, MaxBytes: shownBytes})
		if err != nil {
			return err
		}
		adjust(waiting.Bytes())
		r.QueuedMessages = convert.Messages(waiting.Messages)
	}
	rs, _, err := h.Threads.Store().Relationships(ctx, row.ID, shownOfEach, 0)
	if err != nil {
		return err
	}
	if len(rs) > 0 {
		r.Relationships = convert.Relationships(rs)
	}
	return nil
}
