//go:build linux && (amd64 || arm64)

// Package supervisor is the server in a sandbox. It accepts one stream of frames (package protocol) for each isolate
// from the manager of one thread, and gives each isolate to a separate, locked-down, single-use child process. The
// sources of runs pass through a compiler, which is another locked-down process. The supervisor decodes no values, and
// never runs an engine.
package supervisor

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/telemetry/profiles"
)

// ChildArg is the first argument with which a program that embeds this package starts as a child, ServeArg the one
// with which it starts as a supervisor; see Dispatch.
const (
	ChildArg = js.ChildArg
	ServeArg = "sandbox"
)

// Options are the options of a supervisor.
type Options struct {
	Listen       string        // address of the mTLS listener
	HealthListen string        // address of the plain listener for /healthz; empty means none
	PprofListen  string        // address of the loopback interface for Go profiles of the supervisor; empty means none
	CertDir      string        // has tls.crt, tls.key and ca.crt, which are read again when they change
	MaxMemory    int64         // bytes of an engine's heap
	MaxWallTime  time.Duration // for a run, or for a call of an isolate
	Prefork      int           // ready children, for each kind of execution
	Concurrency  int           // concurrent runs; the same number of runs that they wait for, and of definition isolates
	TotalMemory  int64         // bytes of the heaps of all engines together; 0 means what the container's own limit leaves
	Drain        time.Duration // how long current streams may continue after SIGTERM
	// AllowUnconfined lets children run where the kernel has no seccomp filters. Then only the engine and the pod
	// confine untrusted code.
	AllowUnconfined bool
	// Lifeline ends the supervisor when its standard input ends, because then its parent is gone.
	Lifeline bool
	// Announce prints the address that it listens on, as one line on standard output.
	Announce bool
	// Engine is the engine of the children: sandbox.QuickJS (when empty) or sandbox.V8, which needs Deno.
	Engine sandbox.Engine
	Deno   string // the Deno program, for sandbox.V8
	// Program is the program of a child, which passes its arguments to Dispatch. Empty means this program. Where SmallProgram is beside it,
	// those whose code comes compiled have that one.
	Program string
	// Child is the command of a child in place of Program, for tests.
	Child []string
}

// Defaults returns the options of a pod.
func Defaults() Options {
	return Options{
		Listen:       ":8443",
		HealthListen: ":8080",
		CertDir:      "/etc/skein/sandbox",
		MaxMemory:    64 << 20,
		MaxWallTime:  60 * time.Second,
		Prefork:      2,
		Concurrency:  4,
		Drain:        20 * time.Second,
		Engine:       sandbox.QuickJS,
		Deno:         "/deno",
	}
}

// Flags registers the options as flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.StringVar(&o.Listen, "listen", o.Listen, "`address` of the mTLS listener")
	f.StringVar(&o.HealthListen, "health-listen", o.HealthListen, "`address` of the plain listener for /healthz; none when empty")
	f.StringVar(&o.PprofListen, "pprof-listen", o.PprofListen, "`address` of the loopback interface at which Go profiles of the supervisor are served; nowhere when empty")
	f.StringVar(&o.CertDir, "cert-dir", o.CertDir, "`folder` of tls.crt, tls.key and ca.crt; they are read again when they change")
	f.Func("max-memory", fmt.Sprintf("memory of one execution's engine, in `bytes` or like 64Mi (default %d)", o.MaxMemory), func(s string) (err error) {
		o.MaxMemory, err = parseBytes(s)
		return err
	})
	f.Func("max-total-memory", "memory of all executions' engines together, in `bytes` or like 512Mi (default: what the container's own limit leaves)", func(s string) (err error) {
		o.TotalMemory, err = parseBytes(s)
		return err
	})
	f.DurationVar(&o.MaxWallTime, "max-wall-time", o.MaxWallTime, "longest `time` of one execution")
	f.IntVar(&o.Prefork, "prefork", o.Prefork, "`number` of children that wait ready, for each kind of execution")
	f.IntVar(&o.Concurrency, "max-concurrent", o.Concurrency, "`number` of executions at a time, as many that they wait for, and as many definition isolates")
	f.Func("engine", fmt.Sprintf("`name` of the JavaScript engine: %s or %s (default %s)", sandbox.QuickJS, sandbox.V8, o.Engine), func(s string) error {
		o.Engine = sandbox.Engine(s)
		return o.Engine.Validate()
	})
	f.StringVar(&o.Deno, "deno", o.Deno, "the Deno `program`, for --engine=v8")
	f.DurationVar(&o.Drain, "drain", o.Drain, "how long executions under way may go on after SIGTERM")
	f.BoolVar(&o.AllowUnconfined, "allow-unconfined", o.AllowUnconfined, "run untrusted code even where the kernel has no seccomp filters")
	f.BoolVar(&o.Lifeline, "lifeline", o.Lifeline, "end when standard input ends")
	f.BoolVar(&o.Announce, "announce", o.Announce, "print the address listened on, as one line")
}

// parseBytes parses a number of bytes in the binary units of Kubernetes.
func parseBytes(s string) (int64, error) {
	var n int64
	var unit string
	if _, err := fmt.Sscanf(s+" ", "%d%s", &n, &unit); err != nil {
		if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
			return 0, errors.New("it must be a number of bytes, like 67108864 or 64Mi")
		}
	}
	shift, ok := map[string]int{"": 0, "Ki": 10, "Mi": 20, "Gi": 30}[unit]
	if !ok || n <= 0 || n > 1<<40>>shift {
		return 0, errors.New("it must be a positive number of bytes up to 1Ti, like 67108864 or 64Mi")
	}
	return n << shift, nil
}

// Validate returns an error for invalid options.
func (o *Options) Validate() error {
	switch {
	case o.MaxMemory < 1<<20:
		return fmt.Errorf("--max-memory %d is below 1Mi, which an engine needs at least", o.MaxMemory)
	case o.TotalMemory != 0 && o.TotalMemory < o.MaxMemory:
		return fmt.Errorf("--max-total-memory %d is below --max-memory %d: one execution would never find room", o.TotalMemory, o.MaxMemory)
	case o.MaxWallTime <= 0:
		return errors.New("--max-wall-time must be above 0")
	case o.Concurrency < 1 || o.Concurrency > 1024:
		return errors.New("--max-concurrent must be from 1 to 1024")
	case o.Prefork < 0 || o.Prefork > 64:
		return errors.New("--prefork must be from 0 to 64")
	}
	if o.PprofListen != "" {
		if err := profiles.Check(o.PprofListen); err != nil {
			return fmt.Errorf("--pprof-listen %s: %w", o.PprofListen, err)
		}
	}
	if err := o.Engine.Validate(); err != nil {
		return fmt.Errorf("--engine: %w", err)
	}
	if o.Engine == sandbox.V8 {
		if info, err := os.Stat(o.Deno); err != nil {
			return fmt.Errorf("--deno: %w: the v8 engine is a Deno program, which its image has", err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("--deno: %s is not a program", o.Deno)
		}
	}
	for _, name := range []string{certFile, keyFile, caFile} {
		if _, err := os.Stat(filepath.Join(o.CertDir, name)); err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		}
	}
	return nil
}
