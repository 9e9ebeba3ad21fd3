package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Approval is a tool call of a thread that has to be approved (SPEC RUN-11), and what was decided.
type Approval struct {
	RunID, ToolCallID string
	Name              string // of the tool
	Arguments         string // as the model wrote them
	RequestedAt       int64  // microseconds; 0 once the decision was taken over
	ExpiresAt         int64  // microseconds; 0 for never
	Decision          *store.Approval

	order int // of the call within its message
}

// DecidedError says that a call was decided on before, otherwise.
type DecidedError struct{ Decision store.Approval }

// Error implements error.
func (e *DecidedError) Error() string {
	switch {
	case e.Decision.Expired:
		return "nobody decided on the call in time: it was refused"
	case e.Decision.Approved && e.Decision.Arguments != nil:
		return e.Decision.By + " has approved the call already, with arguments of their own"
	case e.Decision.Approved:
		return e.Decision.By + " has approved the call already"
	}
	return e.Decision.By + " has refused the call already"
}

// decideTries bounds how often a decision is written anew because the thread has changed meanwhile.
const decideTries = 50

// Approvals lists the calls of a thread's run that wait for approval, or were decided on and are about to be made, in
// the order in which they were asked for.
func (e *Engine) Approvals(ctx context.Context, threadID string) ([]Approval, error) {
	r, kept, err := e.underWay(ctx, threadID)
	if r == nil || err != nil {
		return nil, err
	}
	items, err := e.store.Inbox(ctx, threadID)
	if err != nil {
		return nil, err
	}
	var out []Approval
	for id, w := range kept.Waits {
		if w.Kind != tool.WaitApproval {
			continue
		}
		a := Approval{RunID: r.ID, ToolCallID: id, RequestedAt: w.Since, ExpiresAt: w.Until, Decision: decidedIn(items, id)}
		if err := e.describe(ctx, threadID, w.MessageID, &a); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Approval) int {
		return cmp.Or(cmp.Compare(a.RequestedAt, b.RequestedAt), cmp.Compare(a.order, b.order))
	})
	return out, nil
}

// Decide approves or refuses a call that waits for it, durably, and gives the call as it was decided on. The same
// decision again gives the first one; another is a *DecidedError. A call that does not wait is an *UnknownError.
func (e *Engine) Decide(ctx context.Context, threadID, callID string, d store.Approval) (*Approval, error) {
	for try := 1; ; try++ {
		t, err := e.store.Thread(ctx, threadID)
		if err != nil {
			return nil, err
		}
		a, err := e.decideOn(ctx, t, callID, d)
		if !errors.Is(err, store.ErrConflict) || try == decideTries {
			return a, err
		}
	}
}

func (e *Engine) decideOn(ctx context.Context, t *store.Thread, callID string, d store.Approval) (*Approval, error) {
	key := "approval:" + callID
	r, kept, err := e.underWay(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	w, waits := kept.Waits[callID]
	if r == nil || !waits || w.Kind != tool.WaitApproval {
		return e.decidedBefore(ctx, t.ID, key, callID, d)
	}
	a := &Approval{RunID: r.ID, ToolCallID: callID, RequestedAt: w.Since, ExpiresAt: w.Until}
	if err := e.describe(ctx, t.ID, w.MessageID, a); err != nil {
		return nil, err
	}
	if w.Until != 0 && w.Until <= e.now() { // the run is about to find out
		return nil, &DecidedError{Decision: store.Approval{Expired: true, At: w.Until}}
	}
	if bad := checkArguments(w, a, d); bad != nil {
		decided, err := e.decidedBefore(ctx, t.ID, key, callID, d)
		var unknown *UnknownError
		if errors.As(err, &unknown) {
			return nil, bad
		}
		return decided, err
	}
	d.At = e.now()
	said, err := json.Marshal(store.ApprovalDecision{Approval: d, ToolCallID: callID, Name: a.Name})
	if err != nil {
		return nil, err
	}
	once := &store.Once{Key: key, Fingerprint: fingerprintOf(d), Result: func() (json.RawMessage, error) { return said, nil }}
	e.fault("decide.before")
	// Against the version: the run must not have ended, or given up waiting, in between.
	err = e.store.Apply(ctx, t.ID, nil, once, &store.ExpectVersion{Version: t.Version},
		&store.AppendEvent{Event: store.Event{Type: store.EventApprovalDecided, RunID: r.ID, MessageID: w.MessageID, Data: said}},
		&store.Enqueue{Item: store.InboxItem{Key: key, Kind: store.InboxApproval, Payload: said}})
	if errors.Is(err, store.ErrKeyReused) || err == nil && once.Existed {
		return e.decidedBefore(ctx, t.ID, key, callID, d)
	}
	if err != nil {
		return nil, err
	}
	e.fault("decide.after")
	a.Decision = &d
	return a, nil
}

// checkArguments returns a *thread.InvalidError when the arguments that a call is approved with are none that its tool
// takes. The approval then stays pending.
func checkArguments(w tool.Wait, a *Approval, d store.Approval) error {
	if d.Arguments == nil || len(w.Parameters) == 0 {
		return nil
	}
	schema, err := tool.CompileSchema(w.Parameters)
	if err != nil {
		return nil // the definition's mistake: the call will tell
	}
	if err := schema.Validate(string(d.Arguments)); err != nil {
		return &thread.InvalidError{Field: "arguments", Message: fmt.Sprintf("the tool %s does not take them: %v; the call still waits: approve it with others, or refuse it", a.Name, err)}
	}
	return nil
}

// decidedBefore gives the decision that was made on a call, if it is the same as d.
func (e *Engine) decidedBefore(ctx context.Context, threadID, key, callID string, d store.Approval) (*Approval, error) {
	fingerprint, said, err := e.store.Recorded(ctx, threadID, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &UnknownError{Message: fmt.Sprintf("no call %q of the thread waits for approval: list those that do with kubectl skein approvals, or GET approvals", callID)}
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
	return &Approval{ToolCallID: callID, Name: was.Name, Decision: &was.Approval}, nil
}

// fingerprintOf tells decisions apart: who made it, and why, does not matter.
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

// underWay gives the run of a thread that is under way or parked, and what it keeps; nil when there is none.
func (e *Engine) underWay(ctx context.Context, threadID string) (*store.Run, runState, error) {
	r, err := e.store.Run(ctx, threadID, "")
	if errors.Is(err, store.ErrNotFound) || err == nil && r.Status.Ended() {
		return nil, runState{}, nil
	}
	if err != nil {
		return nil, runState{}, err
	}
	kept, err := readRunState(r)
	return r, kept, err
}

// describe adds what the message that makes a call says of it.
func (e *Engine) describe(ctx context.Context, threadID, messageID string, a *Approval) error {
	m, err := e.store.Message(ctx, threadID, messageID)
	if err != nil {
		return ignoreNotFound(err) // it was deleted
	}
	for i, call := range m.ToolCalls {
		if call.ID == a.ToolCallID {
			a.Name, a.Arguments, a.order = call.Name, call.Arguments, i
		}
	}
	return nil
}

// decidedIn finds the decision on a call that the run has not taken over yet; nil when there is none.
func decidedIn(items []store.InboxItem, callID string) *store.Approval {
	for _, item := range items {
		var d store.ApprovalDecision
		if item.Kind == store.InboxApproval && json.Unmarshal(item.Payload, &d) == nil && d.ToolCallID == callID {
			return &d.Approval
		}
	}
	return nil
}
