//go:build linux && (amd64 || arm64)

package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/sandbox/lockdown"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Arg is the first argument with which a program that embeds this package starts as a compiler process. With forRuns after it, the process
// takes no more than what a sandbox has for it.
const (
	Arg     = "sandbox-compile"
	forRuns = "runs"
)

// Limits of the process, in bytes.
const (
	maxStack     = 192 << 20
	maxRunsStack = 24 << 20 // as in a child that compiles its own run
	maxData      = 1 << 30
	maxRunsData  = 128 << 20
	maxAddress   = 8 << 30
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

// Main runs the compiler process with the arguments after Arg: it answers requests on standard input until that ends. It returns the exit code.
func Main(args []string) int {
	if err := serve(slices.Contains(args, forRuns)); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox compiler:", err)
		return 1
	}
	return 0
}

func serve(runs bool) error {
	stack, limits := maxStack, lockdown.Limits{AddressSpace: maxAddress, Data: maxData}
	if runs {
		stack, limits.Data = maxRunsStack, maxRunsData
	}
	debug.SetMaxStack(stack)
	// When memory runs out, the kernel must kill this process, never the one that it compiles for.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
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
	out.SetEscapeHTML(false)
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

// compileRun answers for all modules of a run.
func compileRun(modules []protocol.Module) response {
	answer, size := response{Run: make([]sandbox.Module, len(modules))}, 0
	for i, m := range modules {
		module, failed := compile.Module(m)
		if failed != nil {
			return response{Error: failed}
		}
		if size += len(module.Code) + len(module.SourceMap); size > maxRunCode {
			return response{Error: &sandbox.Error{Name: "RangeError", Message: "the compiled modules are too long"}}
		}
		answer.Run[i] = module
	}
	return answer
}
