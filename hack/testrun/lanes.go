package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// laneTier is a tier as the all command runs it.
type laneTier struct {
	name, what string
	target     string // of make
	check      bool   // a command that counts as one test, not one that runs testrun itself
}

// testLanes are all tiers. Those of a lane run one after the other, the lanes beside each other: the first keeps the processors
// busy; the second waits for pods and nodes most of its time, and would be done too early without the integration tier.
var testLanes = [][]laneTier{
	{
		{name: "verify", what: "generated files, go.mod, formatting", target: "verify", check: true},
		{name: "lint", what: "golangci-lint", target: "lint", check: true},
		{name: "unit", what: "packages that need nothing around them", target: "test-unit"},
		{name: "v8", what: "the sandbox's suites on its other engine", target: "test-v8"},
		{name: "conformance", what: "the rows of the specification, through the public API", target: "test-conformance"},
	},
	{
		{name: "e2e", what: "real pods on a real node", target: "test-e2e"},
		{name: "cluster", what: "the dev cluster itself", target: "test-cluster"},
		{name: "integration", what: "packages that need a control plane", target: "test-integration"},
	},
}

// errInterrupted says that the user ended the run; what was under way has cleaned up.
var errInterrupted = errors.New("interrupted")

// allCommand runs all tiers, all of them even when one fails, and prints last the rows, one line a tier and the sum. In CI, what
// failed gets a second try before that.
func allCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("all", flag.ContinueOnError)
	reports := reportFlag(f)
	mk := f.String("make", "make", "the make program")
	spent := f.Duration("spent", 0, "what building before took")
	if err := f.Parse(args); err != nil {
		return err
	}
	began := time.Now().Add(-*spent)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := func(t laneTier) []string {
		words := []string{*mk, "--no-print-directory", t.target}
		if t.check {
			words = append([]string{self, "check", "-reports", *reports, t.name, "--"}, words...)
		}
		return words
	}
	fmt.Println(announcement(testLanes))
	if err := runLanes(ctx, os.Stdout, testLanes, command); err != nil {
		return err
	}
	if inCI() {
		tries := secondTries{reports: *reports, out: os.Stdout, command: func(t laneTier, only, reports string) []string {
			return append(command(t), "ONLY="+only, "REPORTS="+reports)
		}}
		if err := tries.run(ctx, testLanes); err != nil {
			return err
		}
	}
	fmt.Println("\n=== the rows of the specification")
	if err := rowsCommand([]string{"-reports", *reports, "-tiers", "conformance,e2e"}); err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	fmt.Printf("\n=== all tiers, %.0fs\n", time.Since(began).Seconds())
	return sumCommand([]string{"-reports", *reports})
}

// announcement says what runs beside what.
func announcement(lanes [][]laneTier) string {
	var parts []string
	for _, lane := range lanes {
		var names []string
		for _, t := range lane {
			names = append(names, t.name)
		}
		parts = append(parts, strings.Join(names, ", "))
	}
	return "=== one after the other: " + strings.Join(parts, "; beside them: ")
}

// laneRun is a run of lanes.
type laneRun struct {
	command func(laneTier) []string
	screen  screen

	mu      sync.Mutex
	running []int // ids of the process groups of the tiers under way
}

// runLanes runs the lanes beside each other, whatever their tiers come to. When ctx ends, the tiers under way are interrupted and
// waited for, and no other begins; the error is errInterrupted then.
func runLanes(ctx context.Context, out io.Writer, lanes [][]laneTier, command func(laneTier) []string) error {
	r := &laneRun{command: command, screen: screen{out: out}}
	over := make(chan struct{})
	go r.interrupt(ctx, over)
	var all sync.WaitGroup
	for _, lane := range lanes {
		v := r.screen.begin(lane[0].name, lane[0].what) // in the order of the lanes: the first one is live at first
		all.Go(func() {
			for i, t := range lane {
				if i > 0 {
					if ctx.Err() != nil {
						return
					}
					v = r.screen.begin(t.name, t.what)
				}
				r.run(ctx, t, v, i == len(lane)-1)
			}
		})
	}
	all.Wait()
	close(over)
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// run runs one tier. What it comes to is in its report.
func (r *laneRun) run(ctx context.Context, t laneTier, v *view, last bool) {
	began := time.Now()
	words := r.command(t)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = v, v
	// What it leaves running must not keep its output open for ever.
	cmd.WaitDelay = time.Minute
	// An interrupt goes to all of its processes, so that each cleans up, and only once to each.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.start(ctx, cmd); err != nil {
		fmt.Fprintf(v, "%s: %v\n", t.name, err)
		v.end(fmt.Sprintf("%s did not start", t.name), last)
		return
	}
	err := cmd.Wait()
	r.ended(cmd)
	verdict := "passed"
	if err != nil {
		verdict = "failed"
	}
	v.end(fmt.Sprintf("%s %s after %.0fs", t.name, verdict, time.Since(began).Seconds()), last)
}

// start starts a tier unless the run has been interrupted: a tier that begins is one that an interrupt reaches.
func (r *laneRun) start(ctx context.Context, cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.running = append(r.running, cmd.Process.Pid)
	return nil
}

func (r *laneRun) ended(cmd *exec.Cmd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(group int) bool { return group == cmd.Process.Pid })
}

// interrupt passes on that ctx has ended, and each further signal, until the run is over.
func (r *laneRun) interrupt(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	for {
		r.mu.Lock()
		for _, group := range r.running {
			_ = syscall.Kill(-group, syscall.SIGINT)
		}
		r.mu.Unlock()
		select {
		case <-over:
			return
		case <-again:
		}
	}
}
