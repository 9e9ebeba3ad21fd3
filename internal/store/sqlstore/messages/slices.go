package messages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Slice is about how many rows one transaction removes, so that it ends soon however much there is to remove, and other
// writers do not wait long. Tests set it lower.
var Slice int64 = 1000

// removal is a row of message_cut: messages that no longer belong to a thread, and that slices remove. Its first
// transaction decides all that readers can see: the messages are no longer listed, found or counted. Until the last
// slice, readers of the log wait before the entries of the deletions, which have their numbers already, and writers of
// messages wait for the end (txn.Head.Whole).
//
// Slices remove the newest messages first, so that what a fork reads of the rest stays where it is.
type removal struct {
	lo, hi int64 // the thread's own rows after lo, up to hi, are not its messages any more
	own    int64 // of these, the rows after own are gone
	view   int64 // the remnant that has the segments of inherited messages which are removed; 0 for none
	left   int64 // the remnant that has those of the rows that forks read; 0 for none
	logged int64 // the deletions that are not logged yet have the numbers up to here; 0 when they are not logged
	late   int64 // relationships made past the message lo, which has this index, go too
	began  int64
}

func scanRemoval(scan sqldb.Scanner) (*removal, error) {
	var r removal
	return &r, scan(&r.lo, &r.hi, &r.own, &r.view, &r.left, &r.logged, &r.late, &r.began)
}

// removalOf returns the removal of a thread's messages that is under way; nil for none.
func removalOf(ctx context.Context, q sqldb.Querier, key int64) (*removal, error) {
	r, err := scanRemoval(q.One(ctx, queries.Removal, key))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return r, err
}

// Remove removes all messages of a thread after a sequence number, and the relationships made past that message, which has the
// index late. kept is the counts up to it. What one slice holds is removed at once, and more in further transactions:
// see FinishRemoval. With logs the log keeps the creation of the messages and gets their deletion.
func Remove(t *txn.Tx, h *txn.Head, cut int64, kept txn.Counts, late int64, logs bool) error {
	if err := h.Whole(); err != nil {
		return err
	}
	removed := h.Counts.Total(true, 0, true) - kept.Total(true, 0, true)
	few := true
	var err error
	if late != NoneLate {
		past := relations.Point{Seq: cut, Index: late}
		if few, err = relations.FewLate(t, h, past, lateStep); err != nil {
			return err
		}
		if few {
			if err := relations.Cut(t, h, past); err != nil {
				return err
			}
			late = NoneLate
		}
	}
	switch {
	case removed == 0 && few && cut > 0:
		return nil
	case removed <= Slice && few:
		return removeFew(t, h, cut, kept, logs)
	}
	r := removal{lo: cut, hi: h.LastSeq, own: h.LastSeq, late: late, began: t.Now}
	if err := t.WriteBlocks(h); err != nil {
		return err
	}
	// Forks read the counts of the rows that slices leave to them. A later row at this number would have those of the trimmed thread.
	if err := t.PutBlock(h.Key, txn.Block{At: h.LastSeq, Counts: h.Counts}); err != nil {
		return err
	}
	if logs {
		if r.view, err = handOver(t, h, cut); err != nil {
			return err
		}
	}
	if err := trim(t, h, cut, kept); err != nil {
		return err
	}
	if logs {
		h.LastSeq += removed
		r.logged = h.LastSeq
	}
	h.Touch(store.ChangedLog)
	if err := t.Write(t.Ctx, queries.PutRemoval, h.Key, r.lo, r.hi, r.own, r.view, r.left, r.logged, r.late, r.began); err != nil {
		return err
	}
	return t.BeginCut(h)
}

// NoneLate stands for the index of the message past which relationships go where all stay.
const NoneLate = 1 << 62

// Hidden describes the removal that is under way in a thread, for readers of the log.
type Hidden struct {
	Lo, Hi int64 // the thread's own messages after Lo, up to Hi, are being removed
	Logs   bool  // entries after Hi are not there yet
}

