package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Step is a step of a past run: one answer, and what it was an answer to (RUN-12).
type Step struct {
	Run *store.Run
	// Last is the last message before the answer, at which a fork takes the run up again.
	Last Point
	// Input is the message whose content an edit replaces: the newest that the step read. It is "" when the run began
	// with none.
	Input string
	// Answers is the newest message that a handler answers.
	Answers string
	// Side is whose step it was.
	Side string
}

// RunStep finds a step of a run that has ended, from 1. The steps of a run are its answers: what the models of its sides
// wrote, and the note in place of an answer that it ended with. It returns store.ErrNotFound when the thread has no such
// run, and store.ErrRunning while it is under way.
func (s *Service) RunStep(ctx context.Context, threadID, runID string, step int) (*Step, error) {
	run, err := s.store.Run(ctx, threadID, runID)
	if err != nil {
		return nil, err
	}
	if !run.Status.Ended() {
		return nil, store.ErrRunning
	}
	messages, err := s.store.RunMessages(ctx, threadID, runID)
	if err != nil {
		return nil, err
	}
	found, n := &Step{Run: run}, 0
	for i := range messages {
		m := &messages[i]
		answer := isAnswer(m)
		if n += count(answer); answer && n == step {
			found.Side = m.Side
			index, err := s.store.MessageIndex(ctx, threadID, m.ID)
			if err == nil && index == 0 {
				return nil, invalid("step", "nothing came before step %d that a fork could begin with", step)
			}
			if err == nil {
				found.Last.Index = index - 1
				found.Last.Seq, err = s.seqAt(ctx, threadID, index-1)
			}
			if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrForkPoint) { // it was deleted since
				err = fmt.Errorf("%w: step %d of the run was deleted meanwhile", store.ErrConflict, step)
			}
			return found, err
		}
		switch {
		case m.Depth > 0 || m.Silent || len(m.ToolCalls) > 0:
		case m.Role == store.RoleTool:
			found.Input = m.ID
		default:
			found.Input, found.Answers = m.ID, m.ID
		}
	}
	if n == 0 {
		return nil, invalid("step", "run %s has no steps left in the conversation: they were deleted, or it made none", runID)
	}
	return nil, invalid("step", "run %s has %d steps in the conversation: give one from 1 to %d, not %d", runID, n, n, step)
}

// isAnswer reports whether a message of a run is the answer of one of its steps.
func isAnswer(m *store.Message) bool {
	return m.Role == store.RoleAssistant && m.Depth == 0 && m.Metadata["queued_tool"] == nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rerunKey is the inbox key of the item that takes a run up again, so that it is taken up once.
const rerunKey = "skein:rerun"

// Rerun takes a step up again in a fork that ends before the step's answer. input replaces the content of what the step
// read; nil leaves it. It returns an *InvalidError when there is nothing to replace.
func (st *State) Rerun(ctx context.Context, step *Step, input *string) error {
	if input != nil {
		if step.Input == "" {
			return invalid("input", "the run began with no message, so there is no input to replace: leave it out")
		}
		if _, err := st.UpdateMessage(ctx, step.Input, MessageUpdate{Content: input}); err != nil {
			return err
		}
	}
	payload, err := json.Marshal(store.Rerun{Input: step.Answers, Side: step.Side})
	if err != nil {
		return fmt.Errorf("encode the rerun: %w", err)
	}
	return st.Apply(ctx, &store.Enqueue{Item: store.InboxItem{Key: rerunKey, Kind: store.InboxRerun, Payload: payload}})
}
