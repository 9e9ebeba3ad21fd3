//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/v8"
)

// process is one child: single-use, locked down, connected by two pipes. mu guards cause.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	outEnd io.Closer
	stderr tail
	// images reports whether it was given images of engines.
	images bool

	mu    sync.Mutex
	cause *protocol.Gone // why it was killed
	wait  func() error   // runs once
}

// By how many nanoseconds the timers of a child may be late. The monitor of its runtime wakes up every 20 µs while anything runs. If it may
// be 200 µs late, that is still a seventh of what a short execution costs. The kernel's own slack is 50 µs.
const (
	timerSlack = 1_000_000
	v8Slack    = 200_000 // the threads of that engine inherit it
)

// spawner starts processes on one thread that never ends, because a child's parent-death signal is bound to the
// thread that started it. Children inherit that thread's timer slack and no_new_privs.
type spawner struct {
	jobs chan func()
}

func newSpawner(slack uintptr) *spawner {
	s := &spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread()
		// Children work without either setting. Those that have no_new_privs from the beginning need a thread less to confine themselves.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
		_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// slackOf returns the slack of the timers of a child at its start.
func slackOf(o Options) uintptr {
	if o.Engine == sandbox.V8 {
		return v8Slack
	}
	return timerSlack
}

// start starts a command on the spawner's thread.
func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	s.jobs <- func() { done <- cmd.Start() }
	return <-done
}

func (s *spawner) close() { close(s.jobs) }

// spawn starts a child and waits until it is locked down and ready.
func (p *pool) spawn() (*process, error) {
	images := p.images.Load()
	child, err := p.server.launch(p.command(p.options(), images))
	if err != nil {
		return nil, err
	}
	h, err := protocol.ReadHeader(child.out)
	if err == nil && (h.Type != protocol.TypeReady || h.Size != 0) {
		err = protocol.Violation("a child that starts with frame type %d", h.Type)
	}
	if err != nil {
		child.kill(protocol.Gone{})
		_ = child.wait()
		return nil, fmt.Errorf("a sandbox child did not start: %w: %s", err, child.stderr.String())
	}
	child.images = images != nil
	return child, nil
}

// program returns the program of children that can compile.
func (s *Server) program() string { return cmp.Or(s.opts.Program, "/proc/self/exe") }

// command returns the command of a child. images is the file with the images of engines, or nil.
func (p *pool) command(o js.ChildOptions, images *os.File) *exec.Cmd {
	s := p.server
	if s.otherEngine() {
		return s.engineChild()
	}
	command := s.opts.Child
	var files []*os.File
	switch {
	case len(command) > 0:
	case p.small != nil:
		o.Program = true
		command, files = []string{programPath, ChildArg}, append(files, p.small.file)
	default:
		command = []string{s.program(), ChildArg}
	}
	if o.Images = images != nil && !o.MakeImages; images != nil {
		files = append(files, images)
	}
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], o.Args()...)...)
	if o.Program {
		cmd.Args[0] = p.small.file.Name() // for those who list processes
	}
	// The code runs on one thread, and everything else in the child waits in the runtime's poller. With more than one processor the runtime
	// would only look for work on the others.
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=200", fmt.Sprintf("GOMEMLIMIT=%d", s.opts.MaxMemory+96<<20)}
	cmd.ExtraFiles = files
	return cmd
}

// otherEngine reports whether the children have another engine than the default one.
func (s *Server) otherEngine() bool { return s.opts.Engine == sandbox.V8 && len(s.opts.Child) == 0 }

// engineChild returns the command of a child of another engine.
func (s *Server) engineChild() *exec.Cmd {
	o := v8.ChildOptions{Deno: s.opts.Deno, MaxMemory: s.opts.MaxMemory, Unconfined: s.opts.AllowUnconfined}
	cmd := exec.Command(s.program(), append([]string{v8.ChildArg}, o.Args()...)...)
	cmd.Env = []string{"GOMAXPROCS=2", "GOGC=200", fmt.Sprintf("GOMEMLIMIT=%d", 256<<20)}
	return cmd
}

// Start starts a process that dies with this one. Wait must be called for it: the reaper leaves it alone until then.
func (s *Server) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.reaper.lock()
	defer s.reaper.unlock()
	if err := s.spawner.start(cmd); err != nil {
		return err
	}
	s.reaper.own(cmd.Process.Pid)
	return nil
}

// Wait waits until a process that Start has started has ended.
func (s *Server) Wait(cmd *exec.Cmd) error {
	defer s.reaper.forget(cmd.Process.Pid)
	return cmd.Wait()
}

func (s *Server) launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd}
	cmd.Stderr = &p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out, p.outEnd = in, bufio.NewReaderSize(out, protocol.ReadBuffer), out
	p.wait = sync.OnceValue(func() error { return s.Wait(cmd) })
	if err := s.Start(cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the child at once. Only the first cause counts.
func (p *process) kill(cause protocol.Gone) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		p.cause = &cause
	}
	_ = p.cmd.Process.Kill()
}

// gone returns why a child ended that did not report it itself. It waits for the child.
func (p *process) gone() protocol.Gone {
	_ = p.wait()
	p.mu.Lock()
	cause := p.cause
	p.mu.Unlock()
	if cause != nil {
		return *cause
	}
	said := p.stderr.String()
	state := p.cmd.ProcessState
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case strings.Contains(said, "stack exceeds"):
		return protocol.Gone{Status: sandbox.StatusTerminated, Reason: "the code nests too deeply to be compiled"}
	case strings.Contains(said, "out of memory") || strings.Contains(said, "cannot allocate memory"):
		return protocol.Gone{Status: sandbox.StatusMemory, Reason: "the code ran out of memory"}
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return protocol.Gone{Status: sandbox.StatusMemory, Reason: "the child was killed, most likely because the sandbox ran out of memory"}
	}
	logf("a child ended with %v: %s", state, said)
	return protocol.Gone{Status: sandbox.StatusTerminated, Reason: fmt.Sprintf("the child crashed (%v)", state)}
}

// dispose kills the child, reaps it and closes its pipes.
func (p *process) dispose() {
	p.kill(protocol.Gone{})
	_ = p.wait()
	_ = p.in.Close()
	_ = p.outEnd.Close()
}

// tail keeps the start and the end of a child's standard error, because the reason of a crash is at the start of a
// long dump.
type tail struct {
	mu   sync.Mutex
	head bytes.Buffer
}

const maxTail = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := maxTail - t.head.Len(); room > 0 {
		t.head.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(t.head.String()), "\uFFFD")
}
