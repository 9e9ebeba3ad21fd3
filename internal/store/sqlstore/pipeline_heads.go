package sqlstore

import (
	"context"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// The heads of threads in PostgreSQL. In the database's default isolation each statement sees what was
// committed before it began; so heads are locked by one statement, and read by the next.
const (
	qLockHeads = `SELECT FROM thread_head WHERE thread IN (SELECT key FROM thread WHERE id = ANY(?)) ORDER BY thread FOR UPDATE`
	qHeads     = `SELECT ` + headColumns + `, coalesce(l.owner, ''), coalesce(l.epoch, 0) FROM thread t
		JOIN thread_head h ON h.thread = t.key LEFT JOIN lease l ON l.thread = t.key WHERE t.id = ANY(?)`

	// A division by the number of rows that are as they were taken to be fails when there is none.
	stateOutdated = "22012"
	qGuardFence   = `SELECT 1 / count(*) FROM lease WHERE thread = ? AND owner = ? AND epoch = ?`
)

// guarded is an update of a head that fails unless the head is at a version.
func guarded(update string) string {
	return `WITH hit AS (` + update + ` AND version = ? RETURNING 1) SELECT 1 / count(*) FROM hit`
}

var (
	qGuardedHead        = guarded(qUpdateHead)
	qGuardedHeadIndexed = guarded(qUpdateHeadIndexed)
)

// loadHeads locks and reads the heads of the batch's threads.
func (ps *pipe) loadHeads(ctx context.Context) error {
	ps.leases = map[int64]store.Fence{}
	if len(ps.ids) == 0 {
		return nil
	}
	return ps.readHeads(ctx, ps.ids)
}

func (ps *pipe) readHeads(ctx context.Context, ids []string) error {
	if err := ps.conn.write(ctx, qLockHeads, ids); err != nil {
		return err
	}
	return ps.conn.rows(ctx, qHeads, []any{ids}, func(scan scanner) error {
		var f store.Fence
		h, err := scanHead(scan, &f.Owner, &f.Epoch)
		if err != nil {
			return err
		}
		if ps.leases == nil { // those that were read before a lease changed are forgotten
			ps.leases = map[int64]store.Fence{}
		}
		ps.heads[h.id], ps.leases[h.key] = h, f
		return nil
	})
}

func (ps *pipe) loadHead(ctx context.Context, id string) (*head, error) {
	if h := ps.heads[id]; h != nil {
		return h.settled(), nil
	}
	if ps.hoping {
		h := ps.p.kept.get(id)
		if h == nil {
			ps.asked = true
			return nil, errAsked
		}
		return h.settled(), nil
	}
	if !slices.Contains(ps.ids, id) { // else it is known to be absent
		if err := ps.flush(ctx); err != nil {
			return nil, err
		}
		if err := ps.result("SELECT", ps.readHeads(ctx, []string{id})); err != nil {
			return nil, err
		}
	}
	if h := ps.heads[id]; h != nil {
		return h.settled(), nil
	}
	return nil, store.ErrNotFound
}

func (ps *pipe) writeHead(ctx context.Context, h *head, query string, args ...any) error {
	if !ps.hoping {
		return ps.write(ctx, query, args...)
	}
	guard := qGuardedHead
	if query == qUpdateHeadIndexed {
		guard = qGuardedHeadIndexed
	}
	ps.guards = append(ps.guards, statement{guard, append(args, h.version-1)})
	return nil
}

// guarded tells whether all that a transaction was decided on is checked when it is written.
func (ps *pipe) guarded(t *tx) bool {
	for _, h := range t.heads {
		if !h.changed {
			return false
		}
	}
	return len(t.heads) > 0
}

func (ps *pipe) checkFence(h *head, f *store.Fence) (known, holds bool) {
	if ps.hoping {
		// Whoever takes the lease locks the head, as the statement before this one does.
		ps.fences = append(ps.fences, statement{qGuardFence, []any{h.key, f.Owner, f.Epoch}})
		return true, f.Owner != ""
	}
	l, ok := ps.leases[h.key]
	return ok, ok && l.Owner != "" && l.Owner == f.Owner && l.Epoch == f.Epoch
}

// changesLease forgets the leases that were read when a statement writes one.
func (ps *pipe) changesLease(query string) {
	for _, verb := range []string{"INSERT INTO lease", "UPDATE lease", "DELETE FROM lease"} {
		if strings.HasPrefix(query, verb) {
			clear(ps.leases)
		}
	}
}

// maxKept bounds the heads that a writer remembers.
const maxKept = 4096

// keptHeads are the heads of the threads that a writer wrote last. They may be out of date when others
// write too.
type keptHeads struct{ byID map[string]*head }

func (k *keptHeads) get(id string) *head { return k.byID[id] }

// has tells whether all the threads are remembered.
func (k *keptHeads) has(jobs []*job) bool {
	for _, j := range jobs {
		if len(j.threads) == 0 {
			return false
		}
		for _, id := range j.threads {
			if k.byID[id] == nil {
				return false
			}
		}
	}
	return true
}

func (k *keptHeads) keep(heads map[string]*head) {
	if k.byID == nil || len(k.byID)+len(heads) > maxKept {
		k.byID = map[string]*head{} // they come back with the next write of each
	}
	for id, h := range heads {
		k.byID[id] = h
	}
}

func (k *keptHeads) forget(jobs []*job) {
	for _, j := range jobs {
		for _, id := range j.threads {
			delete(k.byID, id)
		}
	}
}
