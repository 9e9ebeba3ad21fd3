package store

import "encoding/json"

// Op is one change in a transaction of Apply. The ops are the pointer types below.
type Op interface{ op() }

// AppendMessage appends a message and logs EventMessageCreated. ID is made up when empty; an ID that
// exists already leaves the stored message as it is and sets Existed. Seq is filled in, and CreatedAt
// and Status (completed) when they are empty. With To it goes to that thread, whoever runs it, and is
// dropped silently when there is none.
type AppendMessage struct {
	Message *Message
	To      string
	Existed bool
}

// UpdateMessage changes a message and logs it (MSG-06). ErrNotFound when absent.
type UpdateMessage struct {
	ID         string
	Content    *string
	Metadata   map[string]any // merged; nil values remove keys
	Status     *MessageStatus
	ToolStatus *string
	Silent     *bool
	Updated    *Message // filled in
}

// DeleteMessage removes a message, with its tool results when it made calls, and logs it (MSG-06).
type DeleteMessage struct {
	ID      string
	Deleted bool
}

// Enqueue puts an item into the inbox of the thread of Apply, or of To when set, and wakes it. A key
// that was ever used in that thread drops the item and sets Existed. ErrTerminated when that thread is
// terminated, unless IgnoreTerminated, which drops the item silently, also when To was purged.
// ErrQueueFull when MaxUserMessages > 0 and so many user messages that came from outside wait already.
// ErrRunning when IfNoRun is set and a run is under way or parked, or when IfIdle is and one is, or a message waits
// to start one (RUN-09). A repeat of a key is none of these.
type Enqueue struct {
	To               string
	Item             InboxItem
	IgnoreTerminated bool
	MaxUserMessages  int
	IfNoRun, IfIdle  bool
	Unpark           bool // what is parked goes on with this item (MSG-08)
	Existed          bool
	Seq              int64
}

// Dequeue removes inbox items that the run has taken over.
type Dequeue struct{ Seqs []int64 }

// Hold keeps an inbox item that nothing could be done about from being work until a time in microseconds, above 0: then
// Wakes has it. Others of the thread are taken meanwhile. Nothing happens when it is not there any more.
type Hold struct {
	Seq   int64
	Until int64
	Tries int // that came to nothing so far
}

// PutRun makes or changes a run; logs its start, its waiting and its end. StartedAt and EndedAt are filled
// in when they are empty.
type PutRun struct{ Run Run }

// AppendEvent writes to the log; Seq is filled in.
type AppendEvent struct{ Event Event }

// PutValue sets a key to JSON, or removes it when Value is nil (KVS-01).
type PutValue struct {
	Key   string
	Value json.RawMessage
}

// PutFile makes or replaces a file row and logs it; the folders above it are made when missing. A folder
// that is there already stays as it is. ErrFolder when a folder is at the path of a file, ErrNotFolder
// when a file is at the path of a folder, or above it, a *QuotaError when the thread would have more than it
// may (FIL-08). ErrNoContents when no object is named and none is known for the digest (any longer), or
// when the named one was put there so long ago that a sweep may take it for forgotten.
type PutFile struct {
	File File
	// Object of the bucket that the contents were put into, under a name never used before; "" refers to
	// contents that other files have.
	Object string
	// Uploaded is a time before Object was finished, in microseconds.
	Uploaded int64
	// Instead of this object, when it is the one that the digest stands for: it was found missing in the bucket.
	Instead string
	// Quota of threads that have none of their own.
	Quota FileQuota
	// Freed is filled in: objects that nothing refers to any more, Object among them when the contents were
	// there before. Remove them from the bucket once the transaction is committed.
	Freed []string
}

// RemoveFile removes a file or an empty folder row and logs it. ErrNotFound when absent, ErrFolder when
// the folder is not empty.
type RemoveFile struct {
	Path  string
	Freed []string // filled in, as in PutFile
}

// SetFileQuota sets what the thread may have in files; nil leaves a bound to the manager, 0 takes it away. What
// is there already stays, whatever it is.
type SetFileQuota struct{ Bytes, Files *int64 }

// UpdateThread changes fields of the thread row; nil leaves a field as it is. With ExpectVersion the
// transaction fails with ErrConflict when the thread's version is another (THR-11).
// A change of the title, of being archived or of a field is logged as EventThreadUpdated.
type UpdateThread struct {
	Title          *string
	OnlyUntitled   bool // Title is for a thread that has none, and else left as it is
	RegistryStatus *string
	Archived       *bool // archived again keeps its time
	// EditFields changes the fields, within the transaction; an error fails it.
	EditFields    func(*Fields) error
	ExpectVersion *int64
}

// ExpectVersion fails the transaction with a VersionError when the thread's version is another than it was
// at the transaction's begin (THR-11).
type ExpectVersion struct{ Version int64 }

// Once makes a transaction happen once (MSG-10). It comes first in an Apply. When its key was used
// before in the thread, nothing of the transaction is applied, Existed is set and Recorded is what Result
// gave then; with another fingerprint it is ErrKeyReused. Result, which may be nil, is called within the
// transaction, after the other ops.
type Once struct {
	Key         string
	Fingerprint string
	Result      func() (json.RawMessage, error)
	Existed     bool
	Recorded    json.RawMessage
}

// Terminate sets TerminatedAt once, empties the inbox and logs it; again is no error (THR-05).
type Terminate struct {
	Reason  string
	Already bool
}

// ExpectActive fails with ErrTerminated when the thread is terminated. It changes nothing.
type ExpectActive struct{}

func (*ExpectActive) op()  {}
func (*AppendMessage) op() {}
func (*UpdateMessage) op() {}
func (*DeleteMessage) op() {}
func (*Enqueue) op()       {}
func (*Dequeue) op()       {}
func (*Hold) op()          {}
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
