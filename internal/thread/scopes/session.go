package scopes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Options are the options of a Session. ID, ThreadID and Backend are required.
type Options struct {
	// ID is the run's id, sess_…, or the id of whatever else runs code outside of a run.
	ID string
	// ThreadID and Backend are the thread's.
	ThreadID string
	Backend  Backend
	// Destroy clears the thread (THR-06); nil where that cannot be done.
	Destroy func(ctx context.Context) error
	// Memory has what is drawn for the values of session and thread state. Without it there is no limit.
	Memory *membudget.Account
	// Encode writes values as JSON; encoding/json's when nil.
	Encode Encoder
	Log    logr.Logger
}

// Session is one run as handlers see it: its state, its thread, and the work that continues after the response. mu
// guards the fields below it.
type Session struct {
	ID     string
	State  *Values
	Thread *Thread
	encode Encoder
	log    logr.Logger

	mu        sync.Mutex
	working   int
	idle      chan struct{}   // closed while no work is in progress
	skipped   []store.Op      // ops that report values that were left out
	reported  map[string]bool // keys of session state whose values were already reported as left out
	completed []func(ctx context.Context, s *Session)
}

// Thread is the thread of a session as handlers see it. mu guards destroyed.
type Thread struct {
	ID    string
	State *ThreadState

	destroy func(ctx context.Context) error

	mu        sync.Mutex
	destroyed []func(ctx context.Context, t *Thread)
}

// New returns a session.
func New(o Options) *Session {
	if o.Encode == nil {
		o.Encode = json.Marshal
	}
	s := &Session{ID: o.ID, State: NewValues(), encode: o.Encode, log: o.Log, idle: make(chan struct{})}
	s.State.memory = o.Memory
	close(s.idle)
	s.Thread = &Thread{ID: o.ThreadID, State: &ThreadState{backend: o.Backend, encode: o.Encode, memory: o.Memory}, destroy: o.Destroy}
	return s
}

// Close returns the memory of the values of session and thread state. The session is not used any more.
func (s *Session) Close() {
	if s != nil {
		s.State.memory.Close()
	}
}

// Restore reads back the state of a run that continues, in the order in which it was written.
// The memory of the values is drawn before.
func (s *Session) Restore(ctx context.Context, data json.RawMessage) error {
	if len(data) == 0 {
		return nil
	}
	if err := s.State.memory.Draw(ctx, membudget.JSONCost(data)); err != nil {
		return err
	}
	s.State.mu.Lock()
	defer s.State.mu.Unlock()
	keys, values, err := readObject(data)
	if err != nil {
		return fmt.Errorf("the session's state is damaged: %w", err)
	}
	for i, k := range keys {
		s.State.table.set(k, values[i], nil)
	}
	return nil
}

// Request returns the state for one handler call, which ends with the call (STA-01).
func (s *Session) Request() *Values { return NewValues() }

// WaitUntil runs work in a goroutine that continues after the response. Its changes of session and thread state are
// saved when it is done (STA-06). Its error is logged.
func (s *Session) WaitUntil(ctx context.Context, work func(ctx context.Context) error) {
	done := s.Begin()
	go func() {
		defer done()
		defer func() {
			if p := recover(); p != nil {
				s.log.Error(fmt.Errorf("panic: %v", p), "work after the response failed", "run", s.ID, "stack", string(debug.Stack()))
			}
		}()
		if err := work(ctx); err != nil {
			s.log.Error(err, "work after the response failed", "run", s.ID)
		}
	}()
}

// Begin registers work that the session's end waits for, until done is called.
func (s *Session) Begin() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working == 0 {
		s.idle = make(chan struct{})
	}
	s.working++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.working--; s.working == 0 {
			close(s.idle)
		}
	})
}

// maxSkipped is the largest number of left-out values that one save reports.
const maxSkipped = 100

// Skip records that a value was left out of a scope's state, and why. The next save reports it.
func (s *Session) Skip(scope store.StateScope, key, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.skipped) < maxSkipped {
		s.skipped = append(s.skipped, notSerializable(s.ID, scope, key, errors.New(strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "\uFFFD"))))
	}
}

// maxReason limits the reason that code gives for such a value, in bytes.
const maxReason = 500

// Working reports whether work that WaitUntil or Begin started is in progress.
func (s *Session) Working() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.working > 0
}

// Wait returns nil when no work is in progress, or the cause when ctx ends before.
func (s *Session) Wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		working, idle := s.working, s.idle
		s.mu.Unlock()
		if working == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// OnCompleted adds a listener for the end of the session, when everything is saved.
func (s *Session) OnCompleted(fn func(ctx context.Context, s *Session)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.completed = append(s.completed, fn)
}

