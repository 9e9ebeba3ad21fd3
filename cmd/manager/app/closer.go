package app

import "context"

// closer lets go of what outlives single runs when the manager stops.
type closer struct{ closes []func() }

// Start implements manager.Runnable.
func (c *closer) Start(ctx context.Context) error {
	<-ctx.Done()
	for _, closed := range c.closes {
		closed()
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has its own.
func (*closer) NeedLeaderElection() bool { return false }
