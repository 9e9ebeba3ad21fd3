package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// otherRole returns the role that the peer of a relationship has.
func otherRole(role string) string {
	if role == store.RelationParent {
		return store.RelationChild
	}
	return store.RelationParent
}

// relate stores a relationship with both threads.
func (t *tx) relate(h, peer *head, r store.Relationship) error {
	if r.CreatedAt == 0 {
		r.CreatedAt = t.now
	}
	if err := t.write(t.ctx, qPutRelationship, h.key, peer.id, string(r.Type), r.Role, r.MessageIndex, r.CreatedAt, r.Comment); err != nil {
		return err
	}
	h.touch(store.ChangedThread)
	peer.touch(store.ChangedThread)
	return t.write(t.ctx, qPutRelationship, peer.key, h.id, string(r.Type), otherRole(r.Role), r.MessageIndex, r.CreatedAt, r.Comment)
}

func (t *tx) putRelationship(h *head, op *store.PutRelationship) error {
	op.Existed = false
	peer, err := t.head(op.R.ThreadID)
	if err != nil {
		return fmt.Errorf("related thread: %w", err)
	}
	kept, err := scanRelationship(t.one(t.ctx, qRelationship, h.key, peer.id, string(op.R.Type), op.R.Role))
	if err == nil {
		op.Kept, op.Existed = *kept, true
		return nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	parent := peer
	if op.R.Role == store.RelationParent {
		parent = h
	}
	if total := parent.counts.total(true, 0, true); op.R.MessageIndex >= total {
		return fmt.Errorf("message %d of %d: %w", op.R.MessageIndex, total, store.ErrForkPoint)
	}
	op.Kept = op.R
	if op.Kept.CreatedAt == 0 {
		op.Kept.CreatedAt = t.now
	}
	return t.relate(h, peer, op.Kept)
}

// cutRelationships removes relationships that were made past a message of the thread, from both threads. Those in which
// the thread is the child stay: their index counts messages of the other thread.
func (t *tx) cutRelationships(h *head, index int64) error {
	late, err := list(t.ctx, t, scanRelationship, qLateRelationships, h.key, index)
	if err != nil || len(late) == 0 {
		return err
	}
	for _, r := range late {
		peer, err := t.head(r.ThreadID)
		if errors.Is(err, store.ErrNotFound) {
			continue // the peer was purged
		}
		if err != nil {
			return err
		}
		if err := t.write(t.ctx, qDropRelationship, peer.key, h.id, string(r.Type), otherRole(r.Role)); err != nil {
			return err
		}
		peer.touch(store.ChangedThread)
	}
	h.touch(store.ChangedThread)
	return t.write(t.ctx, qCutRelationships, h.key, index)
}

func scanRelationship(scan scanner) (*store.Relationship, error) {
	var r store.Relationship
	if err := scan(&r.ThreadID, &r.Type, &r.Role, &r.MessageIndex, &r.CreatedAt, &r.Comment); err != nil {
		return nil, err
	}
	return &r, nil
}

// Relationships implements store.RelationStore.
func (s *Store) Relationships(ctx context.Context, threadID string, limit, offset int) (rs []store.Relationship, total int64, err error) {
	err = s.readers.snapshot(ctx, func(c *conn) error {
		var key int64
		if err := c.row(ctx, qThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		if err := c.row(ctx, qCountRelationship, []any{key}, &total); err != nil {
			return err
		}
		rs, err = list(ctx, c, scanRelationship, qRelationships, key, pageSize(limit), max(offset, 0))
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("relationships of thread %s: %w", threadID, err)
	}
	return rs, total, nil
}
