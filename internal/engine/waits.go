package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// timeIsUp reports whether the time of any wait of the run has come.
func (r *run) timeIsUp() bool {
	at := r.Checkpoint.WakeAt()
	return at != 0 && at <= r.engine.now()
}

// times ends the waits whose time has come, in the order of their calls.
func (in *intake) times() {
	now := in.run.engine.now()
	due := func(w tool.Wait) bool { return w.Until != 0 && w.Until <= now }
	for _, call := range in.outstanding() {
		w := in.checkpoint.Waits[call.ID]
		if !due(w) {
			continue
		}
		switch w.Kind {
		case tool.WaitApproval:
			a := store.Approval{At: now, Expired: true}
			in.decide(call.ID, a)
			in.ops = append(in.ops, runlog.Event(in.run.record.ID, store.EventApprovalDecided, w.MessageID, store.ApprovalDecision{Approval: a, ToolCallID: call.ID, Name: call.Name}))
		case tool.WaitDelay:
			in.delayOver(call)
		}
	}
	for id, w := range in.checkpoint.Waits {
		if due(w) { // its call was deleted
			in.over(id)
		}
	}
}

// delayOver adds the result of a call that waited for a time.
func (in *intake) delayOver(call store.ToolCall) {
	in.freed = true
	text := "the time is over"
	in.result(call, store.Message{ID: runlog.NewMessageID(), CreatedAt: in.run.engine.now(), ToolStatus: string(tool.StatusSuccess), Content: &text})
}

// waitsFor returns what a parked run waits for: a reason of api/v1alpha1/conditions.go and a text for people. Both are ""
// if it waits for a child.
func (r *run) waitsFor(s checkpoint.State) (reason, message string) {
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
			strings.Join(approvals, ", "), r.Thread.Name), runlog.MaxMessage)
	case delay != 0:
		return skeinv1.ReasonWaitingForTime, "it continues at " + time.UnixMicro(delay).UTC().Format(time.RFC3339)
	}
	return "", ""
}
