package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// OldestBackup is the oldest schema whose backups can be restored. Raise it with a migration that gives old rows values which a default
// does not.
const OldestBackup = 28

// ErrRemoving means that messages of a thread are being removed in several transactions, so that no backup can be made now.
var ErrRemoving = errors.New("many messages of a thread are being removed, which ends by itself")

// ErrRestored means that a restore is finished, so that it takes no more.
var ErrRestored = errors.New("the restore is finished already")

// BackupRow is one row of a table, in a form that does not depend on the database. Data is an object with a field for each column.
// A thread is named by its id.
type BackupRow struct {
	Table string          `json:"table"`
	Data  json.RawMessage `json:"row"`
}

// BackupError means that rows of a backup cannot be restored. Nothing of the call was written.
type BackupError struct{ Message string }

// Error implements error.
func (e *BackupError) Error() string { return e.Message }

// BackupContents is the contents of files in a backup.
type BackupContents struct {
	Digest string
	Object string // of the bucket
	Size   int64
	// Instead, of contents that are restored, is the object that Object replaces, because it is missing from the bucket.
	Instead string
}

// BackupSummary says what a backup of a namespace has.
type BackupSummary struct {
	Schema   int64            // the version of the schema
	At       int64            // when the rows were read
	Rows     map[string]int64 // the number of rows by table
	KeyIDs   []uint32         // of the keys under which variables are sealed
	Contents []BackupContents // by digest
}

// Restore names the restore of one backup into one namespace. All its rows are the same on every attempt.
type Restore struct {
	ID        string // of the backup
	Namespace string // that the rows go to
	// NamespaceUID is that of the namespace; "" when it is not known.
	NamespaceUID string
}

// RestoreState says how far a restore has come.
type RestoreState struct {
	Staged   int64 // threads whose rows have arrived and are not visible yet
	Restored int64 // threads that were restored, but for those that were retained when the backup was made
	// Finished reports whether what was restored is visible. It is not known of a backup without threads.
	Finished bool
	// Effects reports whether rows of ScheduledEffects wait for BindEffects.
	Effects bool
	// Taken are ids, of those that were asked for, of threads that exist and are not of this restore; some of them.
	Taken []string
}

// MissingContentsError means that contents of files were not sent.
type MissingContentsError struct{ Digests []string }

// Error implements error.
func (e *MissingContentsError) Error() string {
	return fmt.Sprintf("the contents of files are missing: %s", strings.Join(e.Digests, ", "))
}

// BackupStore reads all rows of a namespace, and writes them into a database again (K8S-09).
//
// The rows of a restore arrive in any number of calls, threads first. They are not visible until FinishRestore, which makes them all
// visible in one transaction, as threads without an object. Rows of ScheduledEffects wait for BindEffects. Every call can be repeated.
type BackupStore interface {
	// Backup calls emit for each row of a namespace, and none of another one of the same name. All are read at one moment. Threads that are being purged are left out.
	// It fails with ErrRemoving, before it emits anything, while messages are being removed.
	Backup(ctx context.Context, ns Namespace, emit func(BackupRow) error) (*BackupSummary, error)
	// PinContents keeps objects that nothing refers to any more in the bucket for a while, because a backup reads them. A ttl of 0
	// ends the hold.
	PinContents(ctx context.Context, id string, ttl time.Duration) error
	// ContentsHeld reports whether a backup reads objects that nothing may refer to any more.
	ContentsHeld(ctx context.Context) (bool, error)
	// SchemaVersion returns the version of the database's schema.
	SchemaVersion(ctx context.Context) (int64, error)

	// RestoreState returns how far a restore has come, and which threads are in its way.
	RestoreState(ctx context.Context, r Restore, threads []string) (*RestoreState, error)
	// RestoreRows stores rows of a restore. It returns a *BackupError for rows that do not fit, and ErrRestored after FinishRestore.
	RestoreRows(ctx context.Context, r Restore, rows []BackupRow) error
	// RestoreContents makes the files of a restore with a digest refer to an object of the bucket, unless the digest has another object than
	// the one that is missing. It returns the objects that nothing refers to, perhaps the given one. It fails with ErrNotFound when no file has this digest, and with ErrRestored after
	// FinishRestore.
	RestoreContents(ctx context.Context, r Restore, c BackupContents, uploaded int64) (freed []string, err error)
	// FinishRestore makes the threads visible. It fails with a *BackupError when the number of their rows is not the one in rows, when rows
	// name threads of another namespace, or when an AbandonRestore has begun. It fails with a *MissingContentsError when contents were not
	// sent, even if files of other threads have them. After a FinishRestore that succeeded, a repeat does nothing.
	FinishRestore(ctx context.Context, r Restore, rows map[string]int64) error
	// BindEffects gives the rows of ScheduledEffects to new objects: effects maps the UIDs in the backup to the new ones, which must be
	// objects of the namespace. Rows of other effects are dropped. It fails with ErrRetained while a thread that has work of an effect has no object.
	BindEffects(ctx context.Context, r Restore, effects map[string]string) error
	// AbandonRestore removes what is not visible of a restore. It returns the bucket objects that nothing refers to any more. Until one
	// succeeds, the restore takes no rows and is not finished.
	AbandonRestore(ctx context.Context, r Restore) (freed []string, err error)

	// Orphan turns a thread whose object is gone into a retained one. uid is the object's: it fails with ErrNotRetained when the
	// thread belongs to another object by now. The run is ended, and the thread keeps what waits for it.
	Orphan(ctx context.Context, threadID, uid string) error
}
