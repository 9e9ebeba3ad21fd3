// Package approval lists the tool calls that wait for a person's approval, and records what was decided on them. It writes to the store
// alone: the decision wakes the run, wherever that is, which makes the call or tells the model that it was refused.
package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// A Call is a tool call of a thread that has to be approved (RUN-11), with the decision on it.
type Call struct {
	RunID, ToolCallID string
	Name              string // of the tool
	Arguments         string // as the model wrote them
	RequestedAt       int64  // microseconds; 0 once the run has taken in the decision
	ExpiresAt         int64  // microseconds; 0 for never
	Decision          *store.Approval
}

// DecidedError reports that another decision on the call was made before.
type DecidedError struct{ Decision store.Approval }

// Error implements error.
func (e *DecidedError) Error() string {
	switch {
	case e.Decision.Expired:
		return "no decision came in time: the call was refused"
	case e.Decision.Approved && e.Decision.Arguments != nil:
		return e.Decision.By + " has approved the call already, with arguments of their own"
	case e.Decision.Approved:
		return e.Decision.By + " has approved the call already"
	}
	return e.Decision.By + " has refused the call already"
}

// Service lists and decides calls that wait for approval, of runs on any replica. It is safe for concurrent use.
type Service struct {
	store store.Store
	now   func() int64       // microseconds since 1970
	fault func(point string) // is called around durable writes
}

// New returns approvals over a store.
func New(s store.Store, now func() int64, fault func(point string)) *Service {
	return &Service{store: s, now: now, fault: fault}
}

// decideTries bounds how often a decision is written again because the thread changed at the same time.
const decideTries = 50

// Decide approves or refuses a call that waits for approval, durably, and returns the call as it was decided. Repeating a decision
// returns the first one. Errors are a *DecidedError for another decision, a *definition.UnknownError for a call that does not wait,
// and a *thread.InvalidError for arguments that the tool does not accept.
func (s *Service) Decide(ctx context.Context, threadID, callID string, d store.Approval) (*Call, error) {
	for try := 1; ; try++ {
		t, err := s.store.Thread(ctx, threadID)
		if err != nil {
			return nil, err
		}
		a, err := s.decideOn(ctx, t, callID, d)
		if !errors.Is(err, store.ErrConflict) || try == decideTries {
			return a, err
		}
	}
}

func (s *Service) decideOn(ctx context.Context, t *store.Thread, callID string, d store.Approval) (*Call, error) {
	key := keyOf(callID)
	r, state, err := s.runUnderWay(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	w, waits := state.Waits[callID]
	if r == nil || !waits || w.Kind != tool.WaitApproval {
		return s.decidedBefore(ctx, t.ID, key, callID, d)
	}
	a := &Call{RunID: r.ID, ToolCallID: callID, RequestedAt: w.Since, ExpiresAt: w.Until}
	if err := s.callMessages(t.ID).describe(ctx, w.MessageID, a); err != nil {
		return nil, err
	}
	if w.Until != 0 && w.Until <= s.now() { // the run is about to find out
		return nil, &DecidedError{Decision: store.Approval{Expired: true, At: w.Until}}
	}
	if bad := checkArguments(w, a, d); bad != nil {
		decided, err := s.decidedBefore(ctx, t.ID, key, callID, d)
		var unknown *definition.UnknownError
		if errors.As(err, &unknown) {
			return nil, bad
		}
		return decided, err
	}
	d.At = s.now()
	said, err := json.Marshal(store.ApprovalDecision{Approval: d, ToolCallID: callID, Name: a.Name})
	if err != nil {
		return nil, err
	}
	once := &store.Once{Key: key, Fingerprint: fingerprintOf(d), Result: func() (json.RawMessage, error) { return said, nil }}
	s.fault("decide.before")
	// Against the version: the run must not have ended, or given up waiting, in between.
	err = s.store.Apply(ctx, t.ID, nil, once, &store.ExpectVersion{Version: t.Version},
		&store.AppendEvent{Event: store.Event{Type: store.EventApprovalDecided, RunID: r.ID, MessageID: w.MessageID, Data: said}},
		&store.Enqueue{Item: store.InboxItem{Key: key, Kind: store.InboxApproval, Payload: said}})
	if errors.Is(err, store.ErrKeyReused) || err == nil && once.Existed {
		return s.decidedBefore(ctx, t.ID, key, callID, d)
	}
	if err != nil {
		return nil, err
	}
	s.fault("decide.after")
	a.Decision = &d
	return a, nil
}

// checkArguments returns a *thread.InvalidError if a call is approved with arguments that its tool does not accept. The call
// then still waits.
func checkArguments(w tool.Wait, a *Call, d store.Approval) error {
	if d.Arguments == nil || len(w.Parameters) == 0 {
		return nil
	}
	schema, err := tool.CompileSchema(w.Parameters)
	if err != nil {
		return nil // a mistake in the definition: the call itself will report it
	}
	if err := schema.Validate(string(d.Arguments)); err != nil {
		return &thread.InvalidError{Field: "arguments", Message: fmt.Sprintf("the tool %s does not accept these arguments: %v; the call still waits: approve it with others, or refuse it", a.Name, err)}
	}
	return nil
}

// decidedBefore returns the decision that was made on a call, if it is the same as d.
func (s *Service) decidedBefore(ctx context.Context, threadID, key, callID string, d store.Approval) (*Call, error) {
	fingerprint, said, err := s.store.Recorded(ctx, threadID, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &definition.UnknownError{Message: fmt.Sprintf("no call %q of the thread waits for approval: list those that do with kubectl skein approvals, or GET approvals", callID)}
	}
	if err != nil {
		return nil, err
	}
	var was store.ApprovalDecision
	if err := json.Unmarshal(said, &was); err != nil {
		return nil, fmt.Errorf("the decision on call %s of thread %s cannot be read: %w", callID, threadID, err)
	}
	if fingerprint != fingerprintOf(d) {
		return nil, &DecidedError{Decision: was.Approval}
	}
	return &Call{ToolCallID: callID, Name: was.Name, Decision: &was.Approval}, nil
}

// fingerprintOf returns what two equal decisions have in common. Who decided, and why, does not count.
func fingerprintOf(d store.Approval) string {
	if !d.Approved {
		return "refused"
	}
	if d.Arguments == nil {
		return "approved"
	}
	var v any
	_ = json.Unmarshal(d.Arguments, &v) // an object, as the caller has checked; its form does not matter
	plain, _ := json.Marshal(v)
	sum := sha256.Sum256(plain)
	return "approved:" + hex.EncodeToString(sum[:])
}

// runUnderWay returns the run of a thread that is under way or parked, with its state. The run is nil if there is none.
func (s *Service) runUnderWay(ctx context.Context, threadID string) (*store.Run, runstate.State, error) {
	r, err := s.store.Run(ctx, threadID, "")
	if errors.Is(err, store.ErrNotFound) || err == nil && r.Status.Ended() {
		return nil, runstate.State{}, nil
	}
	if err != nil {
		return nil, runstate.State{}, err
	}
	state, err := runstate.Read(r)
	return r, state, err
}

// keyOf returns the key of the decision on a call, in the inbox and for good.
func keyOf(callID string) string { return "approval:" + callID }
