package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrFiringLost means that the caller no longer holds the firing that it claimed: the firing was canceled, the claim
// expired and another replica has it, or it has ended. Nothing was written.
var ErrFiringLost = errors.New("the firing is held by another, or was canceled")

// AnyEffect is the EffectID of a notification about firings of effects that it does not name.
const AnyEffect = "*"

// FiringStatus is the status of a firing.
type FiringStatus string

// The statuses of a firing.
const (
	FiringPending   FiringStatus = "pending" // due, or under way
	FiringQueued    FiringStatus = "queued"  // waits until an earlier firing has ended
	FiringRunning   FiringStatus = "running" // a Thread of its own runs it; no worker claims it
	FiringSucceeded FiringStatus = "succeeded"
	FiringFailed    FiringStatus = "failed"
	FiringCanceled  FiringStatus = "canceled"
)

// Ended reports whether the firing has ended.
func (s FiringStatus) Ended() bool {
	return s != FiringPending && s != FiringQueued && s != FiringRunning
}

// FiringOrigin says why a firing was recorded.
type FiringOrigin string

// The origins of firings. That of a one-time effect is "".
const (
	OriginSchedule FiringOrigin = "schedule"
	OriginCatchUp  FiringOrigin = "catch-up"
	OriginCreation FiringOrigin = "creation"
	OriginManual   FiringOrigin = "manual"
	OriginBackfill FiringOrigin = "backfill"
)

// FiringKey identifies a firing.
type FiringKey struct {
	EffectID string // UID of the ScheduledEffect
	Due      int64
	ThreadID string // "" without a thread
}

// Firing is one due time of one ScheduledEffect for one thread, or for none.
type Firing struct {
	EffectID  string // UID of the ScheduledEffect
	Due       int64
	ThreadID  string
	Namespace string
	Name      string // of the ScheduledEffect object
	Effect    string // as scheduled: name or package/name; "" when the target is something else
	Args      json.RawMessage
	Status    FiringStatus
	Attempts  int
	Error     string
	FiredAt   int64
	EndedAt   int64
	HookDepth int // length of the chain of hooks, each caused by the one before it, that led to it
	// Epoch rises with each claim. The holder of an older epoch can record nothing.
	Epoch  int64
	Origin FiringOrigin
	// Target says what to do, and with which policies; nil for an effect of a thread with the defaults.
	Target json.RawMessage
	// Waiting says what the firing waits for; "" when nothing keeps it from being attempted.
	Waiting   string
	StartedAt int64 // of the first attempt; 0 before it
	Cost      float64
	Log       string // what its code wrote, when it has no thread whose log has it
	// KeyedBy is the UID that its idempotency key is made with, when a restore has given the firing to another object; else "".
	KeyedBy string
	// AvailableAt is when it may be claimed. RecordFiring and RecordDue take it as the earliest time of the first attempt.
	AvailableAt int64
	// TakesArgs names stored arguments that Args are a copy of. RecordFiring and RecordDue remove them with the recording, whatever then
	// becomes of the object. It is not read back.
	TakesArgs string
}

// Key returns the key of the firing.
func (f *Firing) Key() FiringKey { return FiringKey{f.EffectID, f.Due, f.ThreadID} }

// Text names the firing for people and in logs: its ScheduledEffect, a slash and its due time.
func (f *Firing) Text() string {
	return f.Name + "/" + time.UnixMicro(f.Due).UTC().Format(time.RFC3339Nano)
}

// FiringEnd is the outcome of an attempt of a firing.
type FiringEnd struct {
	Key       FiringKey
	Namespace string // of the firing
	Epoch     int64  // of the claim
	// Status is FiringSucceeded, FiringFailed, or FiringPending for another attempt after RetryAfter.
	Status     FiringStatus
	Error      string
	RetryAfter time.Duration
	// Waiting says what the firing waits for. If it is not "", the attempt does not count.
	Waiting string
	// Began says that an attempt which does not count had begun nevertheless, so that the firing is not late any more.
	Began bool
	Cost  float64 // of the attempt
	Log   string  // of all attempts
	// Counts makes an end change the number of failures in a row of the schedule.
	Counts bool
}

// EffectSchedule is how far a ScheduledEffect with schedules has come.
type EffectSchedule struct {
	EffectID    string
	Namespace   string
	Name        string
	Fingerprint string // of the schedule that the cursor belongs to
	Times       string // that schedule, as its writer encodes it; "" when an earlier release wrote it
	Cursor      int64  // all due times up to it have been dealt with
	Fired       int64  // due times that fired
	Failures    int64  // in a row
	Skipped     int64  // due times that did not fire
	Day         string // to which DayFired belongs
	DayFired    int64
	Removed     bool // nothing fires any more
}

// EffectSkip records due times that did not fire.
type EffectSkip struct {
	EffectID   string
	Due        int64 // the first due time
	Until      int64 // the last due time
	ThreadID   string
	Count      int64
	Reason     string
	Detail     string
	RecordedAt int64
}

