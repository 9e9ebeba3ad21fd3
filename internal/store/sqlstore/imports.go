package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// importConversation writes a conversation from elsewhere into an empty thread. No other write comes in between, and an
// error of any line leaves nothing behind.
func (t *tx) importConversation(h *head, op *store.ImportConversation) error {
	if h.terminatedAt != 0 {
		return store.ErrTerminated
	}
	if err := t.checkEmpty(h); err != nil {
		return err
	}
	n := 0
	for line, err := range op.Lines {
		if err != nil {
			return err
		}
		// Statements are queued until the next read, so a read now and then bounds what is in memory.
		if n++; n%importStep == 0 {
			if err := t.checkNoImport(h); err != nil {
				return err
			}
		}
		if line.Message != nil {
			err = t.appendMessage(h, &store.AppendMessage{Message: line.Message})
		} else {
			_, err = t.log(h, *line.Event)
		}
		if err != nil {
			return err
		}
	}
	op.Record.LastSeq = h.lastSeq
	h.touch(store.ChangedThread)
	if err := t.write(t.ctx, qInsertImport, h.key, string(op.Record.Manifest), h.lastSeq); err != nil {
		return err
	}
	return t.write(t.ctx, qNameImported, op.Title, op.TaskID, h.key)
}

func (t *tx) checkEmpty(h *head) error {
	if h.counts.total(true, 0, true) > 0 || h.queued > 0 {
		return fmt.Errorf("thread %s: %w", h.id, store.ErrNotEmpty)
	}
	// Other inbox items do not belong to the conversation, for example hooks of the thread that wait for its agent.
	if err := t.mustLack(h, qHasWork); err != nil {
		return err
	}
	if err := t.mustLack(h, qHasOpenRun); err != nil {
		return err
	}
	// Runs that ended before the conversation was destroyed do not belong to the new conversation.
	if err := t.mustLack(h, qHasRunSince, h.key); err != nil {
		return err
	}
	return t.checkNoImport(h)
}

// importStep is how many lines may be queued for the database at once.
const importStep = 500

func (t *tx) checkNoImport(h *head) error { return t.mustLack(h, qHasImport) }

func (t *tx) mustLack(h *head, query string, more ...any) error {
	var one int64
	has, err := found(t.row(t.ctx, query, append([]any{h.key}, more...), &one))
	if has {
		return fmt.Errorf("thread %s: %w", h.id, store.ErrNotEmpty)
	}
	return err
}

// Imported implements store.SessionStore.
func (s *Store) Imported(ctx context.Context, threadID string) (*store.ImportRecord, error) {
	var r store.ImportRecord
	var manifest string
	if err := s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, qImport, []any{threadID}, &manifest, &r.LastSeq)
	}); err != nil {
		return nil, fmt.Errorf("import of thread %s: %w", threadID, err)
	}
	r.Manifest = json.RawMessage(manifest)
	return &r, nil
}

// LogEntries implements store.SessionStore.
func (s *Store) LogEntries(ctx context.Context, threadID string, after int64, limit int, types ...string) (events []store.Event, err error) {
	if limit <= 0 {
		limit = defaultEvents
	}
	query := qLogEntries + strings.TrimSuffix(strings.Repeat("?, ", len(types)), ", ") + `) ORDER BY seq LIMIT ?`
	err = s.readers.snapshot(ctx, func(c *conn) error {
		var key int64
		if err := c.row(ctx, qThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		args := []any{key, after}
		for _, t := range types {
			args = append(args, t)
		}
		events, err = list(ctx, c, scanLine, query, append(args, limit)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("log of thread %s: %w", threadID, err)
	}
	return events, nil
}
