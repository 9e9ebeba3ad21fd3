package redact

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
)

// importConversation redacts the lines of an import as they arrive.
func (s *Store) importConversation(namespace, threadID string, op *store.ImportConversation) {
	lines := op.Lines
	op.Lines = func(yield func(store.ImportLine, error) bool) {
		for line, err := range lines {
			switch {
			case line.Message != nil:
				s.op(namespace, threadID, &store.AppendMessage{Message: line.Message})
			case line.Event != nil:
				e := &store.AppendEvent{Event: *line.Event}
				s.op(namespace, threadID, e)
				line.Event = &e.Event
			}
			if !yield(line, err) {
				return
			}
		}
	}
	op.Title, op.TaskID = s.secrets.Text(namespace, op.Title), s.secrets.Text(namespace, op.TaskID)
	op.Record.Manifest = s.secrets.JSON(namespace, op.Record.Manifest)
}

// StateValue implements store.Store.
func (s *Store) StateValue(ctx context.Context, threadID, key string) (json.RawMessage, error) {
	return s.Store.StateValue(ctx, threadID, s.stored(ctx, threadID, key))
}

// GetKV implements store.Store.
func (s *Store) GetKV(ctx context.Context, ns store.Namespace, name, key string) (*store.KVEntry, error) {
	return s.Store.GetKV(ctx, ns, name, s.secrets.Text(ns.Name, key))
}

// SetKV implements store.Store.
func (s *Store) SetKV(ctx context.Context, ns store.Namespace, name string, e store.KVEntry) error {
	e.Key, e.Value = s.secrets.Text(ns.Name, e.Key), s.secrets.JSON(ns.Name, e.Value)
	return s.Store.SetKV(ctx, ns, name, e)
}

// DeleteKV implements store.Store.
func (s *Store) DeleteKV(ctx context.Context, ns store.Namespace, name, key string) (bool, error) {
	return s.Store.DeleteKV(ctx, ns, name, s.secrets.Text(ns.Name, key))
}
