package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// daemon is a program that is kept running.
type daemon struct {
	name string
	path string
	args []string // without the name
	dir  layout.Dir
	env  []string
}

// maxRestarts is how often a daemon may end in its first minutes before the node gives up.
const maxRestarts = 5

// run keeps the daemon running until ctx ends, and then stops it. It returns an error when the daemon keeps ending.
func (d daemon) run(ctx context.Context) error {
	for n := 0; ; n++ {
		began := time.Now()
		err := d.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > 2*time.Minute {
			n = 0
		}
		if n == maxRestarts {
			return fmt.Errorf("%s keeps ending (%w); see %s", d.name, err, d.dir.Log(d.name))
		}
		fmt.Fprintf(os.Stderr, "%s ended: %v; starting it again\n", d.name, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(n) * time.Second):
		}
	}
}

// writePID writes the pid file under another name and renames it, so that it is never there in part.
func (d daemon) writePID(pid int) error {
	file := pidFile(d.dir, d.name)
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (d daemon) once(ctx context.Context) error {
	log, err := os.OpenFile(d.dir.Log(d.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, d.path, d.args...)
	cmd.Args[0] = d.name
	cmd.Env = d.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := d.writePID(cmd.Process.Pid); err != nil {
		return err
	}
	err = cmd.Wait()
	_ = os.Remove(pidFile(d.dir, d.name))
	if err == nil {
		err = errors.New("it returned")
	}
	return err
}
