package files

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// usage is a change of what a thread's files use.
type usage struct{ files, folders, bytes int64 }

// account adds a change to the thread's counters. It refuses one that exceeds the quota, but always accepts one that
// does not grow what the quota limits (FIL-08).
func account(t *txn.Tx, h *txn.Head, d usage, quota store.FileQuota) error {
	if d == (usage{}) {
		return nil
	}
	var u store.FileUsage
	var maxBytes, maxFiles sql.NullInt64
	if err := t.Row(t.Ctx, queries.CountFiles, []any{h.Key, h.Namespace, d.files, d.folders, d.bytes}, &u.Files, &u.Folders, &u.Bytes, &maxBytes, &maxFiles); err != nil {
		return err
	}
	u.MaxBytes, u.MaxFiles = pointer(maxBytes), pointer(maxFiles)
	quota = u.Quota(quota)
	if d.bytes > 0 && quota.Bytes > 0 && u.Bytes > quota.Bytes {
		return &store.QuotaError{Resource: "bytes", Limit: quota.Bytes, Wanted: u.Bytes}
	}
	if n := u.Files + u.Folders; d.files+d.folders > 0 && quota.Files > 0 && n > quota.Files {
		return &store.QuotaError{Resource: "files", Limit: quota.Files, Wanted: n}
	}
	if d.bytes > 0 {
		quotas.Bytes(t, h.Namespace)
	}
	return nil
}

func pointer(n sql.NullInt64) *int64 {
	if !n.Valid {
		return nil
	}
	return &n.Int64
}

// SetQuota sets the limits of the thread itself.
func SetQuota(t *txn.Tx, h *txn.Head, op *store.SetFileQuota) error {
	bound := func(n *int64) any {
		if n == nil {
			return nil
		}
		return *n
	}
	return t.Write(t.Ctx, queries.SetFileQuota, h.Key, h.Namespace, bound(op.Bytes), bound(op.Files))
}

// FileUsage implements store.Store.
func (s Store) FileUsage(ctx context.Context, threadID string) (*store.FileUsage, error) {
	var u store.FileUsage
	var key int64
	err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		var maxBytes, maxFiles sql.NullInt64
		err := c.Row(ctx, queries.FileUsage, []any{threadID}, &u.Files, &u.Folders, &u.Bytes, &maxBytes, &maxFiles)
		if errors.Is(err, store.ErrNotFound) { // the thread never had a file
			return c.Row(ctx, queries.ThreadKey, []any{threadID}, &key)
		}
		u.MaxBytes, u.MaxFiles = pointer(maxBytes), pointer(maxFiles)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("files of thread %s: %w", threadID, err)
	}
	return &u, nil
}
