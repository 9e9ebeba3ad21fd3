package files

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// sweptKept is how much longer than an upload can wait for its row the store remembers that an object was swept.
const sweptKept = 7 * 24 * time.Hour

// SweepObjects implements store.Store. One query finds which of a page of objects are in use, so that a bucket that has only such objects
// costs one query a page.
func (s Store) SweepObjects(ctx context.Context, objects []string, before int64) (remove []string, err error) {
	for page := range slices.Chunk(objects, queries.ObjectsAtOnce) {
		unused, err := s.unused(ctx, page)
		if err != nil {
			return remove, err
		}
		if len(unused) == 0 {
			continue
		}
		swept, err := s.sweepUnused(ctx, unused, before)
		if err != nil {
			return remove, err
		}
		remove = append(remove, swept...)
	}
	return remove, nil
}

// unused returns those of a page of objects that no contents have.
func (s Store) unused(ctx context.Context, page []string) ([]string, error) {
	used, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.ObjectsInUse, named(page)...)
	if err != nil {
		return nil, err
	}
	slices.Sort(used)
	var unused []string
	for _, o := range page {
		if _, found := slices.BinarySearch(used, o); !found {
			unused = append(unused, o)
		}
	}
	return unused, nil
}

// named returns the arguments of a query that names objects.
func named(objects []string) []any {
	args := make([]any, queries.ObjectsAtOnce)
	for i := range args {
		args[i] = objects[min(i, len(objects)-1)]
	}
	return args
}

// sweepUnused notes objects that are without contents for the first time, and returns those that can be removed.
func (s Store) sweepUnused(ctx context.Context, unused []string, before int64) (remove []string, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		remove = nil
		if err := t.Write(t.Ctx, queries.ForgetSwept, before-sweptKept.Microseconds()); err != nil {
			return err
		}
		seen := map[string]int64{}
		if err := t.Rows(t.Ctx, queries.OrphansSeen, named(unused), func(scan sqldb.Scanner) error {
			var object string
			var at int64
			err := scan(&object, &at)
			seen[object] = at
			return err
		}); err != nil {
			return err
		}
		for _, o := range unused {
			at, noted := seen[o]
			switch {
			case !noted:
				if err := t.Write(t.Ctx, queries.NoteOrphan, o, t.Now); err != nil {
					return err
				}
			case at <= before:
				old, err := sweepObject(t, o)
				if err != nil {
					return err
				}
				if old {
					remove = append(remove, o)
				}
			}
		}
		return nil
	})
	return remove, err
}

// sweepObject reports whether an object that was without contents long ago is to be removed, because nothing can refer
// to it any more. The unique names in table contents guarantee that: the insert of a row with the object's name
// waits for transactions that are about to refer to the object, and later ones find it swept.
func sweepObject(t *txn.Tx, object string) (remove bool, err error) {
	if _, err := t.Exec(t.Ctx, queries.SweepContents, object, object, t.Now); err != nil {
		return false, err
	}
	var size int64
	if err := t.Row(t.Ctx, queries.ObjectSize, []any{object}, &size); err != nil {
		return false, err
	}
	return size < 0, t.Write(t.Ctx, queries.DropOrphan, object)
}

// ForgetObject implements store.Store. Few objects were seen by a sweep, so it looks before it writes.
func (s Store) ForgetObject(ctx context.Context, object string) error {
	var one int
	seen, err := sqldb.Found(s.DB.Readers.Row(ctx, queries.Orphan, []any{object}, &one))
	if err == nil && seen {
		err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error { return t.Write(t.Ctx, queries.DropOrphan, object) })
	}
	if err != nil {
		return fmt.Errorf("forget that object %s was without contents: %w", object, err)
	}
	return nil
}
