// Package process provides sandboxes that are local processes, for machines without a node (--sandbox=process). Each
// is the same supervisor that runs in a pod, on loopback, with mTLS from a CA that lives as long as the pool. It
// lacks what a pod adds: separate namespaces, NetworkPolicy and cgroup limits.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// Options are the options of a Pool. The zero value works.
type Options struct {
	// Command starts a supervisor. Empty means a program "sandbox" beside this one, else this program with the
	// argument "sandbox", which it must pass to supervisor.Dispatch.
	Command []string
	// IdleTimeout is after how long without running code a process is ended. 0 means 5 minutes.
	IdleTimeout time.Duration
	MaxMemory   int64         // bytes of an engine's heap; 0 means the supervisor's default
	MaxWallTime time.Duration // for one execution; 0 means the supervisor's default
	Concurrency int           // concurrent executions; 0 means the supervisor's default
	Prefork     int           // ready children; 0 means 1
	Deno        string        // the Deno program, for sandbox.V8; without it there is no such engine
	Clock       clock.WithTicker
	Log         io.Writer // the output of the supervisors; nil discards it
}

const (
	defaultIdle  = 5 * time.Minute
	certLifetime = 10 * 365 * 24 * time.Hour // the CA dies with the pool
	startTimeout = time.Minute
	stopTimeout  = 5 * time.Second
	serverName   = "sandbox.process.skein.dev"
)

// Pool holds the sandboxes of this process, one process per thread.
type Pool struct {
	opts   Options
	dir    string // of the certificates
	ca     pki.Pair
	client pki.Pair
	stop   chan struct{}
	swept  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	threads map[string]*member
}

// member is one thread's process.
type member struct {
	ready   chan struct{} // closed when it has started or failed
	err     error
	proc    *supervised
	sandbox *counted
}

// ErrClosed means that the pool was closed.
var ErrClosed = errors.New("the pool of sandbox processes is closed")

// New returns a pool.
func New(o Options) (*Pool, error) {
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = defaultIdle
	}
	if o.Prefork <= 0 {
		o.Prefork = 1
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if len(o.Command) == 0 {
		command, err := defaultCommand()
		if err != nil {
			return nil, err
		}
		o.Command = command
	}
	p := &Pool{opts: o, stop: make(chan struct{}), threads: map[string]*member{}}
	if err := p.issue(); err != nil {
		return nil, fmt.Errorf("certificates of the sandbox processes: %w", err)
	}
	p.swept.Add(1)
	go p.sweep()
	return p, nil
}

func defaultCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	beside := filepath.Join(filepath.Dir(self), "sandbox")
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && beside != self {
		return []string{beside}, nil
	}
	return []string{self, "sandbox"}, nil
}

func (p *Pool) issue() (err error) {
	c := p.opts.Clock
	if p.ca, err = pki.NewCA(c, "skein sandbox processes", certLifetime); err != nil {
		return err
	}
	if p.client, err = pki.IssueClient(c, p.ca, "skein manager", certLifetime); err != nil {
		return err
	}
	server, err := pki.IssueServer(c, p.ca, serverName, certLifetime)
	if err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "skein-sandbox-"); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"tls.crt": server.Cert, "tls.key": server.Key, "ca.crt": p.ca.Cert} {
		if err := os.WriteFile(filepath.Join(p.dir, name), content, 0o600); err != nil {
			_ = os.RemoveAll(p.dir)
			return err
		}
	}
	return nil
}

// Acquire is AcquireOn for the default engine.
func (p *Pool) Acquire(ctx context.Context, threadID string) (sandbox.Sandbox, error) {
	return p.AcquireOn(ctx, threadID, sandbox.QuickJS)
}

// AcquireOn returns the thread's sandbox. When it has none, AcquireOn starts a process with the engine. The sandbox
// belongs to the thread until Release or until it has been idle. After that its calls fail as retriable, and
// AcquireOn returns another one.
func (p *Pool) AcquireOn(ctx context.Context, threadID string, engine sandbox.Engine) (sandbox.Sandbox, error) {
	switch {
	case threadID == "":
		return nil, errors.New("a sandbox needs the id of its thread")
	case engine == sandbox.V8 && p.opts.Deno == "":
		return nil, errors.New("there is no v8 engine here: its sandbox processes need a Deno program: start the manager with --sandbox-deno=/path/to/deno, or choose the engine quickjs in the thread's SandboxPool")
	}
	for {
		m, mine, err := p.member(threadID)
		if err != nil {
			return nil, err
		}
		if mine {
			m.proc, m.sandbox, m.err = p.start(threadID, engine)
			close(m.ready)
			if m.err == nil {
				go p.forgetWhenEnded(threadID, m)
			}
		}
		select {
		case <-m.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case m.err != nil:
			p.forget(threadID, m)
			return nil, m.err
		case m.proc.ended():
			p.forget(threadID, m)
			continue
		}
		m.sandbox.touch()
		return m.sandbox, nil
	}
}

// member returns the thread's entry, or a new one that the caller must fill.
func (p *Pool) member(threadID string) (m *member, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, ErrClosed
	}
	if m, ok := p.threads[threadID]; ok {
		return m, false, nil
	}
	m = &member{ready: make(chan struct{})}
	p.threads[threadID] = m
	return m, true, nil
}

func (p *Pool) forget(threadID string, m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.threads[threadID] == m {
		delete(p.threads, threadID)
	}
}

func (p *Pool) forgetWhenEnded(threadID string, m *member) {
	<-m.proc.done
	p.forget(threadID, m)
	_ = m.sandbox.Close()
}

// Release ends the thread's process and everything that runs in it.
func (p *Pool) Release(threadID string) {
	p.mu.Lock()
	m := p.threads[threadID]
	delete(p.threads, threadID)
	p.mu.Unlock()
	if m != nil {
		m.end()
	}
}

func (m *member) end() {
	<-m.ready
	if m.err == nil {
		_ = m.sandbox.Close()
		m.proc.stop()
	}
}

// Close ends every process and waits for them.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	members := p.threads
	p.threads = map[string]*member{}
	p.mu.Unlock()
	close(p.stop)
	p.swept.Wait()
	var all sync.WaitGroup
	for _, m := range members {
		all.Go(m.end)
	}
	all.Wait()
	return os.RemoveAll(p.dir)
}

// sweep ends processes that have been idle for too long.
func (p *Pool) sweep() {
	defer p.swept.Done()
	t := p.opts.Clock.NewTicker(max(p.opts.IdleTimeout/4, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C():
		}
		for _, m := range p.idle() {
			m.end()
		}
	}
}

// idle removes and returns the members that have been idle for too long.
func (p *Pool) idle() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []*member
	for id, m := range p.threads {
		select {
		case <-m.ready:
			if m.err == nil && m.sandbox.idleFor() >= p.opts.IdleTimeout {
				delete(p.threads, id)
				due = append(due, m)
			}
		default:
		}
	}
	return due
}

// start starts a supervisor and dials it.
func (p *Pool) start(threadID string, engine sandbox.Engine) (*supervised, *counted, error) {
	proc, address, err := p.launch(engine)
	if err != nil {
		return nil, nil, fmt.Errorf("starting a sandbox process: %w", err)
	}
	c, err := client.Dial(client.Options{
		Address: address, ServerName: serverName, CA: p.ca.Cert, Client: p.client, ThreadID: threadID, MaxWallTime: p.opts.MaxWallTime,
	})
	if err != nil {
		proc.stop()
		return nil, nil, err
	}
	return proc, newCounted(c, p.opts.Clock), nil
}