// HiddenIn returns what is being removed in a thread; nil for nothing.
func HiddenIn(ctx context.Context, q sqldb.Querier, key int64) (*Hidden, error) {
	r, err := removalOf(ctx, q, key)
	if r == nil || err != nil {
		return nil, err
	}
	return &Hidden{Lo: r.lo, Hi: r.hi, Logs: r.logged != 0}, nil
}

// handOver gives the inherited segments after a cut to a new remnant, so that their rows stay until their deletion is
// logged. It returns 0 when there are none.
func handOver(t *txn.Tx, h *txn.Head, cut int64) (view int64, err error) {
	inherited, err := Segments(t.Ctx, t, queries.Segments, h.Key, cut)
	if err != nil {
		return 0, err
	}
	for _, s := range inherited {
		if s.Source == h.Key {
			continue
		}
		if view == 0 {
			if view, err = remnant(t); err != nil {
				return 0, err
			}
		}
		if _, err := lockSegments(t, s.Source); err != nil {
			return 0, err
		}
		if s.Lo >= cut {
			err = t.Write(t.Ctx, queries.GiveSegment, view, h.Key, s.Lo)
		} else {
			err = t.Write(t.Ctx, queries.PutSegment, view, cut, s.Hi, s.Source)
		}
		if err != nil {
			return 0, err
		}
	}
	return view, nil
}

// trim ends a thread at a cut: what follows is not part of it any more, even where the rows are still there.
func trim(t *txn.Tx, h *txn.Head, cut int64, kept txn.Counts) error {
	if err := t.Write(t.Ctx, queries.TrimSegment, cut, h.Key, cut, cut); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.CutSegments, h.Key, cut); err != nil {
		return err
	}
	if err := t.PutBlock(h.Key, txn.Block{At: cut, Counts: kept}); err != nil {
		return err
	}
	h.Counts = kept
	h.Touch(store.ChangedThread)
	if cut >= h.Base {
		return nil
	}
	h.Base = cut
	return t.Write(t.Ctx, queries.HeadBase, cut, h.Key)
}

// FinishRemoval removes what is left of a removal, slice by slice. It reports whether one was under way. Several may
// work on the same removal. It also removes remnants that had no other reader than what is removed.
func FinishRemoval(ctx context.Context, db *txn.DB, id string) (was bool, err error) {
	sources := map[int64]bool{}
	for more := true; more; {
		if err := db.Writer.Do(ctx, func(t *txn.Tx) error {
			more = false
			h, err := t.Head(id)
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			if h.Life.Asleep&txn.AsleepCutting == 0 {
				return nil
			}
			more, was = true, true
			return slice(t, h, sources)
		}, id); err != nil {
			return was, fmt.Errorf("remove messages of thread %s: %w", id, err)
		}
	}
	_ = CollectLeft(ctx, db, slices.Sorted(maps.Keys(sources))) // the messages are removed; the next sweep makes up for what failed here
	return was, nil
}

// slice removes the next rows of a removal, or ends it when none are left. It adds the threads from which these were inherited to sources.
func slice(t *txn.Tx, h *txn.Head, sources map[int64]bool) error {
	r, err := removalOf(t.Ctx, t, h.Key)
	if err != nil {
		return err
	}
	switch {
	case r == nil:
		return endRemoval(t, h)
	case r.late != NoneLate:
		few, err := relations.CutSome(t, h, relations.Point{Seq: r.lo, Index: r.late}, lateStep)
		if err != nil {
			return err
		}
		h.Life.Cleared = true // nothing has happened in the conversation
		if few {
			r.late = NoneLate
		}
	case r.view != 0:
		if err := r.sliceInherited(t, h, sources); err != nil {
			return err
		}
	case r.own > r.lo:
		if err := r.sliceOwn(t, h); err != nil {
			return err
		}
	default:
		return endRemoval(t, h)
	}
	return t.Write(t.Ctx, queries.SetRemoval, r.own, r.view, r.left, r.logged, r.late, h.Key)
}

// lateStep is how many relationships one slice removes. Each also writes the other thread.
const lateStep = 100

func endRemoval(t *txn.Tx, h *txn.Head) error {
	if err := t.Write(t.Ctx, queries.DropRemoval, h.Key); err != nil {
		return err
	}
	return t.EndCut(h)
}

