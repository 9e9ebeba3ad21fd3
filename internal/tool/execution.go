package tool

import "github.com/skein-dev/skein/internal/store"

// Execution is the run that code is part of, as state.execution shows it (RUN-03).
type Execution interface {
	// Now gives the run as it is.
	Now() ExecutionState
	// Stop ends the run once the calls of the present step have their results.
	Stop()
	// ForceTurn gives the next turn to a side, "a" or "b"; any other is an error.
	ForceTurn(side string) error
}

// ExecutionState is a run at one moment.
type ExecutionState struct {
	FlowID      string `json:"flowId"` // the run's id
	CurrentSide string `json:"currentSide"`
	// StepCount is how many model calls the run has made; the others are those of one side.
	StepCount      int      `json:"stepCount"`
	SideAStepCount int      `json:"sideAStepCount"`
	SideBStepCount int      `json:"sideBStepCount"`
	Stopped        bool     `json:"stopped"`
	StoppedBy      string   `json:"stoppedBy,omitempty"` // the side whose code stopped it
	PromptPath     []string `json:"promptPath"`          // the prompts that led here, outermost first
	// MessageHistory is the conversation as the run has it; nil unless code reads it.
	MessageHistory []store.Message `json:"messageHistory,omitempty"`
}
