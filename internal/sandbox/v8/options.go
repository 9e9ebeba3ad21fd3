//go:build linux && (amd64 || arm64)

package v8

import (
	"flag"
	"fmt"
)

// ChildArg is the first argument by which a program that embeds this package starts as a keeper; execArg the one
// by which the keeper starts it once more to lock down and become Deno.
const (
	ChildArg = "sandbox-child-v8"
	ExecArg  = "sandbox-exec-v8"
)

// ChildOptions are the arguments of a keeper; Args writes them, ChildMain reads them.
type ChildOptions struct {
	Deno       string // the program
	MaxMemory  int64  // bytes of an engine's heap, at most: the engine that waits ready is made for these
	Unconfined bool   // no seccomp filter: only where the kernel has none and the operator said so
}

// Args gives the options as arguments.
func (o ChildOptions) Args() []string {
	return []string{"--deno=" + o.Deno, fmt.Sprintf("--max-memory=%d", o.MaxMemory), fmt.Sprintf("--unconfined=%t", o.Unconfined)}
}

func (o *ChildOptions) parse(args []string) error {
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	flags.StringVar(&o.Deno, "deno", "", "the Deno program")
	flags.Int64Var(&o.MaxMemory, "max-memory", 0, "bytes of an engine's heap")
	flags.BoolVar(&o.Unconfined, "unconfined", false, "run without a seccomp filter")
	return flags.Parse(args)
}

// heap says how V8 is told to keep a limit of its heap, in MiB. What a limit does not bound by itself, buffers and
// machine code, is bounded by the memory of the process: limit and slack.
type heap struct {
	old  int64 // MiB of objects that have survived
	semi int64 // MiB of each half of the space for new objects
}

func heapOf(limit int64) heap {
	mib := max(limit>>20, 1)
	return heap{old: mib, semi: min(max(mib/8, 1), 8)}
}

// slack is what the process may take beyond the limit: the space for new objects, machine code, and what the
// collector has not given back.
func (h heap) slack() int64 { return 3*h.semi<<20 + 8<<20 }

// Footprint is what an execution with a limit, in bytes, may take of a machine's memory: what the watch lets it take,
// and two processes that do nothing.
func Footprint(limit int64) int64 { return limit + heapOf(limit).slack() + idle }

// idle is the memory that a keeper and an engine have for themselves before any code runs.
const idle = 24 << 20

func (h heap) flags() string {
	return fmt.Sprintf("--v8-flags=--max-old-space-size=%d,--max-semi-space-size=%d", h.old, h.semi)
}