// newest returns how many of the rows of a source after lo, up to hi, are in the next slice, and the place before them.
func newest(t *txn.Tx, source, lo, hi int64) (from, n int64, err error) {
	if err := t.Row(t.Ctx, queries.NewestOf, []any{source, lo, hi, Slice}, &from, &n); err != nil {
		return 0, 0, err
	}
	if n < Slice {
		return lo, n, nil
	}
	return from - 1, n, nil
}

// log logs the deletion of n rows.
func (r *removal) log(t *txn.Tx, h *txn.Head, source, from, to, n int64) error {
	if r.logged == 0 || n == 0 {
		return nil
	}
	if err := t.Write(t.Ctx, queries.LogRemoved, h.Key, source, from, to); err != nil {
		return err
	}
	r.logged -= n
	return t.Write(t.Ctx, queries.LogDeletions, h.Key, r.logged, r.began, source, from, to)
}

// sliceInherited removes the newest slice of the inherited messages that the view of r has: it logs their deletion, and takes their rows out
// of the view. If the view has none, sliceInherited deletes the view. It adds the thread that has the rows to sources.
func (r *removal) sliceInherited(t *txn.Tx, h *txn.Head, sources map[int64]bool) error {
	s, err := r.lastInherited(t)
	if errors.Is(err, store.ErrNotFound) {
		err = dropRemnant(t, r.view)
		r.view = 0
		return err
	}
	if err != nil {
		return err
	}
	sources[s.Source] = true
	from, n, err := newest(t, s.Source, s.Lo, s.Hi)
	if err != nil {
		return err
	}
	if err := r.log(t, h, s.Source, from, s.Hi, n); err != nil {
		return err
	}
	if s.Source == r.view { // copied because the original has changed since
		if err := t.Write(t.Ctx, queries.DropMessages, s.Source, from, s.Hi); err != nil {
			return err
		}
	}
	if from == s.Lo {
		return t.Write(t.Ctx, queries.DeleteSegment, r.view, s.Lo)
	}
	return t.Write(t.Ctx, queries.TrimSegment, from, r.view, from, from)
}

// lastInherited returns the last segment of the view of r, or store.ErrNotFound. The view has no head, so writers of the source may change
// its segments until the source is locked. Then lastInherited reads the segment again, which may have got another source.
func (r *removal) lastInherited(t *txn.Tx) (*Segment, error) {
	for locked := int64(0); ; {
		s, err := scanSegment(t.One(t.Ctx, queries.LastSegment, r.view))
		if err != nil || s.Source == locked {
			return s, err
		}
		if _, err := lockSegments(t, s.Source); err != nil {
			return nil, err
		}
		locked = s.Source
	}
}

// sliceOwn removes rows of the thread. Those that forks read move to a remnant.
func (r *removal) sliceOwn(t *txn.Tx, h *txn.Head) error {
	from, n, err := newest(t, h.Key, r.lo, r.own)
	if err != nil {
		return err
	}
	if err := r.log(t, h, h.Key, from, r.own, n); err != nil {
		return err
	}
	if err := leave(t, h, from, r.own, &r.left); err != nil {
		return err
	}
	for _, query := range []string{queries.DropMessages, queries.DropVectors, queries.DropBlocks} {
		if err := t.Write(t.Ctx, query, h.Key, from, r.own); err != nil {
			return err
		}
	}
	r.own = from
	return nil
}

// FinishRemovals implements store.Store. It ends removals that a crash has interrupted. After one that fails it goes on with the next,
// unless the database cannot be used.
func (s Store) FinishRemovals(ctx context.Context, before int64, limit int) (finished int, err error) {
	ids, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.Removals, before, sqldb.PageSize(limit))
	if err != nil {
		return 0, fmt.Errorf("look for messages to remove: %w", err)
	}
	var errs []error
	for _, id := range ids {
		was, err := FinishRemoval(ctx, s.DB, id)
		switch {
		case err == nil && was:
			finished++
		case err != nil:
			errs = append(errs, err)
		}
		if err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrUnavailable)) {
			break
		}
	}
	return finished, errors.Join(errs...)
}
