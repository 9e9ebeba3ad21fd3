package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// hugePagesSetting says which programs get transparent huge pages.
	hugePagesSetting = "/sys/kernel/mm/transparent_hugepage/enabled"
	// hugePagesMemory is how much memory must be left, because programs use more of it with huge pages.
	hugePagesMemory = 4 << 30
	// slowPage is the time for a page of memory from which on huge pages are worth a change of the machine's setting. Most machines take
	// less than a microsecond. A virtual machine within another one can take 20.
	slowPage = 5 * time.Microsecond
	// envHugePages keeps the setting as it is when its value is 0.
	envHugePages = "SKEIN_HUGE_PAGES"
)

// hugePages gives compilers huge pages on a machine where a page fault is slow. A compiler begins with thousands of pages, and
// there are thousands of compilers.
type hugePages struct {
	setting string               // the file of the setting
	cost    func() time.Duration // returns the time that one page takes
	write   func(name string, data []byte, mode os.FileMode) error
	out     io.Writer
}

// useHugePages changes the setting of this machine if that is worth it and allowed, and returns a function that changes it back.
func useHugePages(out io.Writer) (restore func()) {
	if os.Getenv(envHugePages) == "0" || availableMemory() < hugePagesMemory {
		return func() {}
	}
	return hugePages{hugePagesSetting, pageCost, os.WriteFile, out}.use()
}

// withHugePages runs a command and returns how it ended. It asks the command to end when ctx ends.
func withHugePages(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New("huge-pages needs a command to run")
	}
	defer useHugePages(out)()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	tie(cmd)
	return runTied(cmd)
}

func (h hugePages) use() (restore func()) {
	before := h.mode()
	if before == "" || before == "always" {
		return func() {}
	}
	cost := h.cost()
	if cost < slowPage {
		return func() {}
	}
	why := fmt.Sprintf("==> A page of memory takes %d µs on this machine, where most take less than one", cost.Microseconds())
	if err := h.set("always"); err != nil {
		fmt.Fprintf(h.out, "%s: 'echo always >%s' as root would make this faster\n", why, h.setting)
		return func() {}
	}
	fmt.Fprintf(h.out, "%s: transparent huge pages are set to always meanwhile, and to %s afterwards (%s=0 keeps them as they are)\n", why, before, envHugePages)
	return func() {
		if h.mode() != "always" {
			return // it was changed meanwhile
		}
		if err := h.set(before); err != nil {
			fmt.Fprintf(h.out, "==> Transparent huge pages stay set to always: %v\n", err)
		}
	}
}

// mode returns the setting, or "" where the kernel has none.
func (h hugePages) mode() string {
	b, err := os.ReadFile(h.setting)
	if err != nil {
		return ""
	}
	return chosen(string(b))
}

// chosen returns the mode that the kernel marks: madvise in "always [madvise] never".
func chosen(setting string) string {
	_, rest, _ := strings.Cut(setting, "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}

func (h hugePages) set(mode string) error { return h.write(h.setting, []byte(mode), 0o644) }

// pageCost returns how long it takes to use a page of memory for the first time, at best.
func pageCost() time.Duration {
	const size, rounds = 2 << 20, 3
	page := os.Getpagesize()
	best := time.Hour
	for range rounds {
		b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return 0
		}
		_ = syscall.Madvise(b, syscall.MADV_NOHUGEPAGE) // fails where there are no huge pages
		began := time.Now()
		for i := 0; i < size; i += page {
			b[i] = 1
		}
		best = min(best, time.Since(began)/time.Duration(size/page))
		_ = syscall.Munmap(b)
	}
	return best
}
