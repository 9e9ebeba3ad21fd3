// Package store is the contract of the data plane: records, operations and the Store interface that every database
// behind Skein implements. It does not depend on Kubernetes, HTTP or models. sqlstore implements it; storetest is the
// suite that every implementation must pass.
//
// Times are microseconds since 1970; zero means unset. Thread ids are UUIDs.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors that callers test with errors.Is.
var (
	// ErrNotFound means that the thread, message, run, file or value does not exist.
	ErrNotFound = errors.New("not found")
	// ErrFenced means that another holder has the lease by now. Nothing of the transaction was written (THR-12).
	ErrFenced = errors.New("the thread's lease has passed to another holder")
	// ErrLeaseHeld means that another holder has the thread's lease.
	ErrLeaseHeld = errors.New("the thread is held by another holder")
	// ErrTerminated means that the thread was terminated and takes no new work (THR-05).
	ErrTerminated = errors.New("the thread is terminated")
	// ErrRetained means that the thread's object was deleted and its data is kept. The thread takes no writes until a
	// Thread adopts it (THR-09).
	ErrRetained = errors.New("the thread is retained without an object")
	// ErrNotRetained means that the thread has an object, so it can be neither adopted nor purged by its id.
	ErrNotRetained = errors.New("the thread is not retained")
	// ErrObjectDeleted means that the thread's object is being deleted, or gone.
	ErrObjectDeleted = errors.New("the Thread object was deleted")
	// ErrChildPurged means that the child was made and deleted, and is not made again.
	ErrChildPurged = errors.New("the subagent was deleted")
	// ErrHasParent means that the thread is a child already.
	ErrHasParent = errors.New("the thread is a child of another")
	// ErrCycle means that a thread would become its own ancestor, or have a parent in another namespace.
	ErrCycle = errors.New("the parent is below the thread, or in another namespace")
	// ErrHasEnv means that variables were set on the thread, or below it.
	ErrHasEnv = errors.New("the thread, or one below it, has variables of its own")
	// ErrConflict means that the thread does not have the expected version (THR-11).
	ErrConflict = errors.New("the thread has changed since it was read")
	// ErrKeyReused means that the idempotency key was already used for another request (MSG-10).
	ErrKeyReused = errors.New("the idempotency key was used for another request")
	// ErrQueueFull means that the limit of waiting user messages is reached (MSG-07).
	ErrQueueFull = errors.New("too many messages wait in the queue")
	// ErrInboxFull is an ErrQueueFull that means that MaxWaiting items, or MaxWaitingBytes, wait for a thread.
	ErrInboxFull = fmt.Errorf("%w: the thread takes no more until a run has taken them in", ErrQueueFull)
	// ErrFolder means that a folder is at this path; with RemoveFile, a folder that is not empty.
	ErrFolder = errors.New("a folder is at this path")
	// ErrNotFolder means that a parent in the path is a file, or that a folder was asked for and a file is there.
	ErrNotFolder = errors.New("a file is where a folder is needed")
	// ErrUnavailable means that the database cannot be reached or cannot write. Try again.
	ErrUnavailable = errors.New("the store is unavailable")
)

