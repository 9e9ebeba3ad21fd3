//go:build linux && (amd64 || arm64)

package v8

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/lockdown"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// maxStack bounds the recursion of the compiler: enough for sources that nest some thousand levels, as in the child
// of package js.
const maxStack = 24 << 20

// Limits of the keeper's own process. It holds the request, and two copies of it during compilation.
const (
	keeperAddressSpace = 8 << 30
	keeperData         = 512 << 20
)

// Dispatch is for a program that embeds this package; see supervisor.Dispatch.
func Dispatch(args []string) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case ChildArg:
		return childMain(args[2:]), true
	case ExecArg:
		return execMain(args[2:]), true
	}
	return 0, false
}

// childMain runs a keeper from start to end: it starts an engine, sends Ready, executes one Open, and ends.
func childMain(args []string) int {
	var o ChildOptions
	if err := o.parse(args); err != nil {
		return 2
	}
	if err := child(o); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox child:", err)
		return 1
	}
	return 0
}

func child(o ChildOptions) error {
	debug.SetMaxStack(maxStack)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	e, err := startEngine(o, o.MaxMemory)
	if err != nil {
		return err
	}
	// Compile something now, so that the compiler does not build its tables during a run.
	if _, failed := compile.Transform("warm.ts", "export default (a: number): number => a", sandbox.TypeScript); failed != nil {
		return failed
	}
	conn := protocol.NewConn(os.Stdin, os.Stdout, nil)
	if err := conn.Write(protocol.TypeReady, nil); err != nil {
		return err
	}
	// The limits come first, and from the supervisor. Nothing of the code is read before the process is locked down.
	h, limits, err := readLimits(os.Stdin)
	if errors.Is(err, io.EOF) {
		return nil // the keeper was never used
	}
	if err != nil {
		return err
	}
	if e, err = fitting(o, e, limits.Memory); err != nil {
		return err
	}
	e.watch()
	if err := lock(o); err != nil {
		return err
	}
	open, err := readOpen(os.Stdin, h, limits)
	if err != nil {
		return err
	}
	return keep(conn, e, open)
}

// fitting returns an engine for a limit: the one that waits, unless the limit is far below what that was started for.
// V8 takes its limit at the start. With a higher limit it would leave garbage uncollected, which the watch would
// count as memory in use.
func fitting(o ChildOptions, e *engine, limit int64) (*engine, error) {
	if limit <= 0 || limit*4 >= o.MaxMemory*3 {
		return e, nil
	}
	e.discard()
	return startEngine(o, limit)
}

func lock(o ChildOptions) error {
	limits := lockdown.Limits{AddressSpace: keeperAddressSpace, Data: keeperData, Keeper: true}
	if o.Unconfined {
		return lockdown.ApplyLimits(limits)
	}
	return lockdown.Apply(limits)
}

// readLimits reads the header and the limits of the Open.
func readLimits(r io.Reader) (protocol.Header, protocol.Limits, error) {
	h, err := protocol.ReadHeader(r)
	if err != nil {
		return h, protocol.Limits{}, err
	}
	if h.Type != protocol.TypeOpen || h.Size < protocol.LimitsSize {
		return h, protocol.Limits{}, protocol.Violation("a stream that starts with frame type %d", h.Type)
	}
	raw := make([]byte, protocol.LimitsSize)
	if _, err := io.ReadFull(r, raw); err != nil {
		return h, protocol.Limits{}, err
	}
	limits, err := protocol.ParseLimits(raw)
	return h, limits, err
}

func readOpen(r io.Reader, h protocol.Header, l protocol.Limits) (*protocol.Open, error) {
	content := l.Append(make([]byte, 0, min(h.Size, 1<<20)))
	rest, err := protocol.ReadContent(r, protocol.Header{Type: h.Type, Size: h.Size - protocol.LimitsSize})
	if err != nil {
		return nil, err
	}
	return protocol.ParseOpen(append(content, rest...))
}
