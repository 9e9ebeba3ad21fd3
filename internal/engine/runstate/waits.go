package runstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/tool"
)

// IsDue reports whether the time of any wait of the run has come.
func (s State) IsDue(now int64) bool {
	at := s.WakeAt()
	return at != 0 && at <= now
}

// HasEntered reports whether a call is the call of a prompt that began to work and then waited.
func (s State) HasEntered(callID string) bool { return s.Waits[callID].Kind == tool.WaitPrompt }

// AddWait records that a call waits. within is the call of the prompt that makes it, or "". The log has that once the run is
// parked. After a crash before that the call is repeated.
func (s *State) AddWait(callID string, w tool.Wait, within string, now int64) {
	if w.Kind == tool.WaitDelay {
		w.Until = now + w.For.Microseconds()
	}
	if within != "" {
		w.Within = within
	}
	if s.Waits == nil {
		s.Waits = map[string]tool.Wait{}
	}
	s.Waits[callID] = w
}

// WaitsFor returns what a parked run of a thread waits for: a reason of api/v1alpha1/conditions.go and a text for people. Both are ""
// if it waits for a child.
func (s State) WaitsFor(thread string) (reason, message string) {
	var approvals []string
	var delay int64
	for _, id := range slices.Sorted(maps.Keys(s.Waits)) {
		switch w := s.Waits[id]; w.Kind {
		case tool.WaitApproval:
			approvals = append(approvals, fmt.Sprintf("%s (%s)", w.Name, id))
		case tool.WaitDelay:
			if delay == 0 || w.Until < delay {
				delay = w.Until
			}
		}
	}
	switch {
	case len(approvals) > 0:
		return skeinv1.ReasonWaitingForApproval, clip.Text(fmt.Sprintf("calls wait for approval: %s; decide with kubectl skein approve %s CALL, or refuse",
			strings.Join(approvals, ", "), thread), runlog.MaxMessage)
	case delay != 0:
		return skeinv1.ReasonWaitingForTime, "it continues at " + time.UnixMicro(delay).UTC().Format(time.RFC3339)
	}
	return "", ""
}
