// Package store is the data plane's contract: records, operations and the Store interface that every
// database behind Skein keeps (DESIGN.md section 5). It knows no Kubernetes, no HTTP and no model.
// sqlstore implements it; storetest is the suite that any implementation must pass.
//
// Times are microseconds since 1970, zero meaning "not". Ids of threads are UUIDs.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Errors that callers test with errors.Is.
var (
	// ErrNotFound: no such thread, message, run, file or value.
	ErrNotFound = errors.New("not found")
	// ErrFenced: the lease is held by somebody else by now; nothing of the transaction was written (THR-12).
	ErrFenced = errors.New("the thread's lease has passed to another holder")
	// ErrLeaseHeld: another holder has the thread at present.
	ErrLeaseHeld = errors.New("the thread is held by another holder")
	// ErrTerminated: the thread was terminated and takes no new work (THR-05).
	ErrTerminated = errors.New("the thread is terminated")
	// ErrRetained: the thread's object was deleted and its data is kept; it takes no writes until a Thread
	// adopts it (THR-09).
	ErrRetained = errors.New("the thread is retained without an object")
	// ErrNotRetained: the thread has an object, so that it can be neither adopted nor purged by its id.
	ErrNotRetained = errors.New("the thread is not retained")
	// ErrConflict: the expected version is not the present one (THR-11).
	ErrConflict = errors.New("the thread has changed since it was read")
	// ErrKeyReused: the idempotency key was used before for another request (MSG-10).
	ErrKeyReused = errors.New("the idempotency key was used for another request")
	// ErrQueueFull: as many user messages wait as are allowed (MSG-07).
	ErrQueueFull = errors.New("too many messages wait in the queue")
	// ErrFolder: a file operation met a folder at this path, or at RemoveFile one that is not empty.
	ErrFolder = errors.New("a folder is at this path")
	// ErrNotFolder: a part of the path before its last is a file, or a folder was asked for and a file is there.
	ErrNotFolder = errors.New("a file is where a folder is needed")
	// ErrUnavailable: the database cannot be reached or cannot write; try again.
	ErrUnavailable = errors.New("the store is unavailable")
)

