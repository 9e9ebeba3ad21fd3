package files

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// ReferToContents makes the digest of a file refer to an object of the bucket. It locks the row of the contents, so that
// no transaction can remove the object before this one ends. A transaction that removes the last reference locks the row
// too before it looks for other references (freeContents). So either it sees the file, or the writer of the file sees
// that the contents are gone.
func ReferToContents(t *txn.Tx, op *store.PutFile) error {
	f := &op.File
	if op.Object == "" {
		var object string
		err := t.Row(t.Ctx, queries.UseContents, []any{t.Now, f.Digest}, &object)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("contents %s of %s: %w", f.Digest, f.Path, store.ErrNoContents)
		}
		return err
	}
	if t.Now-op.Uploaded > store.MaxUploadAge.Microseconds() {
		return fmt.Errorf("contents %s of %s were uploaded %s ago: %w", f.Digest, f.Path,
			time.Duration(t.Now-op.Uploaded)*time.Microsecond, store.ErrNoContents)
	}
	object, err := keepContents(t, op)
	if err != nil {
		return err
	}
	switch object {
	case op.Object:
		return nil
	case op.Instead:
		return t.Write(t.Ctx, queries.ReplaceObject, op.Object, f.Digest)
	}
	op.Freed = append(op.Freed, op.Object)
	return nil
}

// keepContents makes the digest refer to the operation's object unless it already has one, and returns the object of
// the digest.
func keepContents(t *txn.Tx, op *store.PutFile) (object string, err error) {
	f := &op.File
	for t.Ctx.Err() == nil {
		err = t.Row(t.Ctx, queries.KeepContents, []any{f.Digest, op.Object, f.Size, t.Now}, &object)
		if errors.Is(err, store.ErrNotFound) { // the digest already has an object, or ours was swept
			err = t.Row(t.Ctx, queries.UseContents, []any{t.Now, f.Digest}, &object)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return object, err
		}
		var size int64
		if err = t.Row(t.Ctx, queries.ObjectSize, []any{op.Object}, &size); err == nil && size < 0 {
			return "", fmt.Errorf("contents %s of %s were swept: %w", f.Digest, f.Path, store.ErrNoContents)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
		// The digest had an object that another transaction has freed since, so try again to store ours.
	}
	return "", t.Ctx.Err()
}

// freeContents removes contents that no file refers to any more and returns their object. It returns "" when they are
// still in use.
func freeContents(t *txn.Tx, digest string) (object string, err error) {
	if digest == "" {
		return "", nil
	}
	err = t.Row(t.Ctx, queries.UseContents, []any{t.Now, digest}, &object)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var one int
	err = t.Row(t.Ctx, queries.DigestUsed, []any{digest}, &one)
	if !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	return object, t.Write(t.Ctx, queries.DropContents, digest)
}

// Contents implements store.Store.
func (s Store) Contents(ctx context.Context, digest string) (object string, err error) {
	err = s.DB.Readers.Row(ctx, queries.Contents, []any{digest}, &object)
	if err != nil {
		return "", fmt.Errorf("contents %s: %w", digest, err)
	}
	return object, nil
}
