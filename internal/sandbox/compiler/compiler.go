//go:build linux && (amd64 || arm64)

// Package compiler compiles in a process of its own, locked down like a sandbox's child: a source that takes
// forever, or nests deeper than a stack, then costs that process and not the manager.
package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/sandbox/lockdown"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Arg is the first argument with which a program that embeds this package starts as a compiler process.
const Arg = "sandbox-compile"

// Limits of the process.
const (
	defaultTimeout = 5 * time.Second
	// quickTimeout is enough for nearly every source. One that takes longer is compiled again in the slow lane, where other
	// sources do not wait for it.
	quickTimeout = 500 * time.Millisecond
	// quickPatience and slowPatience are how many times its limit of processor time a source may take by the clock in the two
	// lanes, because others use the processors. All later sources of its lane wait for it. The slow lane waits longer: a source
	// that is given up there is compiled again from its beginning, which costs a busy machine more than the wait.
	quickPatience = 4
	slowPatience  = 12
	maxStack      = 192 << 20
	maxData       = 1 << 30
	maxAddress    = 8 << 30
)

// request is one module of a definition, or all modules of a run.
type request struct {
	Filename string
	Source   string
	Language sandbox.Language
	Run      []protocol.Module `json:",omitempty"`
}

type response struct {
	Module *sandbox.Module  `json:",omitempty"`
	Run    []sandbox.Module `json:",omitempty"`
	Error  *sandbox.Error   `json:",omitempty"`
}

// Main runs the compiler process: it answers requests on standard input until that ends. It returns the exit code.
func Main() int {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox compiler:", err)
		return 1
	}
	return 0
}

