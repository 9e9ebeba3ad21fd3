package node

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// Init is the first process of the node's namespaces: it sets up the mounts, starts the manager, reaps every orphan,
// and ends with the manager. As pid 1 it must not wait for single children, so the manager is its only child.
func Init(d layout.Dir) error {
	if os.Getpid() != 1 {
		return errors.New("this is the first process of a node; use up")
	}
	lock, err := flock.Try(d.NodeLock())
	if err != nil {
		return err
	}
	defer lock.Unlock()
	cfg, err := d.ReadConfig()
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(cfg.NodeName())); err != nil {
		return err
	}
	if err := setUpMounts(d, cfg); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	manager, err := syscall.ForkExec("/proc/self/exe", []string{"devcluster", ManageCommand, string(d)}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2, reportFD, controlFD},
	})
	if err != nil {
		return fmt.Errorf("starting the node's manager: %w", err)
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(manager, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == manager && status.ExitStatus() == 0:
			return nil
		case pid == manager:
			return fmt.Errorf("the node's manager ended: status %d", status)
		}
	}
}
