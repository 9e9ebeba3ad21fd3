package thread

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"gocloud.dev/gcerrors"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// pinFor is how long a pin of the bucket lasts without being renewed.
	pinFor   = 5 * time.Minute
	renewPin = time.Minute
)

// Backup is a backup of a namespace while it is read (K8S-09).
type Backup struct {
	svc  *Service
	pin  string
	stop context.CancelFunc
	done chan struct{}
}

// BeginBackup begins a backup: until Close, contents of files that are removed stay in the bucket.
func (s *Service) BeginBackup(ctx context.Context) (*Backup, error) {
	b := &Backup{svc: s, pin: uuid.NewString(), done: make(chan struct{})}
	if err := s.store.PinContents(ctx, b.pin, pinFor); err != nil {
		return nil, err
	}
	ctx, b.stop = context.WithCancel(ctx)
	go func() {
		defer close(b.done)
		ticker := time.NewTicker(renewPin)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = s.store.PinContents(ctx, b.pin, pinFor) // tried again in a minute; what is missing then is an error of Contents
			}
		}
	}()
	return b, nil
}

// Close ends the backup.
func (b *Backup) Close() {
	b.stop()
	<-b.done
	_ = b.svc.store.PinContents(context.Background(), b.pin, 0) // it expires by itself
}

// Rows calls emit for each row of the namespace, all read at one moment.
func (b *Backup) Rows(ctx context.Context, namespace string, emit func(store.BackupRow) error) (*store.BackupSummary, error) {
	ns, err := b.svc.KnownNamespace(ctx, store.Namespace{Name: namespace})
	if err != nil {
		return nil, err
	}
	return b.svc.store.Backup(ctx, ns, emit)
}

