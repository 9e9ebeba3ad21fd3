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
	target     string // a target of make
	check      bool   // a command that counts as one test, rather than one that runs testrun itself
}

// testLanes are all tiers. The tiers of a lane run one after the other, and the lanes run at the same time. Each lane has
// tiers that keep the processors busy and others that wait, for pods and nodes, and for what was stopped to be noticed.
// Those that wait come first, because a lane that waits at the end has nothing beside it. The lanes take about the same time.
// cluster looks for what clusters leave behind, of which e2e has some while it runs, so both have one lane.
var testLanes = [][]laneTier{
	{
		{name: "outages", what: "rows that hold while managers, databases and networks fail", target: "test-outages"},
	},
	{
		{name: "conformance", what: "the rows of the specification, through the public API", target: "test-conformance"},
	},
	{
		{name: "e2e", what: "real pods on a real node", target: "test-e2e"},
		{name: "cluster", what: "the dev cluster itself", target: "test-cluster"},
		{name: "v8", what: "the sandbox's suites on its other engine", target: "test-v8"},
		{name: "verify", what: "generated files, go.mod, formatting", target: "verify", check: true},
		{name: "lint", what: "golangci-lint", target: "lint", check: true},
	},
	{
		{name: "unit", what: "packages that need nothing around them", target: "test-unit"},
		{name: "integration", what: "packages that need a control plane", target: "test-integration"},
	},
}

// errInterrupted means that the user ended the run. The running tiers have cleaned up.
var errInterrupted = errors.New("interrupted")

// allCommand runs all tiers, even when one fails. At the end it prints the rows, one line per tier and the total. In
// CI, failures first get a second try.
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
	compileTests(ctx)
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
	if err := rowsCommand([]string{"-reports", *reports, "-tiers", "conformance,outages,e2e"}); err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	fmt.Printf("\n=== all tiers, %.0fs\n", time.Since(began).Seconds())
	return sumCommand([]string{"-reports", *reports})
}

// announcement says which tiers run at the same time.
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

// laneRun is a run of lanes. mu guards running.
type laneRun struct {
	command func(laneTier) []string
	screen  screen

	mu      sync.Mutex
	running []int // ids of the process groups of the running tiers
}

// runLanes runs the lanes at the same time, whatever the results of their tiers are. When ctx ends, the running tiers
// are interrupted and waited for, no other tier begins, and the error is errInterrupted.
func runLanes(ctx context.Context, out io.Writer, lanes [][]laneTier, command func(laneTier) []string) error {
	r := &laneRun{command: command, screen: screen{out: out}}
	over := make(chan struct{})
	go r.interrupt(ctx, over)
	var all sync.WaitGroup
	for _, lane := range lanes {
		v := r.screen.begin(lane[0].name, lane[0].what) // in the order of the lanes, so that the first one is live first
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

// run runs one tier. Its report has the result.
func (r *laneRun) run(ctx context.Context, t laneTier, v *view, last bool) {
	began := time.Now()
	words := r.command(t)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = v, v
	// Processes that it leaves running must not keep its output open forever.
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

// start starts a tier unless the run has been interrupted, so that an interrupt reaches every tier that begins.
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

// interrupt forwards the end of ctx, and each further signal, until the run is over.
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
