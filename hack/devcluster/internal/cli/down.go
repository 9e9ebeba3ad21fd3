package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
)

func down(ctx context.Context, args []string) (int, error) {
	var p place
	fl := flag.NewFlagSet("down", flag.ContinueOnError)
	p.register(fl)
	if err := parse(fl, args); err != nil {
		return 1, err
	}
	d, err := p.resolve()
	if err != nil {
		return 1, err
	}
	if err := takeDown(ctx, d); err != nil {
		return 1, err
	}
	return 0, nil
}

// takeDown stops the cluster in d, whatever its state, and removes everything of it.
func takeDown(ctx context.Context, d layout.Dir) error {
	if err := os.RemoveAll(failedLogs(d)); err != nil {
		return err
	}
	if _, err := os.Stat(string(d)); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("devcluster: nothing is up in", d)
		return nil
	}
	if err := foreign(d); err != nil {
		return err
	}
	lock, err := flock.Wait(ctx, d.Lock(), sayWaiting)
	if errors.Is(err, fs.ErrNotExist) { // another down removed it
		fmt.Println("devcluster: nothing is up in", d)
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	began := time.Now()
	if err := stopAndClean(ctx, d); err != nil {
		return err
	}
	fmt.Printf("devcluster: down after %.1f s\n", time.Since(began).Seconds())
	return nil
}

// stopAndClean ends the supervisor and removes the run directory. The caller holds the lock.
func stopAndClean(ctx context.Context, d layout.Dir) error {
	if err := stopSupervisor(ctx, d); err != nil {
		return err
	}
	if err := clean(d); err != nil {
		return err
	}
	return os.RemoveAll(string(d))
}

// stopSupervisor asks the supervisor to stop everything in order, and kills it after a while.
func stopSupervisor(ctx context.Context, d layout.Dir) error {
	pid := flock.Holder(d.SupervisorLock())
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping the supervisor, pid %d: %w", pid, err)
	}
	patience, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	l, err := flock.Wait(patience, d.SupervisorLock(), nil)
	if err == nil {
		l.Unlock()
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(os.Stderr, "devcluster: the supervisor, pid %d, does not stop; killing it\n", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	patience, cancel = context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if l, err = flock.Wait(patience, d.SupervisorLock(), nil); err != nil {
		return fmt.Errorf("the supervisor, pid %d, cannot be killed: %w", pid, err)
	}
	l.Unlock()
	return nil
}

// clean removes what a cluster without a supervisor left, outside and inside its run directory, except the lock.
func clean(d layout.Dir) error {
	cfg, err := d.ReadConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case cfg.Node:
		if err := node.Cleanup(d, cfg); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if p := string(d) + "/" + e.Name(); p != d.Lock() && p != d.Config() {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	// Last: as long as it exists, another down knows what to clean up.
	if err := os.Remove(d.Config()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
