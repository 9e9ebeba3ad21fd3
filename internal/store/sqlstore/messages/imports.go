package messages

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Import writes a conversation from elsewhere into an empty thread. No other write comes in between, and an
// error of any line leaves nothing behind.
func Import(t *txn.Tx, h *txn.Head, op *store.ImportConversation) error {
	if h.TerminatedAt != 0 || h.Deleting() {
		return store.ErrTerminated
	}
	if err := checkEmpty(t, h); err != nil {
		return err
	}
	n := 0
	for line, err := range op.Lines {
		if err != nil {
			return err
		}
		// Statements are queued until the next read, so a read now and then bounds what is in memory.
		if n++; n%importStep == 0 {
			if err := checkNoImport(t, h); err != nil {
				return err
			}
		}
		if line.Message != nil {
			err = Append(t, h, &store.AppendMessage{Message: line.Message})
		} else {
			_, err = t.Log(h, *line.Event)
		}
		if err != nil {
			return err
		}
	}
	quotas.Messages(t, h.Namespace)
	op.Record.LastSeq = h.LastSeq
	h.Touch(store.ChangedThread)
	if err := t.Write(t.Ctx, queries.InsertImport, h.Key, string(op.Record.Manifest), h.LastSeq); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.NameImported, op.Title, op.TaskID, h.Key)
}

func checkEmpty(t *txn.Tx, h *txn.Head) error {
	if h.Counts.Total(true, 0, true) > 0 || h.Queued > 0 {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrNotEmpty)
	}
	// Other inbox items do not belong to the conversation, for example hooks of the thread that wait for its agent.
	if err := mustLack(t, h, queries.HasWork); err != nil {
		return err
	}
	if err := mustLack(t, h, queries.HasOpenRun); err != nil {
		return err
	}
	// Runs that ended before the conversation was destroyed do not belong to the new conversation.
	if err := mustLack(t, h, queries.HasRunSince, h.Key); err != nil {
		return err
	}
	return checkNoImport(t, h)
}

// importStep is how many lines may be queued for the database at once.
const importStep = 500

func checkNoImport(t *txn.Tx, h *txn.Head) error { return mustLack(t, h, queries.HasImport) }

func mustLack(t *txn.Tx, h *txn.Head, query string, more ...any) error {
	var one int64
	has, err := sqldb.Found(t.Row(t.Ctx, query, append([]any{h.Key}, more...), &one))
	if has {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrNotEmpty)
	}
	return err
}

// Imported implements store.SessionStore.
func (s Store) Imported(ctx context.Context, threadID string) (*store.ImportRecord, error) {
	var r store.ImportRecord
	var manifest string
	if err := s.DB.Readers.Row(ctx, queries.Import, []any{threadID}, &manifest, &r.LastSeq); err != nil {
		return nil, fmt.Errorf("import of thread %s: %w", threadID, err)
	}
	r.Manifest = json.RawMessage(manifest)
	return &r, nil
}
