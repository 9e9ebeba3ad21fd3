package definition

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Agents resolves agents.
type Agents interface {
	Agent(ctx context.Context, namespace, name string) (*Agent, error)
}

// ForRun resolves the agent with which a run continues: the one whose step is under way, or the thread's agent if that
// one is no longer ready.
func ForRun(ctx context.Context, definitions Agents, t *store.Thread, under *store.Run) (*Agent, error) {
	if under != nil && under.Agent != "" && under.Agent != t.Agent {
		agent, err := definitions.Agent(ctx, t.Namespace, under.Agent)
		var notReady *NotReadyError
		if err == nil || !errors.As(err, &notReady) {
			return agent, err
		}
	}
	agent, err := definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, fmt.Errorf("agent %s of thread %s: %w", t.Agent, t.ID, err)
	}
	return agent, nil
}
