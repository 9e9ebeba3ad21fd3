package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// envTier makes this program a tier that runs until it is interrupted.
const envTier = "TESTRUN_TEST_TIER"

func TestMain(m *testing.M) {
	if os.Getenv(envCommand) != "" {
		main()
		return
	}
	if os.Getenv(envTier) == "" {
		os.Exit(m.Run())
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	fmt.Println(beat + "is under way")
	<-interrupted
	fmt.Println("cleaned up")
}

func TestScreenKeepsTogetherWhatATierSays(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out}
	say := func(v *view, text string) {
		if _, err := v.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	unit := s.begin("unit", "small")
	e2e := s.begin("e2e", "pods")
	say(unit, "unit 1\nunit")
	say(e2e, "e2e 1\n"+beat+"e2e runs\ne2e 2\n")
	say(unit, " 2\n")
	e2e.end("e2e failed", false)
	say(unit, "unit 3")
	cluster := s.begin("cluster", "itself")
	say(cluster, "cluster 1\n")
	unit.end("unit passed", false)
	v8 := s.begin("v8", "other")
	say(v8, "v8 1\n")
	say(cluster, "cluster 2\n")
	v8.end("v8 passed", true)
	say(cluster, "cluster 3\n")
	cluster.end("cluster passed", true)
	want := `
=== unit: small
unit 1
     … e2e runs
unit 2
     … e2e failed; what it said follows unit
unit 3

=== e2e: pods
e2e 1
e2e 2

=== v8: other
v8 1

=== cluster: itself
cluster 1
cluster 2
cluster 3
`
	if out.String() != want {
		t.Errorf("shown:\n%s", out.String())
	}
}

// shell returns the command of each tier: its text for sh.
func shell(scripts map[string]string) func(laneTier) []string {
	return func(t laneTier) []string { return []string{"sh", "-c", scripts[t.name]} }
}

func TestLanesRunBesideEachOther(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	// Opening a pipe waits for its other end, so the second tier of one lane meets the first of the other.
	err := runLanes(ctx, &out, [][]laneTier{{{name: "a1", what: "x"}, {name: "a2", what: "x"}}, {{name: "b1", what: "x"}, {name: "b2", what: "x"}}}, shell(map[string]string{
		"a1": "echo says a1; exit 1",
		"a2": "echo met >" + pipe + "; echo says a2",
		"b1": "cat " + pipe,
		"b2": "echo says b2 >&2",
	}))
	if err != nil {
		t.Fatal(err, out.String())
	}
	if !strings.HasPrefix(out.String(), "\n=== a1: x\n") {
		t.Errorf("not the first lane is shown first:\n%s", out.String())
	}
	for _, want := range []string{"=== a1: x\nsays a1\n", "=== a2: x\nsays a2\n", "=== b1: x\nmet\n", "=== b2: x\nsays b2\n"} {
		var own []string
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, beat) {
				own = append(own, line)
			}
		}
		if !strings.Contains(strings.Join(own, ""), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// watched is output that reports when a text has been printed so many times.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	what string
	left int
	then func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left -= bytes.Count(p, []byte(w.what))
	if w.left <= 0 && w.then != nil {
		w.then()
		w.then = nil
	}
	return w.text.Write(p)
}

func TestAnInterruptEndsAllLanes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &watched{what: "is under way", left: 2, then: cancel}
	// The process below the shell is the one that has something to clean up.
	script := envTier + "=1 '" + os.Args[0] + "'; exit 1"
	err := runLanes(ctx, out, [][]laneTier{{{name: "a1"}, {name: "a2"}}, {{name: "b1"}, {name: "b2"}}}, shell(map[string]string{
		"a1": script, "b1": script, "a2": "echo began", "b2": "echo began",
	}))
	text := out.text.String()
	if !errors.Is(err, errInterrupted) || strings.Count(text, "cleaned up") != 2 || strings.Contains(text, "began") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestEveryTierIsInALane(t *testing.T) {
	var names []string
	for _, lane := range testLanes {
		for _, tier := range lane {
			names = append(names, tier.name)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(tierOrder))) {
		t.Errorf("lanes of %v, a sum of %v", names, tierOrder)
	}
	if want := "=== one after the other: outages; beside them: conformance; beside them: e2e, cluster, v8, verify, lint; beside them: unit, integration"; announcement(testLanes) != want {
		t.Errorf("it says %q", announcement(testLanes))
	}
}
