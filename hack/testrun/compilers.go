package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// envCompilers names the variables that are for go test and its compilers, and not for the test programs.
const envCompilers = "TESTRUN_COMPILERS"

// Up to how many bytes a compiler uses before it collects garbage, and how many may run at the same time in all lanes.
const (
	compilerMost  = 2 << 30
	compilerLeast = 1 << 30
	compilersMost = 8
)

// compilerEnv returns variables with which compilers and linkers take less of the processors: each has one thread, and where there is
// memory for it, they collect no garbage (docs/adr/0037-cold-builds.md). What the caller has set stays.
func compilerEnv(available uint64) []string {
	var env, names []string
	set := func(name, value string) {
		if os.Getenv(name) == "" {
			env, names = append(env, name+"="+value), append(names, name)
		}
	}
	set("GOMAXPROCS", "1")
	if limit := min(available/compilersMost, compilerMost); limit >= compilerLeast && os.Getenv("GOMEMLIMIT") == "" {
		set("GOGC", "off")
		set("GOMEMLIMIT", fmt.Sprint(limit))
	}
	return append(env, envCompilers+"="+strings.Join(names, ","))
}

// withoutCompilerEnv returns an environment without the variables that compilerEnv has set.
func withoutCompilerEnv(env []string) []string {
	drop := map[string]bool{envCompilers: true}
	for _, entry := range env {
		if names, ok := strings.CutPrefix(entry, envCompilers+"="); ok {
			for name := range strings.SplitSeq(names, ",") {
				drop[name] = true
			}
		}
	}
	var kept []string
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); !drop[name] {
			kept = append(kept, entry)
		}
	}
	return kept
}

// compileTests compiles all tests of the main module, and links none. Without it, each lane would compile what its tests share with those
// of the others. What does not compile is reported by the tier that it belongs to.
func compileTests(ctx context.Context) {
	if os.Getenv("RACE") != "" {
		return // the tiers compile with another flag
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-test", "-export", "-f", "", fmt.Sprint("-p=", runtime.NumCPU()), "./...")
	cmd.Env = append(os.Environ(), compilerEnv(availableMemory())...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Run()
	}()
	for {
		select {
		case <-done:
			fmt.Printf("==> Compile the tests (%.0fs)\n", time.Since(began).Seconds())
			return
		case <-time.After(15 * time.Second):
			fmt.Printf("==> Compile the tests … %.0fs\n", time.Since(began).Seconds())
		}
	}
}
