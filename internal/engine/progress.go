package engine

import (
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Progress returns how far a stored run is, for callers outside of the run (RUN-03).
func Progress(r *store.Run) tool.ExecutionState {
	s := tool.ExecutionState{FlowID: r.ID, CurrentSide: definition.SideA, StepCount: r.Steps}
	if kept, err := runstate.Read(r); err == nil && !r.Status.Ended() {
		s.SideBStepCount = kept.Turn.StepsB
		if kept.Turn.Side != "" {
			s.CurrentSide = kept.Turn.Side
		}
	}
	s.SideAStepCount = s.StepCount - s.SideBStepCount
	return s
}
