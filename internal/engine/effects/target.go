package effects

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// Target says what a firing does, and with which policies, as the ScheduledEffect said when the firing was recorded. So an edit of the
// object does not change what is under way. At most one of Tool, Queue and Message is set; without them the firing runs
// the Effect that it names. Thread templates are not a target: a controller creates their Threads.
type Target struct {
	Tool    *ToolCall `json:"tool,omitempty"`    // call a Tool without a thread
	Queue   *ToolCall `json:"queue,omitempty"`   // queue a tool on the thread
	Message *Message  `json:"message,omitempty"` // queue a message on the thread
	Pool    string    `json:"pool,omitempty"`    // in which an effect without a thread runs
	// Env are the variables of an effect without a thread. References are resolved at each attempt.
	Env []skeinv1.EnvVar `json:"env,omitempty"`
	// Timeout is of an attempt. It counts from the moment at which the handler begins; that of the definition when 0.
	Timeout time.Duration `json:"timeout,omitempty"`
	Retry   *Retry        `json:"retry,omitempty"` // of a handler or a service that failed; the defaults when nil
	// Deadline is how long after its due time a firing may still begin. 0 means without limit.
	Deadline time.Duration `json:"deadline,omitempty"`
	// Jitter is the delay that the schedule added to the due time: its jitter, and the time until the turn of the thread among many.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Counts makes its end count for the schedule's failures in a row.
	Counts bool `json:"counts,omitempty"`
	// Needs is the version of targets that a replica must know to carry the firing out; 0 is the first. A release that records a kind of
	// target, or a policy, which earlier ones would get wrong raises it for those firings.
	Needs int `json:"needs,omitempty"`
}

// targetVersion is the version of targets that this release knows.
const targetVersion = 0

// needsSandbox reports whether a firing may wait for a sandbox: to run its code, or to ask the code of the tool that it queues for its
// parameters. That wait has limits of its own. It must not use up the timeout of a handler that has not begun, so the Runner limits the handler.
func (t Target) needsSandbox() bool { return t.Message == nil && t.Tool == nil }

// TimeoutText says that an attempt took longer than its timeout.
func (t Target) TimeoutText() string {
	return fmt.Sprintf("it did not end within %s, which spec.timeout allows", t.Timeout)
}

// ToolCall names a tool.
type ToolCall struct {
	Name   string `json:"name"`
	Method string `json:"method,omitempty"` // the tool of an MCP server
}

// Message is a message for a thread.
type Message struct {
	Content string `json:"content"`
	Silent  bool   `json:"silent,omitempty"`
}

// Encode returns the form in which a firing keeps its target; nil for the zero Target.
func (t Target) Encode() json.RawMessage {
	if reflect.ValueOf(t).IsZero() {
		return nil
	}
	data, err := json.Marshal(t)
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return data
}

// TargetOf returns the target of a firing. It returns a *WaitError for one that only a newer release can carry out: the firing stays for
// that.
func TargetOf(f *store.Firing) (t Target, err error) {
	if len(f.Target) == 0 {
		return t, nil
	}
	if err := json.Unmarshal(f.Target, &t); err != nil {
		return t, &WaitError{fmt.Errorf("the firing's target cannot be read by this release (%w): it waits for a replica of a newer one", err)}
	}
	if t.Needs > targetVersion {
		return t, &WaitError{fmt.Errorf("a newer release has recorded it, with a target of version %d, and this release knows %d: it waits for a replica of that release", t.Needs, targetVersion)}
	}
	return t, nil
}
