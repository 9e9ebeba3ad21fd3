//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/inuse"
	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/v8"
	"github.com/skein-dev/skein/internal/telemetry/profiles"
)

// Dispatch is for a program that embeds the supervisor. When the first argument is ChildArg, ServeArg, compiler.Arg
// or one of package v8, it runs that and returns the exit code and true. Call it first in main:
//
//	if code, ok := supervisor.Dispatch(os.Args); ok {
//		os.Exit(code)
//	}
func Dispatch(args []string) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case ChildArg:
		return js.ChildMain(args[2:], compilerOfRuns()), true
	case ServeArg:
		return Main(args[2:]), true
	case compiler.Arg:
		return compiler.Main(args[2:]), true
	}
	return v8.Dispatch(args)
}

// compilerOfRuns returns the compiler of children that take runs.
func compilerOfRuns() *js.Compiler {
	return &js.Compiler{
		Compile: compile.Module,
		InUse:   inuse.Bytes,
	}
}

// Main runs a supervisor with command-line arguments and returns the exit code.
func Main(args []string) int {
	o := Defaults()
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	o.Flags(flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sandbox: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
	return 0
}

func run(o Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if o.Lifeline {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	s, err := New(o)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		s.close()
		return fmt.Errorf("--listen: %w", err)
	}
	var health net.Listener
	if o.HealthListen != "" {
		if health, err = net.Listen("tcp", o.HealthListen); err != nil {
			_ = listener.Close()
			s.close()
			return fmt.Errorf("--health-listen: %w", err)
		}
	}
	if o.PprofListen != "" {
		stop, err := serveProfiles(o.PprofListen)
		if err != nil {
			_ = listener.Close()
			s.close()
			return fmt.Errorf("--pprof-listen: %w", err)
		}
		defer stop()
	}
	if o.Announce {
		fmt.Println(listener.Addr())
	}
	logf("listening on %s", listener.Addr())
	if err := s.Serve(ctx, listener, health); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveProfiles serves Go profiles of this process until stop is called, which waits for no reader. Children are other processes.
func serveProfiles(address string) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := profiles.Server()
	go func() { _ = server.Serve(listener) }()
	logf("profiles are served at %s", listener.Addr())
	return func() { _ = server.Close() }, nil
}
