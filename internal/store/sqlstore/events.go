package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, threadID string, after int64, limit int) ([]store.Event, error) {
	if limit <= 0 {
		limit = defaultEvents
	}
	events := []store.Event{}
	err := s.readers.snapshot(ctx, func(c *conn) error {
		var key, base int64
		if err := c.row(ctx, qKeyAndBase, []any{threadID}, &key, &base); err != nil {
			return err
		}
		if after < base {
			inherited, err := inheritedEvents(ctx, c, key, after, limit)
			if err != nil {
				return err
			}
			events = inherited
		}
		own, err := list(ctx, c, scanEvent, qEvents, key, after, key, after, limit)
		if err != nil {
			return err
		}
		events = append(events, own...)
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

// inheritedEvents returns the creation entries of the messages that a fork has inherited.
func inheritedEvents(ctx context.Context, c *conn, key, after int64, limit int) ([]store.Event, error) {
	events := []store.Event{}
	inherited, err := segments(ctx, c, qSegments, key, after)
	if err != nil {
		return nil, err
	}
	for _, s := range inherited {
		if s.source == key || len(events) >= limit {
			continue
		}
		part, err := list(ctx, c, scanEvent, qInheritedEvents, s.source, max(s.lo, after), s.hi, limit-len(events))
		if err != nil {
			return nil, err
		}
		events = append(events, part...)
	}
	return events, nil
}

// scanEvent reads an entry of the log, or a message as the entry of its creation.
func scanEvent(scan scanner) (*store.Event, error) {
	var e store.Event
	var data text
	var r messageRow
	if err := scan(&e.Seq, &e.Type, &e.RunID, &e.MessageID, &data, &e.CreatedAt,
		&r.m.Role, &r.m.Silent, &r.m.Depth, &r.m.Status, &r.toolCallID, &r.content, &r.rest); err != nil {
		return nil, err
	}
	e.Data = data.raw()
	if r.m.Role == "" {
		return &e, nil
	}
	r.m.Seq, r.m.ID, r.m.RunID, r.m.CreatedAt = e.Seq, e.MessageID, e.RunID, e.CreatedAt
	m, err := r.message()
	if err != nil {
		return nil, err
	}
	e.Data, err = json.Marshal(m)
	return &e, err
}

// addMessage fills in the message that an entry refers to: the stored one, or else the one in the inbox.
func addMessage(ctx context.Context, c *conn, key int64, e *store.Event) error {
	if e.Data != nil || (e.Type != store.EventMessageUpdated && e.Type != store.EventMessageQueued) {
		return nil
	}
	m, err := scanMessage(c.one(ctx, qMessageByKey, key, e.MessageID))
	if errors.Is(err, store.ErrNotFound) && e.Type == store.EventMessageQueued {
		var item *store.InboxItem
		if item, err = scanInbox(c.one(ctx, qInboxItem, key, e.Seq)); err == nil {
			m, err = queuedMessage(item)
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
