package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// command says how the go tool is called: where, and with which build flags.
type command struct {
	dir   string
	work  string // the go.work file; empty means none
	cgo   bool
	flags []string
}

// compile runs go build.
func (b *builder) compile(ctx context.Context, c command, out string, pkgs []string, f *feed) error {
	args := append([]string{"build", "-v", "-p=" + strconv.Itoa(jobs()), "-o", out}, c.flags...)
	cmd := b.goCommand(ctx, c, append(args, pkgs...)...)
	if os.Getenv("GOMAXPROCS") == "" && jobs() >= runtime.NumCPU() {
		// Each processor has a compiler to run. Threads of one would only take time from another.
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	cmd.Stderr = f
	running := make(chan struct{})
	defer close(running)
	go func() {
		// A build with nothing to do ends before its size is known.
		select {
		case <-running:
		case <-time.After(1500 * time.Millisecond):
			if !f.known() {
				f.expect(b.toCompile(ctx, c, pkgs, f))
			}
		}
	}()
	if err := runTied(cmd); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("go build: %w\n%s", err, f.tail())
	}
	return nil
}

// toCompile returns the packages to compile with the sizes of their sources, or nil when that is unknown.
func (b *builder) toCompile(ctx context.Context, c command, pkgs []string, f *feed) map[string]int64 {
	args := append([]string{"list", "-e", "-deps", "-f", `{{if .Stale}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "\t"}}{{end}}`}, c.flags...)
	cmd := b.goCommand(ctx, c, append(args, pkgs...)...)
	cmd.Stderr = f
	if os.Getenv("GOMAXPROCS") == "" {
		// The go tool fetches as many modules at a time. That is waiting for the network for the most part.
		cmd.Env = append(cmd.Env, "GOMAXPROCS=16")
	}
	out, err := outputTied(cmd)
	if err != nil {
		return nil
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) < 3 {
			continue
		}
		for _, name := range fields[2:] {
			if i, err := os.Stat(filepath.Join(fields[1], name)); err == nil {
				sizes[fields[0]] += i.Size()
			}
		}
	}
	return sizes
}

// The flags with which the Makefile compiles too, so that all share the build cache. The programs are linked without debug
// information, and the compiler spends a tenth of its time on it. Without paths, two clones share what they compile.
const (
	noDebugInformation = "-gcflags=all=-dwarf=false"
	noPaths            = "-trimpath"
)

// goCommand returns a command of the go tool, without settings for the caller's own work.
func (b *builder) goCommand(ctx context.Context, c command, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	work, enabled := "off", "0"
	if c.work != "" {
		work = c.work
	}
	if c.cgo {
		enabled = "1"
	}
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false "+noPaths+" "+noDebugInformation, "GOWORK="+work, "GOOS=", "GOARCH=", "CGO_ENABLED="+enabled)
	if limit := compilerMemory(availableMemory(), jobs()); limit != 0 && os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		cmd.Env = append(cmd.Env, "GOGC=off", fmt.Sprint("GOMEMLIMIT=", limit))
	}
	tie(cmd)
	return cmd
}

// compilerMemory returns up to how many bytes a compiler may use before it collects garbage, or 0 when it is to collect as usual. The
// compiler is a Go program that spends a sixth of its time on that, and most packages need less than 2 GiB without any. Two builds may run at
// once, with a go tool and a linker.
func compilerMemory(available int64, jobs int) int64 {
	limit := min(available/int64(2*jobs+1), 2<<30)
	if limit < 1<<30 {
		return 0
	}
	return limit
}

// jobs returns how many packages are compiled at the same time: $JOBS, or two.
func jobs() int {
	if j, err := strconv.Atoi(os.Getenv("JOBS")); err == nil && j > 0 {
		return j
	}
	return 2
}

// explain adds the error output of a failed command to its error.
func explain(err error) error {
	var x *exec.ExitError
	if errors.As(err, &x) && len(x.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(x.Stderr)))
	}
	return err
}