// Contents copies the contents of a digest.
func (b *Backup) Contents(ctx context.Context, c store.BackupContents, w io.Writer) error {
	r, err := b.svc.blobs.bucket.NewReader(ctx, c.Object, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("the contents %s of a file are not in the bucket: remove the file, or put them back", c.Digest)
	}
	if err != nil {
		return fmt.Errorf("open contents %s: %w", c.Digest, unavailable(err))
	}
	defer func() { _ = r.Close() }()
	if n, err := io.Copy(w, r); err != nil || n != c.Size {
		return fmt.Errorf("contents %s: %d bytes of %d: %w", c.Digest, n, c.Size, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

// RestorePlan is what a restore begins with.
type RestorePlan struct {
	Schema  int64
	Threads []string
	KeyIDs  []uint32
}

// BeginRestore says how far a restore has come. It returns a *store.BackupError when the backup cannot be restored here. It writes
// nothing.
func (s *Service) BeginRestore(ctx context.Context, r store.Restore, p RestorePlan) (*store.RestoreState, error) {
	own, err := s.store.SchemaVersion(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Schema > own:
		return nil, &store.BackupError{Message: fmt.Sprintf("a newer release made the backup (schema %d, this one has %d): update Skein, then restore", p.Schema, own)}
	case p.Schema < store.OldestBackup:
		return nil, &store.BackupError{Message: fmt.Sprintf("the backup has schema %d, and this release restores %d and later: restore it with the release that made it, then update", p.Schema, store.OldestBackup)}
	}
	if err := s.checkKeys(ctx, p.KeyIDs); err != nil {
		return nil, err
	}
	return s.store.RestoreState(ctx, r, p.Threads)
}

// checkKeys returns a *store.BackupError unless the keyring has the keys.
func (s *Service) checkKeys(ctx context.Context, ids []uint32) error {
	lacks := func() (missing []uint32) {
		for _, id := range ids {
			if s.env.Cipher == nil || !s.env.Cipher.Has(id) {
				missing = append(missing, id)
			}
		}
		return missing
	}
	if len(lacks()) > 0 && s.env.Refresh != nil {
		s.env.Refresh(ctx)
	}
	if missing := lacks(); len(missing) > 0 {
		return &store.BackupError{Message: fmt.Sprintf("variables in the backup are sealed under keys that this installation does not have: %v; "+
			"restore with the passphrase of a backup that has the keys, or put them into the Secret of --env-key-secret", missing)}
	}
	return nil
}

// RestoreContents stores the contents of files of a restore. It returns a *store.BackupError when they are not those of the digest, or
// when no file has them.
func (s *Service) RestoreContents(ctx context.Context, r store.Restore, digest string, body io.Reader) error {
	sum := sha256.New()
	c, err := s.blobs.put(ctx, io.TeeReader(body, sum), s.limits.fileBytes, func(int64) error { return tooLarge(s.limits.fileBytes) })
	if err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest || c.digest != digest {
		if c.object != "" {
			s.blobs.remove(ctx, c.object)
		}
		return &store.BackupError{Message: "the bytes are not those of " + digest + ": the backup is damaged"}
	}
	freed, err := s.store.RestoreContents(ctx, r, store.BackupContents{Digest: digest, Object: c.object, Size: c.size, Instead: c.instead}, c.uploaded)
	if err != nil {
		if c.object != "" && isRefused(err) {
			s.blobs.remove(ctx, c.object)
		}
		if errors.Is(err, store.ErrNotFound) {
			return &store.BackupError{Message: "no file of the restore has the contents " + digest + ": send the rows first"}
		}
		return err
	}
	s.blobs.remove(ctx, freed...)
	return nil
}

// AbandonRestore removes what a restore that was not finished has written.
func (s *Service) AbandonRestore(ctx context.Context, r store.Restore) error {
	freed, err := s.store.AbandonRestore(ctx, r)
	s.blobs.remove(ctx, freed...)
	return err
}

// orphanBytes ends a page of orphans early: the arguments and fields of a thread may have a mebibyte.
const orphanBytes = 8 << 20

// Orphans lists threads of a namespace that belong to an object which exists reports as gone. The page begins behind the thread after,
// in the order of ids. It ends early when its threads are large. It draws memory from the account of ctx.
func (s *Service) Orphans(ctx context.Context, namespace, after string, limit int, exists func(ctx context.Context, name, uid string) (bool, error)) (found []store.Thread, more bool, err error) {
	adjust, err := membudget.Reserve(ctx, orphanBytes)
	if err != nil {
		return nil, false, err
	}
	var size int64
	defer func() { adjust(size) }()
	for {
		page, err := s.store.Owned(ctx, namespace, after, maxPage)
		if err != nil {
			return nil, false, err
		}
		for _, o := range page {
			there, err := exists(ctx, o.Name, o.UID)
			if err != nil {
				return nil, false, err
			}
			if there {
				continue
			}
			if len(found) == limit || size >= orphanBytes {
				return found, true, nil
			}
			t, err := s.store.Thread(ctx, o.ThreadID)
			if errors.Is(err, store.ErrNotFound) || err == nil && t.RetainedAt != 0 {
				continue // it was purged or retained meanwhile
			}
			if err != nil {
				return nil, false, err
			}
			found = append(found, *t)
			size += t.Bytes()
		}
		if len(page) < maxPage {
			return found, false, nil
		}
		after = page[len(page)-1].ThreadID
	}
}

// RetainOrphan retains a thread whose object is gone, so that another object can adopt it.
func (s *Service) RetainOrphan(ctx context.Context, namespace, id string, exists func(ctx context.Context, name, uid string) (bool, error)) error {
	t, err := s.store.Thread(ctx, id)
	if err == nil && t.Namespace != namespace {
		err = fmt.Errorf("thread %s: %w", id, store.ErrNotFound)
	}
	if err != nil || t.RetainedAt != 0 {
		return err
	}
	there, err := exists(ctx, t.Name, t.OwnerUID())
	if err != nil {
		return err
	}
	if there {
		return fmt.Errorf("thread %s: %w", id, store.ErrNotRetained)
	}
	return s.store.Orphan(ctx, id, t.OwnerUID())
}
