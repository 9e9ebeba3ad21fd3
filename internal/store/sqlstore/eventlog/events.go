// Package eventlog reads the log of threads, and keeps the lines that code logs in bounds.
package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Events implements store.Store.
func (s Store) Events(ctx context.Context, threadID string, after int64, limit int) ([]store.Event, error) {
	if limit <= 0 {
		limit = sqldb.DefaultEvents
	}
	events := []store.Event{}
	err := s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		var key, base int64
		if err := c.Row(ctx, queries.KeyAndBase, []any{threadID}, &key, &base); err != nil {
			return err
		}
		if after < base {
			inherited, err := inheritedEvents(ctx, c, key, after, limit)
			if err != nil {
				return err
			}
			events = inherited
		}
		own, err := sqldb.List(ctx, c, scanEvent, queries.Events, key, after, key, after, limit)
		if err != nil {
			return err
		}
		events = append(events, own...)
		hidden, err := messages.HiddenIn(ctx, c, key)
		if err != nil {
			return err
		}
		if hidden != nil {
			events = hideContents(events, hidden)
		}
		if after < base { // the fork's own entries are in order, and so are the inherited ones
			slices.SortStableFunc(events, func(a, b store.Event) int { return cmp.Compare(a.Seq, b.Seq) })
			events = events[:min(limit, len(events))]
		}
		for i := range events {
			if err := addMessage(ctx, c, key, &events[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("events of thread %s: %w", threadID, err)
	}
	return events, nil
}

// hideContents takes the contents of the messages that h says are being removed out of the entries of their creation. It ends before the
// entries of their deletion, some of which are still to be written: readers get all of them, in order, in a moment.
func hideContents(events []store.Event, h *messages.Hidden) []store.Event {
	kept := events[:0]
	for _, e := range events {
		if h.Logs && e.Seq > h.Hi {
			continue
		}
		if e.Type == store.EventMessageCreated && e.Seq > h.Lo {
			e.Data = nil
		}
		kept = append(kept, e)
	}
	return kept
}

// inheritedEvents returns the creation entries of the messages that a fork has inherited.
func inheritedEvents(ctx context.Context, c *sqldb.Conn, key, after int64, limit int) ([]store.Event, error) {
	events := []store.Event{}
	inherited, err := messages.Segments(ctx, c, queries.Segments, key, after)
	if err != nil {
		return nil, err
	}
	for _, s := range inherited {
		if s.Source == key || len(events) >= limit {
			continue
		}
		part, err := sqldb.List(ctx, c, scanEvent, queries.InheritedEvents, s.Source, max(s.Lo, after), s.Hi, limit-len(events))
		if err != nil {
			return nil, err
		}
		events = append(events, part...)
	}
	return events, nil
}

// scanEvent reads an entry of the log, or a message as the entry of its creation.
func scanEvent(scan sqldb.Scanner) (*store.Event, error) {
	var e store.Event
	var data sqldb.Text
	var r messages.Row
	if err := scan(&e.Seq, &e.Type, &e.RunID, &e.MessageID, &data, &e.CreatedAt,
		&r.Message.Role, &r.Message.Silent, &r.Message.Depth, &r.Message.Status, &r.ToolCallID, &r.Content, &r.Rest); err != nil {
		return nil, err
	}
	e.Data = data.Raw()
	if r.Message.Role == "" {
		return &e, nil
	}
	r.Message.Seq, r.Message.ID, r.Message.RunID, r.Message.CreatedAt = e.Seq, e.MessageID, e.RunID, e.CreatedAt
	m, err := r.Decode()
	if err != nil {
		return nil, err
	}
	e.Data, err = json.Marshal(m)
	return &e, err
}

// addMessage fills in the message that an entry refers to: the stored one, or else the one in the inbox.
func addMessage(ctx context.Context, c *sqldb.Conn, key int64, e *store.Event) error {
	if e.Data != nil || (e.Type != store.EventMessageUpdated && e.Type != store.EventMessageQueued) {
		return nil
	}
	m, err := messages.Scan(c.One(ctx, queries.MessageByKey, key, e.MessageID))
	if errors.Is(err, store.ErrNotFound) && e.Type == store.EventMessageQueued {
		var item *store.InboxItem
		if item, err = inbox.Scan(c.One(ctx, queries.InboxItem, key, e.Seq)); err == nil {
			m, err = messages.Queued(item)
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	e.Data, err = json.Marshal(m)
	return err
}

// LogEntries implements store.SessionStore.
func (s Store) LogEntries(ctx context.Context, threadID string, after int64, limit int, types ...string) (events []store.Event, err error) {
	if limit <= 0 {
		limit = sqldb.DefaultEvents
	}
	query := queries.LogEntries + strings.TrimSuffix(strings.Repeat("?, ", len(types)), ", ") + `) ORDER BY seq LIMIT ?`
	err = s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) error {
		args := []any{key, after}
		for _, t := range types {
			args = append(args, t)
		}
		events, err = sqldb.List(ctx, c, scanLine, query, append(args, limit)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("log of thread %s: %w", threadID, err)
	}
	return events, nil
}

// LastEdit implements store.Store.
func (s Store) LastEdit(ctx context.Context, threadID string, after int64) (seq int64, err error) {
	err = s.DB.Readers.Row(ctx, queries.LastEdit, []any{after, threadID}, &seq)
	if err != nil {
		return 0, fmt.Errorf("log of thread %s: %w", threadID, err)
	}
	return seq, nil
}

// Store reads the log.
type Store struct{ DB *txn.DB }