// Store is the whole data plane. Every method is safe for concurrent use. Every acknowledged write is on disk when the
// call returns.
type Store interface {
	EnvStore

	// CreateThread creates a thread and applies its first ops (files, inbox items), in one transaction. A second create
	// of the same id changes nothing, applies no op and returns the stored thread with created false. The store sets
	// RootID and Depth, and fails with ErrNotFound when ParentID names no thread. A child of a terminated parent is
	// created terminated, and its Enqueue ops are dropped (SUB-08). It fails with ErrObjectDeleted after MarkDeleted for
	// the same id, and while the parent is Deleting or is being purged, unless that was terminated before.
	CreateThread(ctx context.Context, t Thread, ops ...Op) (stored *Thread, created bool, err error)
	// Thread returns the thread with this id, or ErrNotFound.
	Thread(ctx context.Context, id string) (*Thread, error)
	// Threads lists threads, newest activity first, without their arguments. more reports that the list has others behind them.
	Threads(ctx context.Context, q ThreadQuery) (threads []Thread, more bool, err error)
	// FindThreads returns the threads with a name or a short id, oldest first, at most q.Limit (100 when 0).
	FindThreads(ctx context.Context, q FindQuery) ([]Thread, error)
	// Namespaces lists the namespaces that have threads, sorted.
	Namespaces(ctx context.Context) ([]string, error)
	// Children lists the threads whose parent is id, oldest first. Those that are retained are left out.
	Children(ctx context.Context, id string) ([]Thread, error)
	// Undeclared lists the retained threads that have never had an object and whose ids are derived (UUIDs of version 5), by id: those of
	// handoffs that are to get one. after is the last id of the page before. Its cost does not grow with the number of other retained threads.
	Undeclared(ctx context.Context, after string, limit int) ([]Thread, error)
	// Retained lists the threads of a namespace that have no object (THR-09), by id. after is the last id of the page
	// before. With most above 0 they take at most so many bytes of memory, but for the first one. more reports that others follow.
	Retained(ctx context.Context, namespace, after string, limit int, most int64) (threads []Thread, more bool, err error)
	// AdoptBelow makes a retained thread the root of its descendants. It changes at most limit of them (100 when 0), and returns how many it
	// changed. Call it before Adopt until it returns less than limit. The variables of the descendants stay readable.
	AdoptBelow(ctx context.Context, id string, limit int) (moved int, err error)
	// Owned lists the threads of a namespace that are not retained, by id: only what tells whose they are. after is the last id of the page
	// before.
	Owned(ctx context.Context, namespace, after string, limit int) ([]ThreadOwner, error)
	// RetainedBefore lists threads of all namespaces that have had no object since before a time, and those whose purge
	// was interrupted, the oldest first.
	RetainedBefore(ctx context.Context, before int64, limit int) ([]Thread, error)
	// Expired lists threads whose idle expiry may have passed, the longest idle first. Destroy with IfExpired decides
	// whether it has, and schedules the next check.
	Expired(ctx context.Context, limit int) ([]string, error)
	// FinishRemovals removes what is left of the messages of conversations that were destroyed or truncated before a time
	// in microseconds, and whose removal was interrupted. It works on at most limit threads (100 when 0), and returns how
	// many it finished. One that fails does not keep it from the others.
	FinishRemovals(ctx context.Context, before int64, limit int) (finished int, err error)
	// SweepRemnants removes what purged, destroyed and truncated conversations have left for their forks, and which no fork reads any more.
	// It looks at as many as limit says (100 when 0), after the last one of the call before. It returns the last one, or 0 after all of them,
	// and how many it removed. It is for those that were left by an interruption: what ends the last fork's reading removes them at once.
	SweepRemnants(ctx context.Context, after int64, limit int) (last int64, removed int, err error)
	// PurgeThread removes everything that the store keeps of a thread. A thread that does not exist is no error. It
	// revokes the lease first, and can be repeated when it was interrupted. It returns the bucket objects that nothing
	// refers to any more, for the caller to remove.
	PurgeThread(ctx context.Context, id string) (freed []string, err error)

	// MarkDeleted records that the Thread object with a UID is being deleted. From then on CreateThread and Adopt fail with
	// ErrObjectDeleted for this UID: a replica whose copy of the object is old, or whose request was held up, must not bring
	// the thread back. When it returns, a thread that was stored for the object before is visible. It can be repeated.
	//
	// The thread with the given id, if it belongs to the object, is Deleting from then until it is purged or retained. Its
	// lease is revoked, and Acquire fails with ErrObjectDeleted. It has no work, takes no more inbox items, gets no children and does not
	// expire, as if it were terminated, and a child no longer counts as living. Its holder gets ChangedStop. What is stored stays as it is.
	//
	// The UIDs in also are recorded in the same transaction. They are those of Subagents, which make no child again.
	MarkDeleted(ctx context.Context, uid, threadID string, also ...string) error
	// MarkedDeleted reports whether MarkDeleted has recorded a UID.
	MarkedDeleted(ctx context.Context, uid string) (bool, error)
	// Refuse keeps a thread from being stored for a minute, while the object that it has the id of is deleted. CreateThread fails with
	// ErrObjectDeleted meanwhile. It reports false, and does nothing, when the thread is stored already.
	Refuse(ctx context.Context, threadID string) (refused bool, err error)
	// Readmit ends what Refuse has begun, because the object stays.
	Readmit(ctx context.Context, threadID string) error
	// SweepDeleted removes what MarkDeleted recorded before a time, at most limit entries. It returns how many it removed.
	SweepDeleted(ctx context.Context, before int64, limit int) (removed int64, err error)

	// Apply commits ops on one thread in one transaction, all or nothing. With a fence, the transaction fails with
	// ErrFenced unless the fence's epoch is still the thread's. Without a fence it is a write from outside a run, which
	// is allowed at any time. On success the output fields of the ops are filled in.
	Apply(ctx context.Context, threadID string, fence *Fence, ops ...Op) error

	// Recorded returns what an idempotency key of the thread was used for, or ErrNotFound when it was not used.
	Recorded(ctx context.Context, threadID, key string) (fingerprint string, result json.RawMessage, err error)
	// SweepKeys removes idempotency keys that were first used before a time, at most limit of them.
	SweepKeys(ctx context.Context, before int64, limit int) (removed int64, err error)

	// SweepInboxKeys removes the keys of inbox items that were added before a time and are not waiting, at most limit of
	// them.
	SweepInboxKeys(ctx context.Context, before int64, limit int) (removed int64, err error)
	// SweepDeltas removes log entries of the type EventDelta from before a time, at most limit of them. It spares those of
	// an answer that is still being written.
	SweepDeltas(ctx context.Context, before int64, limit int) (removed int64, err error)

	// Messages returns a page of messages (MSG-02).
	Messages(ctx context.Context, threadID string, q MessageQuery) (*MessagePage, error)
	// Message returns the message with this id, or ErrNotFound.
	Message(ctx context.Context, threadID, messageID string) (*Message, error)
	// Work returns the thread, its inbox and its newest run, all read at one moment. ErrNotFound when the thread does
	// not exist.
	Work(ctx context.Context, threadID string) (*Work, error)
	// Position returns how far the thread's log reaches, or ErrNotFound when the thread does not exist.
	Position(ctx context.Context, threadID string) (Position, error)
	// LastEdit returns the sequence number of the newest log entry after the given one that changed or removed existing
	// messages. It returns 0 when there is no such entry, or no such thread.
	LastEdit(ctx context.Context, threadID string, after int64) (seq int64, err error)
	// Inbox lists the waiting inbox items, in order.
	Inbox(ctx context.Context, threadID string) ([]InboxItem, error)
	// InboxItem returns the waiting inbox item with a key, or ErrNotFound.
	InboxItem(ctx context.Context, threadID, key string) (*InboxItem, error)
	// QueuedMessage returns the waiting inbox item with the message of an id, or ErrNotFound.
	QueuedMessage(ctx context.Context, threadID, messageID string) (*InboxItem, error)
	// Events returns the log after a sequence number, oldest first, at most limit entries (1000 when 0). The Data of
	// message.created, message.updated and message.queued is the message as it is now. A waiting message is pending and
	// has metadata.queued. Data is absent when the message was deleted.
	Events(ctx context.Context, threadID string, after int64, limit int) ([]Event, error)
	// Lines returns the log lines of a thread, oldest first, or ErrNotFound when the thread does not exist.
	Lines(ctx context.Context, threadID string, q LineQuery) ([]Event, error)
	// Run returns the run with this id, or the newest run of the thread when runID is empty, or ErrNotFound.
	Run(ctx context.Context, threadID, runID string) (*Run, error)
	// FirstRun returns the oldest run of the thread, or ErrNotFound.
	FirstRun(ctx context.Context, threadID string) (*Run, error)
	// Runs lists a page, newest first: at most limit runs (100 when 0), starting at offset.
	Runs(ctx context.Context, threadID string, limit, offset int) ([]Run, error)
	// RunsWithin is Runs of which the runs take at most so many bytes of memory, but for the first one. more reports that the thread
	// has older ones.
	RunsWithin(ctx context.Context, threadID string, limit, offset int, most int64) (runs []Run, more bool, err error)
	// Wakes lists the parked runs that wait for a time and the threads with delayed inbox items, the earliest first, at
	// most limit (100 when 0).
	Wakes(ctx context.Context, limit, offset int) ([]Wake, error)
	// PostRunPending lists runs whose State is RunPostRunPending and that ended before a time in microseconds, the oldest end
	// first, at most limit (100 when 0).
	PostRunPending(ctx context.Context, before int64, limit int) ([]RunRef, error)
	// TakeTasks takes the tasks after a run for ttl, unless they are done or another replica has taken them.
	TakeTasks(ctx context.Context, run RunRef, ttl time.Duration) (taken bool, err error)
	// LeftPostRun lists at most limit runs (100 when 0) whose tasks a replica has left undone: those that were handed over, and those that
	// ended, or were taken, longer than ttl ago. The oldest of each namespace come first, then the second oldest of each, and so on. Runs of
	// threads that are retained or about to be purged are left out. TakeTasks takes them.
	LeftPostRun(ctx context.Context, ttl time.Duration, limit int) ([]LeftRun, error)
	// HandOver lets other replicas take these runs at once, where their tasks are not done, and sends them ChangedTasks.
	HandOver(ctx context.Context, runs []RunRef) error
	// FinishPostRun removes RunPostRunPending from a run. It does not change the version of the thread. A run that
	// does not have it is no error.
	FinishPostRun(ctx context.Context, run RunRef) error

	// Value returns a value of the key-value store as JSON, or ErrNotFound (KVS-01).
	Value(ctx context.Context, threadID, key string) ([]byte, error)
	// File returns the file at a normalised path, or ErrNotFound.
	File(ctx context.Context, threadID, path string) (*File, error)
	// Files lists the files and folders below prefix ("/" for all), by path; direct children only unless recursive.
	Files(ctx context.Context, threadID, prefix string, recursive bool) ([]File, error)
	// FilesPage lists a page of files and folders. more reports that others follow.
	FilesPage(ctx context.Context, threadID string, q FileQuery) (files []File, more bool, err error)
	// Contents returns the bucket object with the contents of a digest, or ErrNotFound when none has them.
	Contents(ctx context.Context, digest string) (object string, err error)
	// FileUsage returns what the files of a thread use, read from counters, and the thread's own limits (FIL-08).
	FileUsage(ctx context.Context, threadID string) (*FileUsage, error)
	// SweepObjects takes names of objects that are in the bucket, and records those that no file contents refer to. It
	// returns those that were recorded before the time before and still have no contents, for the caller to remove. No
	// PutFile can name a returned object any more.
	SweepObjects(ctx context.Context, objects []string, before int64) (remove []string, err error)
	// ForgetObject makes an object new to SweepObjects. Call it before an object is stored under a name that was used before.
	ForgetObject(ctx context.Context, object string) error

	// Acquire takes the thread's lease for ttl under a new epoch. It fails with ErrLeaseHeld until the present lease
	// expires, even when owner holds it, and with ErrObjectDeleted while the thread is Deleting.
	Acquire(ctx context.Context, threadID, owner string, ttl time.Duration) (*Fence, error)
	// Renew extends the lease. It fails with ErrFenced when the lease was lost.
	Renew(ctx context.Context, f *Fence, ttl time.Duration) error
	// Release releases the lease, and is idempotent. It sends ChangedInbox to subscribers when work is left.
	Release(ctx context.Context, f *Fence) error
	// WithWork returns those of the threads that have work: free are those without a live lease, held those with one.
	WithWork(ctx context.Context, ids []string) (free, held []string, err error)
	// Runnable lists threads that have work and no live lease, oldest work first, spread over namespaces. Work is a
	// waiting inbox item, or a run that was in progress when its holder was lost.
	Runnable(ctx context.Context, limit int) ([]string, error)
	// RunnablePage is Runnable for callers that have to see all of them: it lists threads behind a place, and returns the place
	// behind the last. A nil place is the beginning; a nil next means that no more follow.
	RunnablePage(ctx context.Context, after WorkPlace, limit int) (ids []string, next WorkPlace, err error)

	FiringStore
	ChildStore

	SessionStore
	RelationStore
	Searcher
	PermitStore
	QuotaStore
	MemoryStore
	BackupStore
	OwnerStore
	WebhookStore
	StatisticsStore

	// Subscribe calls fn after commits with a notification of what changed. Notifications carry no data and can be
	// lost, so subscribers must also read the store from time to time. fn may be called from several goroutines at once
	// and must not block. stop ends the subscription.
	Subscribe(fn func(Notification)) (stop func())
	// SubscribeThread calls fn as Subscribe does, with the notifications that are about one thread: those with its id, and
	// those that say that anything may have changed. It costs nothing when other threads change.
	SubscribeThread(threadID string, fn func(Notification)) (stop func())
	// Ping reports whether the store can read and write.
	Ping(ctx context.Context) error
	// Close flushes and closes the store.
	Close() error
}

