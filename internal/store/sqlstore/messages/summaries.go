package messages

import (
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// setSummaryRange fills in the sequence numbers of the messages that a summary stands for, and returns the value of the column
// summary_to: the last of them, or nil for any other message.
func setSummaryRange(t *txn.Tx, h *txn.Head, m *store.Message) (summaryTo any, err error) {
	s := m.Summary
	if s == nil {
		return nil, nil
	}
	for _, end := range []struct {
		id  string
		seq *int64
	}{{s.From, &s.FromSeq}, {s.To, &s.ToSeq}} {
		if *end.seq, err = has(t, h, end.id); err != nil {
			return nil, fmt.Errorf("message %s stands for message %s: %w", m.ID, end.id, err)
		}
	}
	if s.FromSeq > s.ToSeq {
		return nil, fmt.Errorf("message %s stands for the messages from %s to %s, which are in the other order", m.ID, s.From, s.To)
	}
	return s.ToSeq, nil
}

// dropSummaries removes the summaries that stand for a message of the thread, because the message was changed or removed.
// What the thread has inherited it removes for this thread only.
func dropSummaries(t *txn.Tx, h *txn.Head, seq int64) error {
	found, err := sqldb.List(t.Ctx, t, Scan, queries.Summaries, h.Key, seq, seq, h.LastSeq)
	if err != nil {
		return err
	}
	if seq < h.Base {
		inherited, err := Segments(t.Ctx, t, queries.Segments, h.Key, seq)
		if err != nil {
			return err
		}
		for _, s := range inherited {
			if s.Source == h.Key {
				continue
			}
			more, err := sqldb.List(t.Ctx, t, Scan, queries.Summaries, s.Source, seq, max(s.Lo, seq), s.Hi)
			if err != nil {
				return err
			}
			found = append(found, more...)
		}
	}
	for _, m := range found {
		if m.Summary == nil || m.Summary.FromSeq > seq {
			continue
		}
		own, err := find(t, h, m.ID) // the thread's own copy
		if err != nil {
			return err
		}
		if err := dropMessage(t, h, own); err != nil {
			return err
		}
	}
	return nil
}
