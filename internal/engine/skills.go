package engine

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// CheckSkill checks an activation from outside: if the thread's agent has a skill of that name, the arguments have to fit
// its schema. If the agent has no such skill or is not ready, the activation is the caller's own record and is accepted.
// wrong says what is wrong with the arguments, or is "".
func (e *Engine) CheckSkill(ctx context.Context, t *store.Thread, a store.SkillActivation) (wrong string, err error) {
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if s := agent.Skill(a.Name); s != nil {
		if err := s.Check(a.Arguments); err != nil {
			return err.Error(), nil
		}
	}
	return "", nil
}
