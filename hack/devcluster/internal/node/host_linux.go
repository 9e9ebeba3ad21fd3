// Package node runs a real Kubernetes node: containerd, runc, kubelet, kube-proxy and a NetworkPolicy enforcer.
//
// Everything runs in separate pid, mount, network, UTS and IPC namespaces. Their first process, [Init], dies with the
// supervisor, however that ends. Then the kernel ends every process, mount, network interface and nftables table of
// the node. [Cleanup] removes the rest: cgroups and files.
//
// This file is the host's side; init_linux.go, mounts_linux.go and manager_linux.go are the inside.
package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// File descriptors of the node's processes: for their reports, and for messages of the supervisor.
const (
	reportFD  = 3
	controlFD = 4
)

// usableLine is reported once Services and cluster DNS work from the node. Other lines are for people.
const usableLine = "@usable"

// Messages on the control pipe, in this order.
const (
	linkUp   = "link"
	apiReady = "api"
)

// InitCommand and ManageCommand are the hidden commands of the node's first two processes. Their argument is the run
// directory.
const (
	InitCommand   = "node-init"
	ManageCommand = "node-manage"
)

// Node is a running node, seen from the host.
type Node struct {
	dir     layout.Dir
	cfg     layout.Config
	process *os.Process
	control *os.File
	usable  chan struct{}
	ended   chan error
	done    chan struct{}
}

// Start creates the node's namespaces, gives them the link that Claim created, and starts what needs no API server.
func Start(d layout.Dir, cfg layout.Config, progress func(string)) (_ *Node, err error) {
	if err := makeCgroups(d, cfg.Cgroup()); err != nil {
		return nil, err
	}
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reportW.Close()
	controlR, controlW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer controlR.Close()
	n := &Node{dir: d, cfg: cfg, control: controlW, usable: make(chan struct{}), ended: make(chan error, 1), done: make(chan struct{})}
	log, err := os.OpenFile(d.Log("node"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"devcluster", InitCommand, string(d)}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{reportW, controlR}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := n.spawn(cmd); err != nil {
		return nil, err
	}
	go n.read(reportR, progress)
	if err := n.connect(); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// spawn starts cmd from a thread that lives as long as the node, because the parent-death signal is sent when the
// starting thread ends, not the process.
func (n *Node) spawn(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		if err == nil {
			err = errors.New("its first process ended")
		}
		n.ended <- fmt.Errorf("%w; see %s", err, n.dir.Log("node"))
		close(n.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("making the node's namespaces: %w", err)
	}
	n.process = cmd.Process
	return nil
}

func (n *Node) read(r io.ReadCloser, progress func(string)) {
	defer r.Close()
	for s := bufio.NewScanner(r); s.Scan(); {
		if s.Text() == usableLine {
			close(n.usable)
			continue
		}
		progress(s.Text())
	}
}

// connect gives the node its end of the link, and lets its processes use it.
func (n *Node) connect() error {
	if err := giveLink(n.cfg, n.process.Pid); err != nil {
		return err
	}
	if n.cfg.Egress {
		if err := openEgress(n.cfg); err != nil {
			return err
		}
	}
	return n.tell(linkUp)
}

func (n *Node) tell(message string) error {
	_, err := fmt.Fprintln(n.control, message)
	return err
}

// PID returns the host's pid of the node's first process.
func (n *Node) PID() int { return n.process.Pid }

// Ended returns a channel that gets an error when the node ends. It should not end before Stop.
func (n *Node) Ended() <-chan error { return n.ended }

// APIReady tells the node that the API server can be used and that its kubeconfigs exist.
func (n *Node) APIReady() error { return n.tell(apiReady) }

// WaitUsable returns once Services and cluster DNS work from the node.
func (n *Node) WaitUsable(ctx context.Context) error {
	select {
	case <-n.usable:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for cluster DNS to answer: %w; see the logs in %s", context.Cause(ctx), n.dir)
	}
}

// Stop ends the node and returns when its link, which vanishes last, is gone.
func (n *Node) Stop() error {
	_ = n.process.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(10 * time.Second):
		_ = n.process.Kill()
		<-n.done
	}
	n.control.Close()
	return errors.Join(closeEgress(n.cfg), removeLink(n.cfg), removeCgroups(n.dir, n.cfg.Cgroup()))
}

// Cleanup removes what a node left, whatever the state of its supervisor was when it ended. It does nothing when
// there is nothing to do.
func Cleanup(d layout.Dir, cfg layout.Config) error {
	for start := time.Now(); flock.Held(d.NodeLock()); time.Sleep(20 * time.Millisecond) {
		for _, pid := range processes(InitCommand, string(d)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Since(start) > 15*time.Second {
			return fmt.Errorf("the node's first process does not end: %s is still locked", d.NodeLock())
		}
	}
	return errors.Join(closeEgress(cfg), removeLink(cfg), removeCgroups(d, cfg.Cgroup()))
}

// processes returns the pids of the host's processes that were started as devcluster with these arguments.
func processes(args ...string) []int {
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue
		}
		if a := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"); len(a) > 1 && strings.Join(a[1:], "\x00") == strings.Join(args, "\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}
