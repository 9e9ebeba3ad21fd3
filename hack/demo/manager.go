package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The manager as a local process, for machines without a node. Like the cluster it outlives the demo program, so its
// pid is in a file.

func (d *demo) managerLog() string { return filepath.Join(d.state, "manager.log") }
func (d *demo) managerPID() string { return filepath.Join(d.state, "manager.pid") }
func (d *demo) data() string       { return filepath.Join(d.state, "data") }

func (d *demo) startManager() error {
	args := []string{"bin/manager", "--sandbox=process", "--data-dir=" + d.data(), "--leader-elect=false",
		"--runtime-api-bind-address=127.0.0.1:0", "--metrics-bind-address=0", "--health-probe-bind-address=0"}
	if d.model != nil {
		args = append(args, "--tool-private-hosts="+d.model.host()) // it may run on this machine
	}
	d.show(append(args, "&")...)
	log, err := os.Create(d.managerLog())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.root, d.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the manager (run `make build` first): %w", err)
	}
	if err := writeWhole(d.managerPID(), strconv.Itoa(cmd.Process.Pid)); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	// Reap it if it ends before the demo does.
	go func() { _ = cmd.Wait() }()
	return nil
}

// writeWhole writes a file under another name and renames it, so that it is never there in part: a pid that cannot be read would leave
// the manager running.
func writeWhole(file, text string) error {
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// stopManager ends the local manager, if there is one.
func (d *demo) stopManager() error {
	text, err := os.ReadFile(d.managerPID())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !d.isManager(pid) {
		return os.Remove(d.managerPID())
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	for patience := time.Now().Add(15 * time.Second); d.isManager(pid); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(patience) {
			// Its sandboxes end with it: they are its child processes and watch for its death.
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return os.Remove(d.managerPID())
}

// isManager reports whether the pid is still that of the manager that this demo started.
func (d *demo) isManager(pid int) bool {
	out, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "--data-dir="+d.data())
}