// ExternalOwner is the prefix of the owner of a lease whose holder is not part of the process that serves the store.
// Such a lease survives that process (THR-12).
const ExternalOwner = "external:"

// Fence is the right to write as the holder of a thread's lease.
type Fence struct {
	ThreadID string
	Owner    string
	Epoch    int64
}

// Notification is a notification that something of a thread has changed.
type Notification struct {
	// ThreadID and EffectID are both "" when anything may have changed, for example after notifications were lost. EffectID
	// is set when firings of a ScheduledEffect changed.
	ThreadID string
	EffectID string
	Changed  Change
	// Remote reports that another replica made the change, or may have.
	Remote bool
	// Released reports that nothing is new: this replica has released the lease, and work is left. Remote notifications do not say so.
	Released bool
}

// Everything reports whether anything may have changed.
func (h Notification) Everything() bool { return h.ThreadID == "" && h.EffectID == "" }

// Change is a set of kinds of change.
type Change uint8

// The kinds of change.
const (
	// ChangedAtWork: a thread was stored, a run has begun, waits or goes on, or a child has another status in the registry of its parent. More
	// is about to change, so a reader that only shows the thread may wait for that.
	ChangedAtWork Change = 1 << iota
	ChangedInbox
	ChangedLog
	ChangedFiring
	ChangedStop     // an InboxStop came, or the thread's object was deleted, which the holder of the thread's lease must see at once
	ChangedTasks    // the tasks after a run were handed over
	ChangedDelivery // there may be deliveries of webhooks that are due
	changedRecord

	// ChangedThread: the thread record has changed, or a run has ended. It includes ChangedAtWork, so as a mask it stands for any change of a
	// thread. Replicas of earlier releases send the bit of ChangedAtWork alone for both.
	ChangedThread = ChangedAtWork | changedRecord
)

// IsAtWork reports whether a thread has changed in no other way than ChangedAtWork says.
func (c Change) IsAtWork() bool { return c&ChangedThread == ChangedAtWork }
