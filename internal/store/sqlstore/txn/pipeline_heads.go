package txn

import (
	"context"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

const (
	qLockHeads = `SELECT FROM thread_head WHERE thread IN (SELECT key FROM thread WHERE id = ANY(?)) ORDER BY thread FOR UPDATE`
	qHeads     = `SELECT ` + queries.HeadColumns + `, coalesce(l.owner, ''), coalesce(l.epoch, 0) FROM thread t
		JOIN thread_head h ON h.thread = t.key LEFT JOIN lease l ON l.thread = t.key WHERE t.id = ANY(?)`
	qGuardFence = `SELECT 1 / count(*) FROM lease WHERE thread = ? AND owner = ? AND epoch = ?`
)

// guarded returns an update of a head that fails unless the head has the given version.
func guarded(update string) string {
	return `WITH hit AS (` + update + ` AND version = ? RETURNING 1) SELECT 1 / count(*) FROM hit`
}

// qGuardedHeads are the guarded forms of the updates of a head.
var qGuardedHeads = map[string]string{
	queries.UpdateHead:        guarded(queries.UpdateHead),
	queries.UpdateHeadWork:    guarded(queries.UpdateHeadWork),
	queries.UpdateHeadIndexed: guarded(queries.UpdateHeadIndexed),
}

// loadHeads locks and reads the heads of the batch's threads.
func (ps *pipe) loadHeads(ctx context.Context) error {
	ps.leases = map[int64]store.Fence{}
	if len(ps.ids) == 0 {
		return nil
	}
	return ps.readHeads(ctx, ps.ids)
}

func (ps *pipe) readHeads(ctx context.Context, ids []string) error {
	if err := ps.conn.Write(ctx, qLockHeads, ids); err != nil {
		return err
	}
	return ps.conn.Rows(ctx, qHeads, []any{ids}, func(scan sqldb.Scanner) error {
		var f store.Fence
		h, err := scanHead(scan, &f.Owner, &f.Epoch)
		if err != nil {
			return err
		}
		if ps.leases == nil { // leases that were read before one changed are forgotten
			ps.leases = map[int64]store.Fence{}
		}
		ps.heads[h.ID], ps.leases[h.Key] = h, f
		return nil
	})
}

func (ps *pipe) loadHead(ctx context.Context, id string) (*Head, error) {
	if h := ps.heads[id]; h != nil {
		return h.forNext(), nil
	}
	if ps.unlocked {
		h := ps.p.cache.get(id)
		if h == nil {
			ps.needsLocks = true
			return nil, errNeedsLocks
		}
		return h.forNext(), nil
	}
	if !slices.Contains(ps.ids, id) { // an id of ps.ids is known not to exist
		if err := ps.flush(ctx); err != nil {
			return nil, err
		}
		if err := ps.result("SELECT", ps.readHeads(ctx, []string{id})); err != nil {
			return nil, err
		}
	}
	if h := ps.heads[id]; h != nil {
		return h.forNext(), nil
	}
	return nil, store.ErrNotFound
}

func (ps *pipe) loadMore(ctx context.Context, ids []string) error {
	if ps.unlocked { // loadHead finds out whether it has them
		return nil
	}
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return ps.heads[id] != nil })
	if len(missing) == 0 {
		return nil
	}
	if err := ps.flush(ctx); err != nil {
		return err
	}
	return ps.result("SELECT", ps.readHeads(ctx, missing))
}

func (ps *pipe) writeHead(ctx context.Context, h *Head, query string, args ...any) error {
	if !ps.unlocked {
		return ps.Write(ctx, query, args...)
	}
	guard, ok := qGuardedHeads[query]
	if !ok {
		guard = guarded(query)
	}
	ps.guards = append(ps.guards, statement{guard, append(args, h.version-1)})
	return nil
}

// guarded reports whether everything that a transaction was decided on is checked when it is written.
func (ps *pipe) guarded(t *Tx) bool {
	for _, h := range t.Heads {
		if !h.changed {
			return false
		}
	}
	return len(t.Heads) > 0
}

func (ps *pipe) checkFence(h *Head, f *store.Fence) (known, holds bool) {
	if ps.unlocked {
		// Taking the lease locks the head, and so does the statement before this one.
		ps.fences = append(ps.fences, statement{qGuardFence, []any{h.Key, f.Owner, f.Epoch}})
		return true, f.Owner != ""
	}
	l, ok := ps.leases[h.Key]
	return ok, ok && l.Owner != "" && l.Owner == f.Owner && l.Epoch == f.Epoch
}

// changesLease forgets the leases that were read when a statement writes a lease.
func (ps *pipe) changesLease(query string) {
	for _, verb := range []string{"INSERT INTO lease", "UPDATE lease", "DELETE FROM lease"} {
		if strings.HasPrefix(query, verb) {
			clear(ps.leases)
		}
	}
}

// maxCachedHeads is the largest number of heads that a writer remembers.
const maxCachedHeads = 4096

// headCache holds the heads of the threads that a writer wrote last. They may be out of date when others write too.
type headCache struct{ byID map[string]*Head }

func (c *headCache) get(id string) *Head { return c.byID[id] }

// has reports whether the heads of all threads of the jobs are remembered.
func (c *headCache) has(jobs []*job) bool {
	for _, j := range jobs {
		if len(j.threads) == 0 {
			return false
		}
		for _, id := range j.threads {
			if c.byID[id] == nil {
				return false
			}
		}
	}
	return true
}

func (c *headCache) put(heads map[string]*Head) {
	if c.byID == nil || len(c.byID)+len(heads) > maxCachedHeads {
		c.byID = map[string]*Head{} // each head is put again with its next write
	}
	for id, h := range heads {
		c.byID[id] = h
	}
}

func (c *headCache) remove(jobs []*job) {
	for _, j := range jobs {
		for _, id := range j.threads {
			delete(c.byID, id)
		}
	}
}
