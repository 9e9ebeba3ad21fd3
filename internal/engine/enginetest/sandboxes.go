package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/store"
)

// Processes provides threads with real sandboxes that are local processes. The test binary is the supervisor: call
// sandboxtest.Main from TestMain. Processes is safe for concurrent use.
type Processes struct {
	pool *process.Pool

	mu       sync.Mutex
	acquired int
	held     int
	// pools are the names of the pools that were asked for.
	pools []string
}

var _ ports.Sandboxes = (*Processes)(nil)

// UseProcesses makes the world use local processes as sandboxes, and returns them. Close them. They are processes of the
// program that sandboxtest.ChildEnv names: the sandbox starts with less work than a test program, which holds all of the
// manager. Without it they are the test program itself.
func (w *World) UseProcesses(o process.Options) (*Processes, error) {
	if program := os.Getenv(sandboxtest.ChildEnv); program != "" && len(o.Command) == 0 {
		o.Command = []string{program}
	}
	pool, err := process.New(o)
	if err != nil {
		return nil, err
	}
	p := &Processes{pool: pool}
	w.Sandboxes = p
	return p, nil
}

// Acquire implements ports.Sandboxes.
func (p *Processes) Acquire(ctx context.Context, t *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	s, err := p.pool.Acquire(ctx, t.ID)
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox process: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquired++
	p.held++
	p.pools = append(p.pools, pool)
	return s, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held--
	}), nil
}

// Discard implements ports.Sandboxes.
func (p *Processes) Discard(_ context.Context, t *store.Thread, _ sandbox.Sandbox) {
	p.pool.Release(t.ID)
}

// Kill kills all sandbox processes of this test with SIGKILL, which is how pods are lost.
func (p *Processes) Kill() error {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Counts returns how many sandboxes were acquired, and how many of them were not released.
func (p *Processes) Counts() (acquired, held int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acquired, p.held
}

// Pools returns the names of the pools that were asked for.
func (p *Processes) Pools() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.pools...)
}

// Close ends all processes.
func (p *Processes) Close() error { return p.pool.Close() }
