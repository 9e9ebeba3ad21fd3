package tool

import "github.com/skein-dev/skein/internal/store"

// Execution is the run that code is part of, as state.execution shows it (RUN-03).
type Execution interface {
	// Now returns the present state of the run.
	Now() ExecutionState
	// Stop ends the run once the calls of the present step have their results.
	Stop()
	// ForceTurn makes a side, "a" or "b", take the next turn. It returns an error for any other side.
	ForceTurn(side string) error
}

// ExecutionState is a run at one moment.
type ExecutionState struct {
	FlowID      string `json:"flowId"` // the run's id
	CurrentSide string `json:"currentSide"`
	// StepCount is how many model calls the run has made. The other counts are those of one side.
	StepCount      int      `json:"stepCount"`
	SideAStepCount int      `json:"sideAStepCount"`
	SideBStepCount int      `json:"sideBStepCount"`
	Stopped        bool     `json:"stopped"`
	StoppedBy      string   `json:"stoppedBy,omitempty"` // the side whose code stopped it
	PromptPath     []string `json:"promptPath"`          // the prompts that led here, outermost first
	// MessageHistory is the conversation of the run; nil unless code reads it.
	MessageHistory []store.Message `json:"messageHistory,omitempty"`
}
