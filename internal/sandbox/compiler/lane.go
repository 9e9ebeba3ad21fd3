//go:build linux && (amd64 || arm64)

package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

// Starter starts a process and waits for its end.
type Starter interface {
	Start(*exec.Cmd) error
	Wait(*exec.Cmd) error
}

// plain is the usual Starter.
type plain struct{}

// Start implements Starter.
func (plain) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Wait implements Starter.
func (plain) Wait(cmd *exec.Cmd) error { return cmd.Wait() }

// lane is one process, which compiles one source at a time. It starts when it is first needed, and again after it died.
type lane struct {
	opts Options

	closed  atomic.Bool
	current atomic.Pointer[process] // for close, which does not wait for an answer

	mu   sync.Mutex
	proc *process
}

type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bounded
	outEnd io.Closer
	enc    *json.Encoder
	dec    *json.Decoder
	err    *strings.Builder // read it after the end
	gone   chan struct{}    // closed when it has ended
}

// ask returns the answer of the process, or why there is none.
func (c *lane) ask(q request, timeout, wait time.Duration) (response, *sandbox.Error, overrun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return response{}, &sandbox.Error{Name: "Error", Message: "the compiler is closed"}, inTime
	}
	if c.proc != nil && c.proc.isGone() {
		c.proc.end()
		c.proc = nil
	}
	if c.proc == nil {
		p, err := c.start()
		if err != nil {
			return response{}, &sandbox.Error{Name: "Error", Message: "the compiler did not start: " + err.Error()}, inTime
		}
		c.proc = p
		c.current.Store(p)
		if c.closed.Load() {
			_ = p.cmd.Process.Kill()
		}
	}
	p := c.proc
	stop := p.watch(timeout, wait)
	var answer response
	p.out.left = c.opts.MaxAnswer
	err := p.enc.Encode(q)
	if err == nil {
		err = p.dec.Decode(&answer)
	}
	over := stop()
	if err == nil && !answer.suits(q) {
		err = errors.New("no answer")
	}
	if err != nil || over != inTime { // the process was killed just after it had answered
		c.proc = nil
		p.end()
	}
	if err != nil {
		return response{}, failure(q.Filename, over, timeout, wait, p.err.String(), err), over
	}
	return answer, nil, inTime
}

// isAlive reports whether there is a process that can be asked.
func (c *lane) isAlive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc != nil && !c.proc.isGone()
}

// suits reports whether an answer has what was asked for.
func (r *response) suits(q request) bool {
	if r.Error != nil {
		return r.Module == nil && r.Run == nil
	}
	return len(r.Run) == len(q.Run) && (r.Module != nil) == (len(q.Run) == 0)
}

// failure returns an error that says what the source did to the process.
func failure(filename string, over overrun, timeout, wait time.Duration, said string, err error) *sandbox.Error {
	e := &sandbox.Error{Name: "RangeError", Stack: filename}
	switch {
	case over == starved:
		e.Name, e.Message = "Error", fmt.Sprintf("the machine had no time to compile the source within %s: try again when it is less busy", wait)
	case over == tooLong:
		e.Message = fmt.Sprintf("the source takes longer than %s to compile: write it with less nesting", timeout)
	case strings.Contains(said, "stack exceeds"):
		e.Message = "the source nests too deeply to be compiled"
	case strings.Contains(said, "out of memory"):
		e.Message = "the source takes too much memory to compile"
	default:
		e.Name, e.Message = "Error", fmt.Sprintf("the compiler ended: %v", err)
	}
	return e
}

func (c *lane) start() (*process, error) {
	command := c.opts.Command
	p := &process{cmd: exec.Command(command[0], command[1:]...), err: &strings.Builder{}, gone: make(chan struct{})}
	p.cmd.Env = c.opts.Env
	p.cmd.Stderr = &limited{to: p.err}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, to, err := os.Pipe() // an answer can be read after the process has ended
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	p.cmd.Stdout = to
	by := c.opts.Starter
	err = by.Start(p.cmd)
	_ = to.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	go func() { // so that one that ends while nothing asks it does not stay a zombie
		defer close(p.gone)
		_ = by.Wait(p.cmd)
	}()
	// When this process dies, the pipe closes and the compiler ends.
	p.outEnd, p.out = out, &bounded{from: out}
	p.in, p.enc, p.dec = in, json.NewEncoder(in), json.NewDecoder(p.out)
	p.enc.SetEscapeHTML(false)
	return p, nil
}

func (p *process) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// end kills the process and waits until it has ended.
func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	<-p.gone
	_ = p.outEnd.Close()
}

// close ends the process, also while it is asked something.
func (c *lane) close() {
	c.closed.Store(true)
	if p := c.current.Load(); p != nil {
		_ = p.cmd.Process.Kill()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		c.proc.end()
		c.proc = nil
	}
}

// bounded reads the answers of a process, each up to a number of bytes.
type bounded struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(to []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("its answer is too long")
	}
	n, err := b.from.Read(to[:min(len(to), b.left)])
	b.left -= n
	return n, err
}

// limited keeps the beginning of what is written.
type limited struct{ to *strings.Builder }

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	if room := 4096 - l.to.Len(); room > 0 {
		l.to.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}