// Store is the whole data plane. Every method is safe for concurrent use, and every acknowledged write
// is on disk when the call returns.
type Store interface {
	EnvStore

	// CreateThread makes a thread and applies its first ops (files, inbox items), in one transaction. A
	// second create of the same id changes nothing, applies no op and gives the stored thread with created
	// false. RootID and Depth are the store's: ErrNotFound when ParentID names no thread. A child of a
	// terminated parent is born terminated, its Enqueue ops dropped (SUB-08).
	CreateThread(ctx context.Context, t Thread, ops ...Op) (stored *Thread, created bool, err error)
	// Thread by id. ErrNotFound when absent.
	Thread(ctx context.Context, id string) (*Thread, error)
	// Threads lists, newest activity first.
	Threads(ctx context.Context, q ThreadQuery) ([]Thread, error)
	// FindThreads gives the threads that go by a name or a short id, oldest first, at most q.Limit (100 when 0).
	FindThreads(ctx context.Context, q FindQuery) ([]Thread, error)
	// Namespaces lists the namespaces that have threads, sorted.
	Namespaces(ctx context.Context) ([]string, error)
	// Children lists the threads whose parent is id, oldest first.
	Children(ctx context.Context, id string) ([]Thread, error)
	// Retained lists the threads of a namespace that have no object (THR-09), by id; after is the id that
	// the page before ended with.
	Retained(ctx context.Context, namespace, after string, limit int) ([]Thread, error)
	// Expired lists threads whose idle expiry may have passed, the longest first: Destroy with IfExpired
	// decides, and sees to when to look again.
	Expired(ctx context.Context, limit int) ([]string, error)
	// PurgeThread removes all that the store holds of a thread; absent is no error. It shuts out whoever
	// holds the thread first, and may be repeated when it was cut off. Objects of the bucket that nothing
	// refers to any more are given back for the caller to remove.
	PurgeThread(ctx context.Context, id string) (freed []string, err error)

	// Apply commits ops on one thread in one transaction, all or nothing. With a fence, the transaction
	// fails with ErrFenced unless the fence's epoch is still the thread's. Without one it is a write from
	// outside a run, allowed at any time. Output fields of the ops are filled in on success.
	Apply(ctx context.Context, threadID string, fence *Fence, ops ...Op) error

	// Recorded gives what an idempotency key of the thread was used for; ErrNotFound when it was not.
	Recorded(ctx context.Context, threadID, key string) (fingerprint string, result json.RawMessage, err error)
	// SweepKeys forgets idempotency keys that were first used before a time, at most limit of them.
	SweepKeys(ctx context.Context, before int64, limit int) (removed int64, err error)

	// Messages gives a page (MSG-02).
	Messages(ctx context.Context, threadID string, q MessageQuery) (*MessagePage, error)
	// Message by id; ErrNotFound when absent.
	Message(ctx context.Context, threadID, messageID string) (*Message, error)
	// Work gives what a thread has to do: its row, its inbox and its newest run, all of one moment. ErrNotFound when absent.
	Work(ctx context.Context, threadID string) (*Work, error)
	// Position tells how far the thread's log reaches; ErrNotFound when there is no thread.
	Position(ctx context.Context, threadID string) (Position, error)
	// LastEdit gives the sequence number of the newest entry of the log after that one by which messages that were there before were
	// changed or removed; 0 when there is none, or no thread.
	LastEdit(ctx context.Context, threadID string, after int64) (seq int64, err error)
	// Inbox lists what waits, in order.
	Inbox(ctx context.Context, threadID string) ([]InboxItem, error)
	// Events gives the log after a sequence number, oldest first, at most limit (1000 when 0). The Data of
	// message.created, message.updated and message.queued is the message as it is now, pending and with
	// metadata.queued while it waits, absent once it was deleted.
	Events(ctx context.Context, threadID string, after int64, limit int) ([]Event, error)
	// Lines gives the log lines of a thread, oldest first. ErrNotFound when there is no thread.
	Lines(ctx context.Context, threadID string, q LineQuery) ([]Event, error)
	// Run by id; the newest run of the thread when id is empty. ErrNotFound when absent.
	Run(ctx context.Context, threadID, runID string) (*Run, error)
	// Runs lists a page, newest first: 100 when limit is 0, from the offset-th on.
	Runs(ctx context.Context, threadID string, limit, offset int) ([]Run, error)
	// Wakes lists the parked runs that wait for a time, and the threads of inbox items that are held, the earliest first;
	// 100 when limit is 0.
	Wakes(ctx context.Context, limit, offset int) ([]Wake, error)
	// Unsettled lists runs whose State is RunUnsettled and that ended before a time in microseconds, the longest
	// ended first; 100 when limit is 0.
	Unsettled(ctx context.Context, before int64, limit int) ([]RunRef, error)
	// Settle takes RunUnsettled from a run. It is no change of the thread, and no error when there is none to take.
	Settle(ctx context.Context, run RunRef) error

	// Value of the key-value store, as JSON; ErrNotFound when absent (KVS-01).
	Value(ctx context.Context, threadID, key string) ([]byte, error)
	// File by normalised path; ErrNotFound when absent.
	File(ctx context.Context, threadID, path string) (*File, error)
	// Files lists the files and folders below prefix ("/" for all), by path; direct children only unless recursive.
	Files(ctx context.Context, threadID, prefix string, recursive bool) ([]File, error)
	// Contents gives the object of the bucket that has the contents of a digest; ErrNotFound when none has.
	Contents(ctx context.Context, digest string) (object string, err error)
	// FileUsage tells what a thread has in files, by counters, and the bounds of its own (FIL-08).
	FileUsage(ctx context.Context, threadID string) (*FileUsage, error)
	// SweepObjects is told of objects that are in the bucket. Those that have no contents are noted, and those
	// that were noted before that time, and still have none, are given back for the caller to remove. A
	// PutFile names none of these any more.
	SweepObjects(ctx context.Context, objects []string, before int64) (remove []string, err error)

	// Acquire takes the thread's lease for ttl under a new epoch. ErrLeaseHeld while one has not run out,
	// whoever holds it.
	Acquire(ctx context.Context, threadID, owner string, ttl time.Duration) (*Fence, error)
	// Renew extends the lease. ErrFenced when it was lost.
	Renew(ctx context.Context, f *Fence, ttl time.Duration) error
	// Release gives the lease back; idempotent. It hints ChangedInbox when there is work left.
	Release(ctx context.Context, f *Fence) error
	// Runnable lists threads with work (waiting inbox items, or a run that was under way when its holder
	// was lost) and no live lease, oldest work first, spread over namespaces.
	Runnable(ctx context.Context, limit int) ([]string, error)

	// RecordFiring notes that an effect is due (EFF-04). A repeat changes nothing and gives recorded false.
	RecordFiring(ctx context.Context, f Firing) (recorded bool, err error)
	// ClaimFirings takes unfinished firings that nobody holds, for ttl, counting an attempt. running are those that the
	// caller is at already: where the claim of one has run out it is renewed, which is no attempt, and it is not given.
	ClaimFirings(ctx context.Context, owner string, ttl time.Duration, limit int, running ...FiringKey) ([]Firing, error)
	// FinishFiring records how a firing ended: FiringSucceeded, FiringFailed, or FiringPending to try again
	// after the delay. One that has ended stays as it is.
	FinishFiring(ctx context.Context, effectID string, due int64, status FiringStatus, errText string, retryAfter time.Duration) error
	// Firing by its key; ErrNotFound when absent.
	Firing(ctx context.Context, effectID string, due int64) (*Firing, error)

	SessionStore
	RelationStore
	Searcher
	PermitStore
	MemoryStore

	// Subscribe calls fn after commits with a hint of what changed; hints carry no data and one may be
	// lost, so a subscriber that missed one must find out by reading. fn may be called from several
	// goroutines at once and must not block. Call stop to end it.
	Subscribe(fn func(Hint)) (stop func())
	// Ping tells whether the store can read and write.
	Ping(ctx context.Context) error
	// Close flushes and closes.
	Close() error
}

// ExternalOwner begins the owner of a lease whose holder is no part of the process that serves the store: it
// outlives that process (THR-12).
const ExternalOwner = "external:"

// Fence is the right to write as the one who runs a thread.
type Fence struct {
	ThreadID string
	Owner    string
	Epoch    int64
}

// Hint says that something of a thread has changed.
type Hint struct {
	ThreadID string // "" when any thread may have changed, as after hints were missed
	Changed  Change
	// Remote: another replica made the change, or may have.
	Remote bool
}

// About tells whether the hint is one about a thread.
func (h Hint) About(threadID string) bool { return h.ThreadID == threadID || h.ThreadID == "" }

// Change is a set of kinds of change.
type Change uint8

// The kinds of change.
const (
	ChangedThread Change = 1 << iota // the thread row, a run's start or end
	ChangedInbox
	ChangedLog
	ChangedFiring
	ChangedStop // an InboxStop came, which whoever is at the thread's run is to see at once
)
