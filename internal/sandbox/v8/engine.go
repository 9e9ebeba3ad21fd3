//go:build linux && (amd64 || arm64)

package v8

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/lockdown"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// engine is a locked-down Deno process whose harness waits for the one Open of its life.
type engine struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr head
	memory *memory
	done   chan struct{} // closed when the process has ended
}

// denoArgs keep Deno from looking for, fetching or asking for anything.
var denoArgs = []string{
	"run", "--quiet", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--cached-only", "--no-code-cache", "--ext=js",
}

// dataLimit returns the limit of the process's writable memory: what V8 and Deno reserve but never touch, plus what
// the code may use. A larger buffer is refused at once, while the watch would only notice that it is being filled.
func dataLimit(limit int64) uint64 { return uint64(640<<20 + 2*limit) }

// starter starts processes on one thread that never ends, because an engine's parent-death signal is bound to that
// thread.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// startEngine starts Deno for a limit of its heap and waits until it is locked down and ready.
func startEngine(o ChildOptions, limit int64) (*engine, error) {
	h := heapOf(limit)
	args := []string{ExecArg, fmt.Sprintf("--data=%d", dataLimit(limit)), fmt.Sprintf("--unconfined=%t", o.Unconfined), "--", o.Deno}
	args = append(append(args, denoArgs...), h.flags(), fmt.Sprintf("/proc/self/fd/%d", harnessFd))
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off"} // for the moment before it becomes Deno
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	e := &engine{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &e.stderr
	program, err := memoryFile("skein-harness", harness())
	if err != nil {
		return nil, err
	}
	defer program.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(pair[0]) }()
	theirs := os.NewFile(uintptr(pair[1]), "gate")
	cmd.ExtraFiles = []*os.File{program, theirs}
	if e.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.out = bufio.NewReaderSize(out, 64<<10)
	started := make(chan error, 1)
	starter() <- func() { started <- cmd.Start() }
	if err = <-started; err != nil {
		return nil, err
	}
	_ = theirs.Close()
	if err := e.ready(pair[0], o.Unconfined, startTimeout); err != nil {
		e.kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("the engine did not start: %w: %s", err, e.stderr.String())
	}
	if e.memory, err = openMemory(cmd.Process.Pid, limit+h.slack()); err != nil {
		e.kill()
		_ = cmd.Wait()
		return nil, err
	}
	return e, nil
}

// startTimeout bounds the start of an engine. That takes a tenth of a second, and some seconds on a busy node in
// gVisor.
const startTimeout = time.Minute

// ready lets the engine start behind the gate, and closes the gate once its harness says Ready. It kills an engine
// that does not say so in time.
func (e *engine) ready(socket int, unconfined bool, within time.Duration) error {
	late := time.AfterFunc(within, e.kill)
	err := e.awaitReady(socket, unconfined)
	if late.Stop() {
		return err
	}
	return errors.Join(fmt.Errorf("it was not ready within %s, and was killed", within), err)
}

// awaitReady waits until the harness says Ready. If the engine is confined, its gate is open in the meantime.
func (e *engine) awaitReady(socket int, unconfined bool) (err error) {
	if !unconfined {
		var gate lockdown.Gate
		if gate, err = receiveGate(socket, e.cmd.Process.Pid); err != nil {
			return err
		}
		defer func() {
			if shut := gate.Close(); shut != nil {
				err = shut // when the harness never answered, this error says why
			}
		}()
	}
	h, err := protocol.ReadHeader(e.out)
	if err == nil && (h.Type != protocol.TypeReady || h.Size != 0) {
		err = protocol.Violation("a harness that starts with frame type %d", h.Type)
	}
	return err
}

// watch waits for the process in the background. It is called once, before the keeper is locked down.
func (e *engine) watch() {
	go func() {
		_ = e.cmd.Wait()
		close(e.done)
	}()
}

// discard ends an engine that was not used.
func (e *engine) discard() {
	e.kill()
	_ = e.cmd.Wait()
	_ = e.in.Close()
	e.memory.close()
}

func (e *engine) kill() { _ = e.cmd.Process.Kill() }

// memoryFile returns a file in memory that cannot be changed any more.
func memoryFile(name, content string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(content)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// head keeps the beginning of a process's output.
type head struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const maxHead = 8 << 10

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if room := maxHead - h.text.Len(); room > 0 {
		h.text.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(h.text.String()), "\uFFFD")
}

// ranOut reports whether the engine ended itself for lack of memory.
func (h *head) ranOut() bool {
	said := strings.ToLower(h.String())
	return strings.Contains(said, "out of memory") || strings.Contains(said, "cannot allocate memory")
}