// DueRecord is what RecordDue writes in one transaction.
type DueRecord struct {
	// Schedule replaces the stored one, whose cursor and fingerprint must be those of Was. Was is nil when there was none.
	// The number of failures in a row is kept, unless ResetFailures is set.
	Schedule      EffectSchedule
	Was           *EffectSchedule
	ResetFailures bool
	Firings       []Firing     // existing ones stay as they are
	Skips         []EffectSkip // one of a thread and reason that begins at the same due time, and ends later, replaces the stored one
	Cancel        []FiringKey  // firings that the new ones replace, perhaps some of these too; see CancelFirings
	// Requests are requests by hand that the record answers. Each is answered once: ErrConflict if one was already, or if a firing by hand
	// exists.
	Requests []FiringRequest
}

// FiringRequest is a request by hand, and what became of it.
type FiringRequest struct {
	ID     string
	Answer json.RawMessage
}

// FiringQuery selects the firings of an effect, the newest due time first.
type FiringQuery struct {
	EffectID string
	Active   bool  // only those that have not ended
	Before   int64 // only those due before it; no limit when 0
	// BeforeThread, when it is set, also selects those due at Before whose threads follow it.
	BeforeThread *string
	Limit        int // 100 when 0
	// Brief leaves out Args, Target and Log. Thousands of firings may be under way, each with a mebibyte of arguments.
	Brief bool
}

// HistoryLimits are how many firings of an effect stay when others are removed.
type HistoryLimits struct {
	Succeeded int
	Failed    int // canceled ones included
	// Outcome says that the firing that FiringStore.Outcome returns stays in any case.
	Outcome bool
	// Since keeps all firings that are due from this time on, when it is not 0.
	Since int64
}

