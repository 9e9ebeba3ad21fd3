// Package relations holds the relationships between threads.
package relations

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// otherRole returns the role that the peer of a relationship has.
func otherRole(role string) string {
	if role == store.RelationParent {
		return store.RelationChild
	}
	return store.RelationParent
}

// Relate stores a relationship with both threads. seq is the sequence number of the parent's message at which it was made; 0 for none.
func Relate(t *txn.Tx, h, peer *txn.Head, r store.Relationship, seq int64) error {
	if r.CreatedAt == 0 {
		r.CreatedAt = t.Now
	}
	if err := t.Write(t.Ctx, queries.PutRelationship, h.Key, peer.ID, string(r.Type), r.Role, r.MessageIndex, seq, r.CreatedAt, r.Comment); err != nil {
		return err
	}
	h.Touch(store.ChangedThread)
	peer.Touch(store.ChangedThread)
	return t.Write(t.Ctx, queries.PutRelationship, peer.Key, h.ID, string(r.Type), otherRole(r.Role), r.MessageIndex, seq, r.CreatedAt, r.Comment)
}

// Put stores a relationship with both threads, unless they have it. seqAt returns the sequence number of the message with an index.
func Put(t *txn.Tx, h *txn.Head, op *store.PutRelationship, seqAt func(t *txn.Tx, h *txn.Head, index int64) (int64, error)) error {
	op.Existed = false
	peer, err := t.HeadIn(h.Namespace, op.R.ThreadID)
	if err != nil {
		return fmt.Errorf("related thread: %w", err)
	}
	for _, end := range []*txn.Head{h, peer} { // the relationship may be made past messages that are being removed
		if err := end.Whole(); err != nil {
			return err
		}
	}
	kept, err := scanRelationship(t.One(t.Ctx, queries.Relationship, h.Key, peer.ID, string(op.R.Type), op.R.Role))
	if err == nil {
		op.Kept, op.Existed = *kept, true
		op.Kept.Name = ""
		return nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	parent := peer
	if op.R.Role == store.RelationParent {
		parent = h
	}
	var seq int64
	if op.R.MessageIndex >= 0 {
		if seq, err = seqAt(t, parent, op.R.MessageIndex); err != nil {
			return err
		}
	}
	op.Kept = op.R
	if op.Kept.CreatedAt == 0 {
		op.Kept.CreatedAt = t.Now
	}
	return Relate(t, h, peer, op.Kept, seq)
}

// Point is a message of a thread, or the place before the first one.
type Point struct {
	Seq   int64
	Index int64 // for relationships of which only the index of the message is known
}

// Cut removes relationships that were made past a message of the thread, from both threads. Those in which
// the thread is the child stay: they were made at messages of the other thread.
func Cut(t *txn.Tx, h *txn.Head, p Point) error {
	_, err := CutSome(t, h, p, math.MaxInt32)
	return err
}

// FewLate reports whether at most limit relationships were made past a message of the thread.
func FewLate(t *txn.Tx, h *txn.Head, p Point, limit int64) (bool, error) {
	var n int64
	err := t.Row(t.Ctx, queries.CountLate, []any{h.Key, p.Seq, p.Index, limit + 1}, &n)
	return n <= limit, err
}

// CutSome is Cut for at most limit relationships. It reports whether these were the last.
func CutSome(t *txn.Tx, h *txn.Head, p Point, limit int) (last bool, err error) {
	late, err := sqldb.List(t.Ctx, t, scanRelationship, queries.LateRelationships, h.Key, p.Seq, p.Index, limit)
	if err != nil || len(late) == 0 {
		return err == nil, err
	}
	for _, r := range late {
		peer, err := t.Head(r.ThreadID)
		if errors.Is(err, store.ErrNotFound) {
			peer, err = nil, nil // the peer was purged
		}
		if err != nil {
			return false, err
		}
		if peer != nil {
			if err := t.Write(t.Ctx, queries.DropRelationship, peer.Key, h.ID, string(r.Type), otherRole(r.Role)); err != nil {
				return false, err
			}
			peer.Touch(store.ChangedThread)
		}
		if err := t.Write(t.Ctx, queries.DropRelationship, h.Key, r.ThreadID, string(r.Type), r.Role); err != nil {
			return false, err
		}
	}
	h.Touch(store.ChangedThread)
	return len(late) < limit, nil
}

// Release removes some relationships of a thread that is being purged, from both threads. It reports whether it has removed any, so that there
// may be more: the other threads are locked until the transaction ends.
func Release(t *txn.Tx, key int64, id string, limit int) (more bool, err error) {
	some, err := sqldb.List(t.Ctx, t, scanRelationship, queries.Relationships, key, limit, 0)
	if err != nil {
		return false, err
	}
	for _, r := range some {
		peer, err := t.Head(r.ThreadID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
		if err == nil {
			if err := t.Write(t.Ctx, queries.DropRelationship, peer.Key, id, string(r.Type), otherRole(r.Role)); err != nil {
				return false, err
			}
			peer.Touch(store.ChangedThread)
		}
		if err := t.Write(t.Ctx, queries.DropRelationship, key, r.ThreadID, string(r.Type), r.Role); err != nil {
			return false, err
		}
	}
	return len(some) > 0, nil
}

func scanRelationship(scan sqldb.Scanner) (*store.Relationship, error) {
	var r store.Relationship
	if err := scan(&r.ThreadID, &r.Name, &r.Type, &r.Role, &r.MessageIndex, &r.CreatedAt, &r.Comment); err != nil {
		return nil, err
	}
	return &r, nil
}

// Relationships implements store.RelationStore.
func (s Store) Relationships(ctx context.Context, threadID string, limit, offset int) (rs []store.Relationship, total int64, err error) {
	err = s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) error {
		if err := c.Row(ctx, queries.CountRelationship, []any{key}, &total); err != nil {
			return err
		}
		rs, err = sqldb.List(ctx, c, scanRelationship, queries.Relationships, key, sqldb.PageSize(limit), max(offset, 0))
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("relationships of thread %s: %w", threadID, err)
	}
	return rs, total, nil
}

// NewestRelationships implements store.RelationStore.
func (s Store) NewestRelationships(ctx context.Context, threadID string, limit int) (rs []store.Relationship, total int64, err error) {
	err = s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) error {
		if err := c.Row(ctx, queries.CountRelationship, []any{key}, &total); err != nil || total == 0 {
			return err
		}
		for _, query := range []string{queries.AsChild, queries.AsParent} {
			some, err := sqldb.List(ctx, c, scanRelationship, query, key, limit-len(rs))
			if err != nil {
				return err
			}
			rs = append(rs, some...)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("relationships of thread %s: %w", threadID, err)
	}
	return rs, total, nil
}

// Store reads relationships.
type Store struct{ DB *txn.DB }
