//go:build linux && (amd64 || arm64)

// Package compiler compiles in a process of its own, locked down like a sandbox's child: a source that takes
// forever, or nests deeper than a stack, then costs that process and not the manager.
package compiler

import (
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

// Limits of a source.
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
	// maxAnswer is far above what the process answers (see compile.MaxCode). It protects this process from that one.
	maxAnswer = 64 << 20
)

// Options are the options of a Compiler. The zero value works for a program that handles Arg.
type Options struct {
	Command []string // starts the process; empty means this program with Arg
	Env     []string // of the process; empty means GOMAXPROCS=2
	Starter Starter  // starts the process and waits for it; nil means in the usual way
	// MaxAnswer is how many bytes of an answer are read; 0 means 64 MiB.
	MaxAnswer int
	Timeout   time.Duration // for one source, in processor time; 0 means 5 s
	Wait      time.Duration // for one source, by the clock; 0 means twelve times Timeout
}

// Compiler compiles in processes of its own, one for sources that compile quickly and one for the others. It is safe for
// concurrent use.
type Compiler struct {
	quick, slow *lane
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
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = maxAnswer
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
	answer, failed, over := c.ask(request{Filename: filename, Source: source, Language: lang}, c.opts.Timeout, c.opts.Wait)
	switch {
	case failed != nil:
		return sandbox.Module{}, failed, over
	case answer.Error != nil:
		return sandbox.Module{}, answer.Error, inTime
	}
	return *answer.Module, nil, inTime
}

// Close ends the processes. A closed compiler compiles nothing more.
func (c *Compiler) Close() error {
	if c.quick != nil {
		c.quick.close()
	}
	c.slow.close()
	return nil
}
