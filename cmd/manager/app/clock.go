package app

import (
	"context"
	"fmt"
	"os"

	"github.com/skein-dev/skein/internal/ownclock"
)

// clockEnv names a file that says how far the manager's clock is ahead of the machine's. Tests move the clock of one replica by it.
const clockEnv = "SKEIN_TEST_CLOCK"

// watchClock moves the clock of this process by the offset in the file that clockEnv names. It returns an error in a pod, so that no
// installation runs with a moved clock by accident.
func (o *Options) watchClock(ctx context.Context) error {
	file := os.Getenv(clockEnv)
	if file == "" {
		return nil
	}
	if o.inCluster() || os.Getenv("POD_NAME") != "" {
		return fmt.Errorf("%s is for tests of a manager outside of a cluster, and moves its clock: remove this variable", clockEnv)
	}
	if err := ownclock.Track(ctx, file); err != nil {
		return fmt.Errorf("%s: %w", clockEnv, err)
	}
	o.Logger.Info("The clock of this process is moved for a test. Never run with this otherwise", "variable", clockEnv, "file", file)
	return nil
}
