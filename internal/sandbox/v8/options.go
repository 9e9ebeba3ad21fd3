//go:build linux && (amd64 || arm64)

package v8

import (
	"flag"
	"fmt"
)

// ChildArg is the first argument with which a program that embeds this package starts as a keeper. With ExecArg the
// keeper starts it again to lock down and become Deno.
const (
	ChildArg = "sandbox-child-v8"
	ExecArg  = "sandbox-exec-v8"
)

// ChildOptions are the arguments of a keeper. Args formats them, and ChildMain parses them.
type ChildOptions struct {
	Deno       string // the program
	MaxMemory  int64  // maximum bytes of an engine's heap; the ready engine is started for this limit
	Unconfined bool   // no seccomp filter; only where the kernel has none and the operator allowed it
}

// Args returns the options as arguments.
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

// heap holds the settings with which V8 keeps a limit of its heap, in MiB. What this does not limit by itself,
// buffers and machine code, is limited by the memory of the process: limit and slack.
type heap struct {
	old  int64 // MiB of objects that have survived
	semi int64 // MiB of each half of the space for new objects
}

// heapOf divides a limit in bytes as V8 counts it: all of it for objects that survive, and an eighth, but no more than 8 MiB, for each
// half of the space for new objects.
func heapOf(limit int64) heap {
	mib := max(limit>>20, 1)
	return heap{old: mib, semi: min(max(mib/8, 1), 8)}
}

// slack returns what the process may use beyond the limit: the space for new objects, machine code, and what the
// collector has not returned.
func (h heap) slack() int64 { return 3*h.semi<<20 + 8<<20 }

// Footprint returns how much of a machine's memory an execution with a limit in bytes may use: what the watch allows,
// and two idle processes.
func Footprint(limit int64) int64 { return limit + heapOf(limit).slack() + idle }

// idle is the memory that a keeper and an engine use before any code runs.
const idle = 24 << 20

func (h heap) flags() string {
	return fmt.Sprintf("--v8-flags=--max-old-space-size=%d,--max-semi-space-size=%d", h.old, h.semi)
}
