package store

import "encoding/json"

// Op is one change in a transaction of Apply. The ops are the pointer types below.
type Op interface{ op() }

// AppendMessage appends a message and logs EventMessageCreated. An empty ID is generated. An ID that already exists
// leaves the stored message as it is and sets Existed. Seq is filled in, and so are CreatedAt and Status (completed)
// when they are empty. With To the message goes to that thread, whatever holds its lease, and is dropped silently when
// the thread does not exist.
type AppendMessage struct {
	Message *Message
	To      string
	Bounded bool // clients or code wrote the message, so the namespace's quota of bytes of messages applies (K8S-11)
	Existed bool
}

// UpdateMessage changes a message and logs it (MSG-06). It fails with ErrNotFound when the message does not exist.
type UpdateMessage struct {
	ID         string
	Content    *string
	Metadata   map[string]any // merged; nil values remove keys
	Status     *MessageStatus
	ToolStatus *string
	Silent     *bool
	Bounded    bool     // clients or code change it, so the namespace's quota of bytes of messages applies where the message grows (K8S-11)
	Updated    *Message // filled in
}

// DeleteMessage removes a message, and its tool results when it made calls, and logs it (MSG-06).
type DeleteMessage struct {
	ID      string
	Deleted bool
}

// Enqueue puts an item into the inbox of the thread of Apply, or of To when set, and wakes that thread. A key that was
// used in that thread, and that was not swept since, drops the item and sets Existed; a repeat is never one of the errors below.
//
// It fails with
//   - ErrTerminated when that thread is terminated. With IgnoreTerminated the item is dropped silently instead, also
//     when To was purged.
//   - ErrQueueFull when MaxUserMessages > 0 and that many user messages from outside already wait.
//   - ErrInboxFull when Bounded is set and MaxWaiting items, or MaxWaitingBytes of payloads, wait.
//   - ErrRunning when IfNoRun is set and a run is in progress or parked, or when IfIdle is set and a run is in progress
//     or parked or a message waits to start one (RUN-09).
type Enqueue struct {
	To               string
	Item             InboxItem
	IgnoreTerminated bool
	MaxUserMessages  int
	// Bounded says that clients or code sent the item, so MaxWaiting and MaxWaitingBytes apply. A message is also refused once the namespace
	// has used up its quota of bytes of messages (K8S-11): it counts when a run takes it in.
	Bounded         bool
	IfNoRun, IfIdle bool
	Unpark          bool // a parked thread continues with this item (MSG-08)
	Existed         bool
	Seq             int64
	// Origin says where the item comes from, when that is not where the operation is applied. It is not stored by itself: package
	// telemetry adds it to the payload.
	Origin json.RawMessage
}

// What may wait for a thread before items from outside are refused. A run reads all of it at once, so that without a bound one
// thread could take the memory of the manager.
const (
	MaxWaiting      = 1000
	MaxWaitingBytes = 16 << 20
)

// Dequeue removes inbox items that the run has taken over.
type Dequeue struct{ Seqs []int64 }

// Delay keeps an inbox item that could not be handled from counting as work until a time in microseconds, above 0.
// Meanwhile Wakes lists it, and other items of the thread are taken. Delay does nothing when the item no longer exists. When a
// run that waited goes on, and when a run ends, the delays of all items but hooks end.
type Delay struct {
	Seq   int64
	Until int64
	Tries int // failed attempts so far
}

// PutRun creates or changes a run, and logs when it starts, waits and ends. StartedAt and EndedAt are filled in when
// they are empty.
type PutRun struct{ Run Run }

// AppendEvent appends to the log. Seq is filled in.
type AppendEvent struct{ Event Event }

// PutValue sets a key to JSON, or removes it when Value is nil (KVS-01).
type PutValue struct {
	Key   string
	Value json.RawMessage
}

// PutFile creates or replaces a file or a folder and logs it. Missing parent folders are created. A folder that already
// exists stays as it is. It fails with
//   - ErrFolder when a folder is at the path of a file;
//   - ErrNotFolder when a file is at the path of a folder, or above it;
//   - a *QuotaError when the thread would exceed its quota (FIL-08);
//   - ErrNoContents when no object is named and none is known, or known any longer, for the digest, or when the named
//     one was uploaded so long ago that a sweep may treat it as abandoned.
type PutFile struct {
	File File
	// Object names the bucket object that the contents were uploaded to, under a name never used before. "" refers to
	// contents that other files have.
	Object string
	// Uploaded is a time before the upload of Object ended, in microseconds.
	Uploaded int64
	// Instead names an object that Object replaces, if it is the one stored for the digest: it is missing in the
	// bucket.
	Instead string
	// Quota applies to threads that have none of their own.
	Quota FileQuota
	// Freed is filled in: objects that nothing refers to any more. Object is among them when the contents already
	// existed. Remove them from the bucket after the transaction is committed.
	Freed []string
}

// RemoveFile removes a file or an empty folder and logs it. It fails with ErrNotFound when the path does not exist, and
// with ErrFolder when the folder is not empty.
type RemoveFile struct {
	Path  string
	Freed []string // filled in, as in PutFile
}

// SetFileQuota sets the file quota of the thread. nil means the manager's limit applies, 0 means no limit. Existing
// files stay, even above the quota.
type SetFileQuota struct{ Bytes, Files *int64 }

// UpdateThread changes fields of the thread. nil leaves a field as it is. With ExpectVersion the transaction fails with
// ErrConflict when the thread has another version (THR-11). A change of the title, of the archived state or of a field
// is logged as EventThreadUpdated.
type UpdateThread struct {
	Title          *string
	OnlyUntitled   bool // Title applies only while the thread has none
	RegistryStatus *string
	Archived       *bool // archiving an archived thread keeps its time
	// EditFields edits the fields within the transaction. Its error fails the transaction.
	EditFields    func(*Fields) error
	ExpectVersion *int64
}

// ExpectVersion fails the transaction with a *VersionError unless the thread had this version when the transaction
// began (THR-11).
type ExpectVersion struct{ Version int64 }

// Once makes a transaction take effect once (MSG-10). It comes first in an Apply. When its key was already used in the
// thread, nothing of the transaction is applied, Existed is set, and Recorded is what Result returned then. With
// another fingerprint it fails with ErrKeyReused. Result may be nil. It is called within the transaction, after the
// other ops.
type Once struct {
	Key         string
	Fingerprint string
	Result      func() (json.RawMessage, error)
	Existed     bool
	Recorded    json.RawMessage
}

// Terminate sets TerminatedAt once, empties the inbox and logs it. Repeating it is no error (THR-05). It does nothing when Unless returns
// true for an item that waits at that moment; Left reports that.
type Terminate struct {
	Reason  string
	Unless  func(InboxItem) bool
	Already bool
	Left    bool
}

// ExpectActive fails with ErrTerminated when the thread is terminated or Deleting. It changes nothing.
type ExpectActive struct{}

func (*ExpectActive) op()  {}
func (*AppendMessage) op() {}
func (*UpdateMessage) op() {}
func (*DeleteMessage) op() {}
func (*Enqueue) op()       {}
func (*Dequeue) op()       {}
func (*Delay) op()         {}
func (*PutRun) op()        {}
func (*AppendEvent) op()   {}
func (*PutValue) op()      {}
func (*PutFile) op()       {}
func (*RemoveFile) op()    {}
func (*SetFileQuota) op()  {}
func (*UpdateThread) op()  {}
func (*Terminate) op()     {}
func (*ExpectVersion) op() {}
func (*Once) op()          {}