// Complete calls the listeners for the end of the session.
func (s *Session) Complete(ctx context.Context) {
	s.mu.Lock()
	listeners := s.completed
	s.completed = nil
	s.mu.Unlock()
	for _, fn := range listeners {
		fn(ctx, s)
	}
}

// OnDestroyed adds a listener for the thread's destruction through this session.
func (t *Thread) OnDestroyed(fn func(ctx context.Context, t *Thread)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.destroyed = append(t.destroyed, fn)
}

// Destroy clears the thread's conversation and state, and calls the listeners (THR-06).
func (t *Thread) Destroy(ctx context.Context) error {
	if t.destroy == nil {
		return fmt.Errorf("the thread cannot be destroyed from here")
	}
	if err := t.destroy(ctx); err != nil {
		return err
	}
	t.State.forget()
	t.mu.Lock()
	listeners := t.destroyed
	t.destroyed = nil
	t.mu.Unlock()
	for _, fn := range listeners {
		fn(ctx, t)
	}
	return nil
}

// Save is what must be stored of a session.
type Save struct {
	// State is the session's state for store.Run.SessionState; nil leaves the stored state as it is.
	State json.RawMessage
	// Ops store the thread's state, and report what could not be saved.
	Ops []store.Op

	session  *Session
	merge    *store.MergeState
	writes   int // number of writes to the session's state that State includes
	skipped  int // number of left-out values that Ops reports
	reported []string
}

// Save returns what must be stored of the session's and the thread's state. final is for the end of the run; earlier
// saves hold back changes that make the state too large. Call Done once it is stored.
func (s *Session) Save(final bool) *Save {
	save := &Save{session: s}
	save.merge, save.Ops = s.Thread.State.save(s.ID, !final)
	s.mu.Lock()
	save.Ops, save.skipped = append(save.Ops, s.skipped...), len(s.skipped)
	s.mu.Unlock()
	s.State.mu.Lock()
	save.writes = s.State.writes
	dirty := s.State.writes != s.State.saved
	entries := s.State.table.entries()
	s.State.mu.Unlock()
	if !dirty {
		return save
	}
	data, size, skipped := s.encodeState(entries)
	s.mu.Lock()
	skipped = slices.DeleteFunc(skipped, func(op *store.SkipState) bool { return s.reported[op.Skipped.Key] })
	s.mu.Unlock()
	if size > thread.MaxStateBytes {
		if final {
			save.Ops = append(save.Ops, &store.SkipState{RunID: s.ID, Skipped: store.StateSkipped{
				Scope: store.ScopeSession, Reason: store.ReasonStateTooLarge, Bytes: size, Limit: thread.MaxStateBytes,
				Message: fmt.Sprintf("session state has %d bytes of JSON, more than the limit of %d, so it was not saved: keep large data in files or the key-value store", size, thread.MaxStateBytes),
			}})
		}
		return save
	}
	for _, op := range skipped {
		save.Ops = append(save.Ops, op)
		save.reported = append(save.reported, op.Skipped.Key)
	}
	save.State = data
	return save
}

// Empty reports whether there is nothing to store.
func (s *Save) Empty() bool { return s.State == nil && len(s.Ops) == 0 }

// Done records that the save is stored.
func (s *Save) Done() {
	s.session.mu.Lock()
	s.session.skipped = slices.Clone(s.session.skipped[s.skipped:])
	for _, key := range s.reported {
		if s.session.reported == nil {
			s.session.reported = map[string]bool{}
		}
		s.session.reported[key] = true
	}
	s.session.mu.Unlock()
	if s.merge != nil {
		s.session.Thread.State.dropSaved(s.merge)
	}
	if s.State != nil {
		s.session.State.mu.Lock()
		s.session.State.saved = s.writes
		s.session.State.mu.Unlock()
	}
}

// encodeState writes the session's state as one object, and returns its size. It leaves out values that cannot be encoded. The object
// is not whole when it is too large to be saved.
func (s *Session) encodeState(entries []Entry) (object []byte, size int64, skipped []*store.SkipState) {
	object, size = []byte{'{'}, 1
	add := func(b []byte) {
		if size += int64(len(b)); size <= thread.MaxStateBytes {
			object = append(object, b...)
		}
	}
	for _, e := range entries {
		data, err := s.encode(e.Value)
		if err == nil && !json.Valid(data) {
			err = fmt.Errorf("it is not JSON")
		}
		if err != nil {
			skipped = append(skipped, notSerializable(s.ID, store.ScopeSession, e.Key, err))
			continue
		}
		key, _ := json.Marshal(e.Key) // marshalling a string cannot fail
		if size > 1 {
			add([]byte{','})
		}
		add(key)
		add([]byte{':'})
		add(data)
	}
	add([]byte{'}'})
	return object, size, skipped
}
