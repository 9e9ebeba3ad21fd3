//go:build linux && (amd64 || arm64)

package js

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/lockdown"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// ChildOptions are the arguments of a child process. Args formats them, and ChildMain parses them.
type ChildOptions struct {
	AddressSpace uint64 // bytes; 0 means no limit
	Data         uint64 // bytes of writable memory; 0 means no limit
	Unconfined   bool   // no seccomp filter; only where the kernel has none and the operator allowed it
	Program      bool   // file descriptor 3 is the program
	Images       bool   // the next file descriptor is the file with the images
	MakeImages   bool   // make the images in that file, and end
	Compiler     bool   // be ready to compile a run
	// Kind is the only kind of isolate that the child is for; 0 means any.
	Kind  protocol.Kind
	Check bool // write Release to standard output and end
}

// Args returns the options as arguments.
func (o ChildOptions) Args() []string {
	return []string{
		fmt.Sprintf("--address-space=%d", o.AddressSpace),
		fmt.Sprintf("--data=%d", o.Data),
		fmt.Sprintf("--unconfined=%t", o.Unconfined),
		fmt.Sprintf("--program=%t", o.Program),
		fmt.Sprintf("--images=%t", o.Images),
		fmt.Sprintf("--make-images=%t", o.MakeImages),
		fmt.Sprintf("--compiler=%t", o.Compiler),
		fmt.Sprintf("--kind=%d", o.Kind),
		fmt.Sprintf("--check=%t", o.Check),
	}
}

// maxStack bounds the recursion of the compiler and the engine. It is enough for every depth that the engine allows,
// and far below what the process may use.
const maxStack = 192 << 20

// compileStack is the part of maxStack for the compiler: enough for sources that nest some thousand levels.
const compileStack = 24 << 20

// ChildArg is the first argument with which a program that has this package starts as a child.
const ChildArg = "sandbox-child"

// ChildMain runs a child from start to end: it prepares an engine, locks the process down, sends Ready, executes one
// Open, and ends. It returns the exit code. A program without a compiler, for which it is nil, takes only code that comes compiled.
func ChildMain(args []string, compiler *Compiler) int {
	var o ChildOptions
	var kind uint
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	flags.Uint64Var(&o.AddressSpace, "address-space", 0, "bytes that the process may map")
	flags.Uint64Var(&o.Data, "data", 0, "bytes of writable memory")
	flags.BoolVar(&o.Unconfined, "unconfined", false, "run without a seccomp filter")
	flags.BoolVar(&o.Program, "program", false, "file descriptor 3 is the program")
	flags.BoolVar(&o.Images, "images", false, "the next file descriptor is the file with the images of engines")
	flags.BoolVar(&o.MakeImages, "make-images", false, "make the images in that file, and end")
	flags.UintVar(&kind, "kind", 0, "the only kind of isolate, as a number of the protocol")
	flags.BoolVar(&o.Compiler, "compiler", false, "be ready to compile")
	flags.BoolVar(&o.Check, "check", false, "write the versions of the protocol, and what the children of this program take, and end")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	o.Kind = protocol.Kind(kind)
	if err := child(o, compiler); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox child:", err)
		return 1
	}
	return 0
}

// Release returns the versions of the protocol, and what children of this release take. A supervisor uses another program only if it says the same.
func Release() string { return protocol.Versions() + "compiled runs, images in place\n" }

func child(o ChildOptions, compiler *Compiler) error {
	if o.Check {
		_, err := os.Stdout.WriteString(Release())
		return err
	}
	debug.SetMaxStack(maxStack)
	// When the pod runs out of memory, the kernel must kill a child, never the supervisor.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)

	file, err := imagesFile(o)
	if err != nil {
		return err
	}
	if o.MakeImages {
		if err := lock(o); err != nil {
			return err
		}
		return MakeImages(file, o.Kind)
	}
	var images Images
	if o.Images {
		images = MapImages(file)
		if err := unix.Close(file); err != nil {
			return fmt.Errorf("images: %w", err)
		}
	}
	var vm *qjs.VM // from an image, once it is known what for
	if images == (Images{}) {
		if vm, err = qjs.New(); err != nil {
			return err
		}
	}
	if o.Compiler {
		// Compile something now, so that the compiler does not build its tables during a run.
		warm := protocol.Module{Name: "warm.ts", Form: protocol.FormTypeScript, Source: "export default (a: number): number => a"}
		if _, failed := compiler.Compile(warm); failed != nil {
			return failed
		}
	}
	in, err := pollable(os.Stdin)
	if err != nil {
		return err
	}
	if err := lock(o); err != nil {
		return err
	}
	conn := protocol.NewConn(in, os.Stdout, nil)
	if err := conn.Write(protocol.TypeReady, nil); err != nil {
		return err
	}
	err = Serve(vm, conn, images, compiler)
	if errors.Is(err, io.EOF) {
		return nil // the child was never used
	}
	return err
}

// pollable returns a file whose reads wait in the runtime's poller. A read that waits in the kernel would keep the only processor of the
// runtime (GOMAXPROCS) from the engine, until the runtime notices.
func pollable(f *os.File) (*os.File, error) {
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return os.NewFile(f.Fd(), f.Name()), nil
}

func lock(o ChildOptions) error {
	limits := lockdown.Limits{AddressSpace: o.AddressSpace, Data: o.Data}
	if o.Unconfined {
		return lockdown.ApplyLimits(limits)
	}
	return lockdown.Apply(limits)
}

// imagesFile returns the descriptor of the file with the images, which the supervisor shares with its children, and closes the program.
func imagesFile(o ChildOptions) (int, error) {
	fd := 3
	if o.Program {
		if err := unix.Close(fd); err != nil {
			return 0, fmt.Errorf("the program: %w", err)
		}
		fd++
	}
	return fd, nil
}