func serve() error {
	debug.SetMaxStack(maxStack)
	// When memory runs out, the kernel must kill this process, never the one that it compiles for.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	limits := lockdown.Limits{AddressSpace: maxAddress, Data: maxData}
	err := lockdown.Apply(limits)
	if errors.Is(err, lockdown.ErrNoSeccomp) {
		// The compiler is memory-safe and accesses nothing outside, so the resource limits matter here.
		err = lockdown.ApplyLimits(limits)
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	requests := make(chan request)
	go func() { ended <- read(requests) }()
	go func() { ended <- answer(requests) }()
	// When the input ends, the process ends even while it compiles a source that takes forever: the parent is gone,
	// and with it whatever would have ended this process.
	return <-ended
}

func read(requests chan<- request) error {
	for in := json.NewDecoder(os.Stdin); ; {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		requests <- r
	}
}

func answer(requests <-chan request) error {
	out := json.NewEncoder(os.Stdout)
	for r := range requests {
		if err := out.Encode(r.answer()); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) answer() response {
	if len(r.Run) > 0 {
		return compileRun(r.Run)
	}
	module, failed := compile.Transform(r.Filename, r.Source, r.Language)
	if failed != nil {
		return response{Error: failed}
	}
	module.Facts = inspect.Module(module.Code)
	return response{Module: &module}
}

// Options are the options of a Compiler. The zero value works for a program that handles Arg.
type Options struct {
	Command []string      // starts the process; empty means this program with Arg
	Env     []string      // of the process; empty means GOMAXPROCS=2
	Starter Starter       // starts the process and waits for it; nil means in the usual way
	Timeout time.Duration // for one source, in processor time; 0 means 5 s
	Wait    time.Duration // for one source, by the clock; 0 means twelve times Timeout
}

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

// Compiler compiles in processes of its own, one for sources that compile quickly and one for the others. It is safe for
// concurrent use.
type Compiler struct {
	quick, slow *lane
}

// lane is one process, which compiles one source at a time. It starts when it is first needed, and again after it died.
type lane struct {
	opts Options

	mu     sync.Mutex
	closed bool
	proc   *process
}

type process struct {
	cmd *exec.Cmd
	by  Starter
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
	err *strings.Builder
}

// New returns a compiler.
func New(o Options) *Compiler {
	o.complete()
	c := &Compiler{slow: &lane{opts: o}}
	if o.Timeout > quickTimeout {
		quick := o
		quick.Timeout, quick.Wait = quickTimeout, min(quickPatience*quickTimeout, o.Wait)
		c.quick = &lane{opts: quick}
	}
	return c
}

// complete sets what is not set.
func (o *Options) complete() {
	if len(o.Command) == 0 {
		o.Command = []string{"/proc/self/exe", Arg}
	}
	if len(o.Env) == 0 {
		o.Env = []string{"GOMAXPROCS=2"}
	}
	if o.Starter == nil {
		o.Starter = plain{}
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Wait <= 0 {
		o.Wait = slowPatience * o.Timeout
	}
}

// Compile compiles one module, like compile.Compile, and also sets its Facts. A source that takes long delays only other
// sources that do.
func (c *Compiler) Compile(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error) {
	if filename == "" {
		filename = compile.DefaultFilename(lang)
	}
	if err := compile.TooLong(filename, source); err != nil {
		return sandbox.Module{}, err
	}
	if c.quick != nil {
		module, failed, over := c.quick.compile(filename, source, lang)
		if over == inTime {
			return module, failed
		}
	}
	module, failed, _ := c.slow.compile(filename, source, lang)
	return module, failed
}

func (c *lane) compile(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error, overrun) {
	answer, failed, over := c.ask(request{Filename: filename, Source: source, Language: lang})
	switch {
	case failed != nil:
		return sandbox.Module{}, failed, over
	case answer.Error != nil:
		return sandbox.Module{}, answer.Error, inTime
	}
	return *answer.Module, nil, inTime
}

// ask returns the answer of the process, or why there is none.
func (c *lane) ask(q request) (response, *sandbox.Error, overrun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return response{}, &sandbox.Error{Name: "Error", Message: "the compiler is closed"}, inTime
	}
	if c.proc == nil {
		p, err := c.start()
		if err != nil {
			return response{}, &sandbox.Error{Name: "Error", Message: "the compiler did not start: " + err.Error()}, inTime
		}
		c.proc = p
	}
	p := c.proc
	stop := p.watch(c.opts.Timeout, c.opts.Wait)
	var answer response
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
		return response{}, c.failure(q.Filename, over, p.err.String(), err), over
	}
	return answer, nil, inTime
}

// suits reports whether an answer has what was asked for.
func (r *response) suits(q request) bool {
	if r.Error != nil {
		return r.Module == nil && r.Run == nil
	}
	return len(r.Run) == len(q.Run) && (r.Module != nil) == (len(q.Run) == 0)
}

// failure returns an error that says what the source did to the process.
func (c *lane) failure(filename string, over overrun, said string, err error) *sandbox.Error {
	e := &sandbox.Error{Name: "RangeError", Stack: filename}
	switch {
	case over == starved:
		e.Name, e.Message = "Error", fmt.Sprintf("the machine had no time to compile the source within %s: try again when it is less busy", c.opts.Wait)
	case over == tooLong:
		e.Message = fmt.Sprintf("the source takes longer than %s to compile: write it with less nesting", c.opts.Timeout)
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
	p := &process{cmd: exec.Command(command[0], command[1:]...), by: c.opts.Starter, err: &strings.Builder{}}
	p.cmd.Env = c.opts.Env
	p.cmd.Stderr = &limited{to: p.err}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.by.Start(p.cmd); err != nil {
		return nil, err
	}
	// When this process dies, the pipe closes and the compiler ends.
	p.in, p.enc, p.dec = in, json.NewEncoder(in), json.NewDecoder(out)
	return p, nil
}

func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.by.Wait(p.cmd)
}

// Close ends the processes. A closed compiler compiles nothing more.
func (c *Compiler) Close() error {
	if c.quick != nil {
		c.quick.close()
	}
	c.slow.close()
	return nil
}

func (c *lane) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.proc != nil {
		c.proc.end()
		c.proc = nil
	}
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
