package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

func (p *Pool) arguments(engine sandbox.Engine) []string {
	args := []string{
		"--listen=127.0.0.1:0", "--health-listen=", "--announce", "--lifeline", "--drain=0s",
		"--cert-dir=" + p.dir, "--prefork=" + strconv.Itoa(p.opts.Prefork),
	}
	if p.opts.MaxMemory > 0 {
		args = append(args, "--max-memory="+strconv.FormatInt(p.opts.MaxMemory, 10))
	}
	if p.opts.MaxWallTime > 0 {
		args = append(args, "--max-wall-time="+p.opts.MaxWallTime.String())
	}
	if p.opts.Concurrency > 0 {
		args = append(args, "--max-concurrent="+strconv.Itoa(p.opts.Concurrency))
	}
	if engine == sandbox.V8 {
		args = append(args, "--engine="+string(engine), "--deno="+p.opts.Deno)
	}
	return args
}

// supervised is a running supervisor. It holds a pipe to its standard input: when this process dies, in whatever way,
// the pipe closes and the supervisor ends itself and its children.
type supervised struct {
	cmd      *exec.Cmd
	lifeline io.Closer
	done     chan struct{}
}

func (p *Pool) launch(engine sandbox.Engine) (*supervised, string, error) {
	command := p.opts.Command
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], p.arguments(engine)...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.Getenv("TMPDIR")}
	said := &firstBytes{}
	cmd.Stderr = said
	if p.opts.Log != nil {
		cmd.Stderr = io.MultiWriter(said, p.opts.Log)
	}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	s := &supervised{cmd: cmd, lifeline: lifeline, done: make(chan struct{})}
	late := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	go func() {
		defer close(s.done)
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	if err != nil {
		_ = cmd.Process.Kill()
		<-s.done
		return nil, "", fmt.Errorf("%q said no address: %s", command, said)
	}
	return s, strings.TrimSpace(line), nil
}

func (s *supervised) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// stop ends the supervisor and waits for it.
func (s *supervised) stop() {
	_ = s.lifeline.Close()
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// firstBytes keeps the first 2,048 bytes of a process's output.
type firstBytes struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (f *firstBytes) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if room := 2048 - f.text.Len(); room > 0 {
		f.text.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (f *firstBytes) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.TrimSpace(f.text.String())
}