// FiringStore keeps the firings of ScheduledEffects.
type FiringStore interface {
	// RecordFiring records that a one-time effect is due (EFF-04). A repeat changes nothing and returns recorded false, as it
	// does after RemoveEffect.
	RecordFiring(ctx context.Context, f Firing) (recorded bool, err error)
	// RecordDue records due times of a schedule, and how far the schedule has come. It returns ErrConflict when the stored
	// schedule is not the expected one any more, or was removed, and then writes nothing. A due time that fired is not backfilled, also when
	// its firing was removed from the history.
	RecordDue(ctx context.Context, d DueRecord) error
	// EffectSchedule returns how far a schedule has come, or ErrNotFound.
	EffectSchedule(ctx context.Context, effectID string) (*EffectSchedule, error)
	// ReleaseQueued gives the oldest queued firing of an effect and thread a status, pending or running, unless another one
	// is under way.
	ReleaseQueued(ctx context.Context, effectID, threadID string, to FiringStatus) error
	// DueFirings returns how many firings can be claimed in namespaces, up to limit in each. It finds all of them while few firings are due. Of
	// many it finds the oldest, and looks at no more than a hundred of the namespaces that have any, those from a name on: it costs the same
	// beside a thousand namespaces as beside a hundred.
	DueFirings(ctx context.Context, from string, limit int) (*DueSearch, error)
	// PendingFirings returns how many firings are due and have not ended, by namespace.
	PendingFirings(ctx context.Context) (map[string]int64, error)
	// ClaimFirings claims unfinished firings without a holder, for ttl, and counts an attempt of each. shares says how many
	// at most of each namespace. The oldest come first. running are firings whose handlers still run in the caller. Their
	// claims are extended when they have expired, and these firings are not returned.
	ClaimFirings(ctx context.Context, owner string, ttl time.Duration, shares map[string]int, running ...FiringKey) ([]Firing, error)
	// RenewFirings extends claims by ttl, and returns those that are lost.
	RenewFirings(ctx context.Context, ttl time.Duration, claims []FiringClaim) (lost []FiringKey, err error)
	// ReleaseFirings gives up all claims of an owner, at its shutdown. Their attempts do not count. The handlers of the firings in
	// begun had begun: these firings keep the time at which they began, so that their deadline to begin does not apply again.
	ReleaseFirings(ctx context.Context, owner string, begun ...FiringKey) error
	// FinishFiring records the outcome of an attempt. It returns ErrFiringLost when the claim is lost.
	FinishFiring(ctx context.Context, end FiringEnd) error
	// WaitFiring records what a claimed firing waits for before its handler begins; "" when it does not wait any more. The claim stays. It
	// returns ErrFiringLost when the claim is lost.
	WaitFiring(ctx context.Context, claim FiringClaim, namespace, waiting string) error
	// WaitRunning records what a running firing waits for, because its Thread could not be created, or is not ready. It is "" for nothing.
	WaitRunning(ctx context.Context, key FiringKey, namespace, waiting string) error
	// StartRunning records that the Thread of a running firing exists, which is its only attempt.
	StartRunning(ctx context.Context, key FiringKey) error
	// EndRunning records how a running firing ended, and what its Thread has cost so far, beside end.Cost. It changes nothing when the firing
	// has ended.
	EndRunning(ctx context.Context, end FiringEnd) error
	// MissFiring ends a firing that could not begin in time: one that is claimed, as FinishFiring does, or a running one when end.Epoch is 0. The
	// firing is canceled, and its due time is recorded as skipped, with end.Error as the detail. Due times of a thread in a row that are missed
	// so have one record. It returns that, and whether it is new; ErrFiringLost when the claim is lost, or the running firing has ended.
	MissFiring(ctx context.Context, end FiringEnd) (record EffectSkip, begins bool, err error)
	// CancelFirings cancels firings that have not ended, and records what the Threads of running ones have cost so far. The replica that runs
	// one learns of it by RenewFirings or a notification. It returns how many it canceled.
	CancelFirings(ctx context.Context, reason string, keys ...FiringKey) (int, error)
	// RemoveEffect keeps an effect from firing again. It returns false, and changes nothing, when a firing of it was claimed or has ended.
	RemoveEffect(ctx context.Context, effectID string) (removed bool, err error)
	// StopEffect keeps a schedule from firing again, whether it has fired or not. Firings without a claim are canceled. Those that
	// run go on.
	StopEffect(ctx context.Context, effectID string) error
	// ForgetEffect removes what is stored of an effect whose object is gone. Firings that have not ended are canceled by that.
	ForgetEffect(ctx context.Context, effectID string) error
	// Firing returns the firing with this key, or ErrNotFound.
	Firing(ctx context.Context, key FiringKey) (*Firing, error)
	// Firings lists firings of an effect.
	Firings(ctx context.Context, q FiringQuery) ([]Firing, error)
	// FiringCost returns what the firings of an effect cost that are due from a time on, and before another. Those that are under way count with
	// what their Threads have cost so far.
	FiringCost(ctx context.Context, effectID string, from, before int64) (float64, error)
	// Outcome returns the firing that says how an effect of one time ended, or ErrNotFound: of its threads one for which it failed, else one
	// for which it succeeded, else one whose firing was canceled. Firings that a person asked for by hand do not count.
	Outcome(ctx context.Context, effectID string) (*Firing, error)
	// LastEnded returns the firing of an effect that ended last, as a brief list has it, or ErrNotFound.
	LastEnded(ctx context.Context, effectID string) (*Firing, error)
	// EffectSkips lists the newest records of due times that did not fire, the newest first.
	EffectSkips(ctx context.Context, effectID string, limit int) ([]EffectSkip, error)
	// AnsweredRequests returns the answers, by id, of those requests by hand that were answered, within the last two days at least. The
	// answer is empty when an earlier release gave it.
	AnsweredRequests(ctx context.Context, effectID string, ids ...string) (map[string]json.RawMessage, error)
	// FiredTimes returns the due times that fired and that the history no longer has.
	FiredTimes(ctx context.Context, effectID string) (FiredTimes, error)
	// PruneFirings removes ended firings and records of skipped due times beyond the newest ones. It keeps which due times fired, and the
	// newest record of skipped due times, because the next ones may belong to it.
	PruneFirings(ctx context.Context, effectID string, keep HistoryLimits) error
	// StoredEffects lists effects with a schedule that has not changed since a time, in the order of their ids.
	StoredEffects(ctx context.Context, after string, before time.Time, limit int) ([]string, error)
	// EndedEffects lists one-time effects whose firing ended before a time, in the order of their ids.
	EndedEffects(ctx context.Context, after string, before time.Time, limit int) ([]FiredEffect, error)
	// UnendedEffects lists effects with a firing that has not ended, in the order of their ids.
	UnendedEffects(ctx context.Context, after string, limit int) ([]FiredEffect, error)
	// PutEffectArgs stores arguments. A repeat changes nothing.
	PutEffectArgs(ctx context.Context, a EffectArgs) error
	// EffectArgs returns arguments that were stored for a thread, or ErrNotFound.
	EffectArgs(ctx context.Context, threadID, id string) (json.RawMessage, error)
	// StoredEffectArgs returns the ids of the arguments that are stored for a thread, in no order.
	StoredEffectArgs(ctx context.Context, threadID string) (ids []string, err error)
	// RemoveEffectArgs removes arguments that were stored for a thread.
	RemoveEffectArgs(ctx context.Context, threadID, id string) error
}

// FiredEffect names the object of an effect that has fired.
type FiredEffect struct{ EffectID, Namespace, Name string }

// EffectArgs are arguments of a ScheduledEffect that its object does not hold.
type EffectArgs struct {
	ID        string
	Namespace string
	ThreadID  string // they are removed with the thread
	Args      json.RawMessage
}

// DueSearch is what a search for firings that can be claimed has found.
type DueSearch struct {
	Due []DueFirings // the namespace whose firing is due for the longest time comes first
	// From is the namespace from which the next search looks. It is empty when this one has looked at the last namespace.
	From string
	// All reports whether the search has found every namespace that has a firing that can be claimed.
	All bool
	// Next is how long it takes until another firing can be claimed, 0 when there is no other.
	Next time.Duration
}

// DueFirings is how many firings of a namespace can be claimed.
type DueFirings struct {
	Namespace string
	Count     int
	Oldest    int64 // since when the first of them can be claimed
}

// FiringClaim is a claim of a firing.
type FiringClaim struct {
	Key   FiringKey
	Epoch int64
}
