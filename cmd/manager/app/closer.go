package app

import "context"

// closer closes, when the manager stops, what outlives single runs.
type closer struct{ closes []func() }

// Start implements manager.Runnable.
func (c *closer) Start(ctx context.Context) error {
	<-ctx.Done()
	for _, closed := range c.closes {
		closed()
	}
	return nil
}

// NeedLeaderElection returns false: every replica has its own.
func (*closer) NeedLeaderElection() bool { return false }
