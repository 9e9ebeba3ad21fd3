package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/skein-dev/skein/internal/scratch"
)

// Manager is bin/manager run as a local process against a cluster, with its sandboxes as processes too.
type Manager struct {
	Dir     string   // its data folder, kept over restarts
	command []string // program and flags
	env     []string
	health  string
	api     string // address of its runtime API
	log     io.Writer
	cluster *Cluster

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// ManagerOptions say how to run it.
type ManagerOptions struct {
	Dir  string // data folder
	Log  io.Writer
	Args []string // further flags
	Env  []string
	// Program is the manager's program; that of the checkout when empty.
	Program string
	// Within is a command that runs the manager: its words, then the program and its flags.
	Within []string
}

// NewManager prepares a manager for the cluster; Start runs it.
func (c *Cluster) NewManager(o ManagerOptions) (*Manager, error) {
	// They stay the manager's over restarts, so that the aggregation layer finds it again.
	healthPort, err := scratch.Port()
	if err != nil {
		return nil, err
	}
	apiPort, err := scratch.Port()
	if err != nil {
		return nil, err
	}
	health := net.JoinHostPort("127.0.0.1", strconv.Itoa(healthPort))
	api := net.JoinHostPort("127.0.0.1", strconv.Itoa(apiPort))
	args := append([]string{
		"--kubeconfig=" + c.Kubeconfig,
		"--data-dir=" + o.Dir,
		"--sandbox=process",
		"--health-probe-bind-address=" + health,
		"--metrics-bind-address=0",
		"--runtime-api-bind-address=" + api,
		"--drain-timeout=0s", // a spec that stops a manager means that what is under way is cut off
	}, o.Args...)
	command := append(slices.Clone(o.Within), append([]string{cmp.Or(o.Program, Bin("manager"))}, args...)...)
	return &Manager{Dir: o.Dir, command: command, env: append(os.Environ(), o.Env...), health: health, api: api, log: o.Log, cluster: c}, nil
}

// Start runs the process and waits until it says that it is ready, and until the API server does not take it for gone
// any more.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		return errors.New("the manager runs already")
	}
	cmd := exec.Command(m.command[0], m.command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = m.log, m.log, m.env
	// Should the test be killed, the manager must not outlive it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the manager (run `make build` first): %w", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	m.cmd, m.done = cmd, done
	if err := m.waitReady(ctx, done); err != nil {
		return err
	}
	return m.cluster.routed(ctx, done)
}

func (m *Manager) waitReady(ctx context.Context, done <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready, err := m.Ready(ctx); err == nil && ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the manager is not ready: %w", ctx.Err())
		case <-done:
			return errors.New("the manager ended before it was ready: see its log")
		case <-tick.C:
		}
	}
}

// Ready tells whether the manager says that it can do its work.
func (m *Manager) Ready(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.health+"/readyz", nil)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

// Kill ends it with SIGKILL, as a crash would.
func (m *Manager) Kill() { m.signal(syscall.SIGKILL) }

// Terminate sends SIGTERM and does not wait. The channel is closed when the process has ended.
func (m *Manager) Terminate() (ended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
	}
	return m.done
}

// Stop ends it with SIGTERM and waits.
func (m *Manager) Stop() { m.signal(syscall.SIGTERM) }

func (m *Manager) signal(s syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Signal(s)
	select {
	case <-m.done:
	case <-time.After(30 * time.Second):
		_ = m.cmd.Process.Kill()
		<-m.done
	}
	m.cmd = nil
}

// Running tells whether the process has not ended by itself.
func (m *Manager) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return false
	}
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// Ended reports whether the process has ended by itself and was not stopped.
func (m *Manager) Ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return false
	}
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// RuntimeAddress is where it serves the runtime API itself.
func (m *Manager) RuntimeAddress() string { return m.api }

// HealthAddress is where it serves its probes.
func (m *Manager) HealthAddress() string { return m.health }

// PID of the process, 0 when it does not run.
func (m *Manager) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return 0
	}
	return m.cmd.Process.Pid
}
