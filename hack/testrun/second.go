package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// maxFlaky is how many failures may pass when they run again. More of them mean that something is wrong with the
// tests or the code, not with one moment.
const maxFlaky = 3

// inCI reports whether this is a CI machine. There, one random failure among thousands of tests would reject a change,
// and no one would try again. Anywhere else a failure stays a failure.
func inCI() bool {
	switch os.Getenv("CI") {
	case "", "0", "false":
		return false
	}
	return true
}

// secondTries runs failed tests once more, each alone, when all tiers are over. A test that passes then counts as
// passed and is reported as flaky. Checks, builds and test programs that died get no second try.
type secondTries struct {
	reports string
	out     io.Writer
	// command returns the command that runs what a file selects in a tier, with its reports in another folder.
	command func(t laneTier, only, reports string) []string
}

// try is one second try.
type try struct {
	tier  laneTier
	again again
	name  string
	first []spec // the results of the first run for the tests that the try runs
}

// run gives the failures in the reports their second tries, and updates the reports.
func (t *secondTries) run(ctx context.Context, lanes [][]laneTier) error {
	var tries []*try
	failures := 0
	for _, tier := range slices.Concat(lanes...) {
		r, err := load(t.reports, tier.name)
		if err != nil {
			return err
		}
		if r == nil || tier.check {
			continue
		}
		found := findTries(tier, r)
		for _, f := range found {
			failures += len(f.names())
		}
		tries = append(tries, found...)
	}
	if len(tries) == 0 {
		return nil
	}
	if failures > maxFlaky {
		fmt.Fprintf(t.out, "\n=== no second try: %d tests failed, and at most %d may pass on a second try\n", failures, maxFlaky)
		return nil
	}
	fmt.Fprintf(t.out, "\n=== a second try of what failed, each alone\n")
	for i, f := range tries {
		if err := t.try(ctx, f, filepath.Join(t.reports, "second", strconv.Itoa(i+1))); err != nil {
			return err
		}
	}
	return nil
}

// findTries returns a try for each failure of a tier that gets one. Failures in one ordered container or suite share
// a try.
func findTries(tier laneTier, r *result) []*try {
	var tries []*try
	for _, s := range r.Specs {
		if s.Outcome != failed || s.Again == nil || s.Again.Test == "" ||
			slices.ContainsFunc(tries, func(o *try) bool { return o.again == *s.Again }) {
			continue
		}
		f := &try{tier: tier, again: *s.Again, name: shorten(s.Package) + " " + s.Name}
		for _, o := range r.Specs {
			if o.Again != nil && *o.Again == f.again {
				f.first = append(f.first, o)
			}
		}
		tries = append(tries, f)
	}
	return tries
}

// whole reports whether the suite runs again as a whole.
func (f *try) whole(s spec) bool { return f.again.Focus == "" && s.Name != f.again.Test }

// names returns the names of the flaky tests if the second try passes. A suite that could not be set up counts once.
func (f *try) names() []string {
	var names []string
	for _, s := range f.first {
		if s.Outcome == failed {
			names = append(names, shorten(s.Package)+" "+s.Name)
			if f.whole(s) {
				break
			}
		}
	}
	return names
}

// passed reports whether every failed test ran once more and passed, and nothing that ran with it failed.
func (f *try) passed(second *result) bool {
	if second == nil || second.Failed > 0 || second.Passed == 0 {
		return false
	}
	for _, s := range f.first {
		if s.Outcome == failed && !f.whole(s) && !slices.ContainsFunc(second.Specs, func(o spec) bool {
			return o.Name == s.Name && o.Outcome == passed
		}) {
			return false
		}
	}
	return true
}

func (t *secondTries) try(ctx context.Context, f *try, dir string) error {
	fmt.Fprintf(t.out, "%s%s: %s\n", beat, f.tier.name, f.name)
	only := filepath.Join(dir, "only.json")
	if err := writeAgain(only, &f.again); err != nil {
		return err
	}
	said := &tryOutput{out: t.out}
	if err := runLanes(ctx, said, [][]laneTier{{f.tier}}, func(tier laneTier) []string { return t.command(tier, only, dir) }); err != nil {
		return err
	}
	second, err := load(dir, f.tier.name)
	if err != nil {
		return err
	}
	if !f.passed(second) {
		fmt.Fprintf(t.out, "FAILED AGAIN %s: %s\n--- the second time:\n%s\n", f.tier.name, f.name, said.text.Bytes())
		return nil
	}
	for _, name := range f.names() {
		fmt.Fprintf(t.out, "FLAKY %s: %s\n", f.tier.name, name)
	}
	for _, s := range f.first {
		if s.Outcome == failed {
			fmt.Fprintf(t.out, "--- the first time, it failed:\n%s\n", s.Output)
		}
	}
	fmt.Fprintf(t.out, "--- the second time, alone, it passed:\n%s\n", said.text.Bytes())
	r, err := load(t.reports, f.tier.name)
	if err != nil {
		return err
	}
	return r.after(f, second).save(t.reports)
}

// after returns the result of a tier after a second try that passed.
func (r *result) after(f *try, second *result) *result {
	n := &result{Tier: r.Tier, Seconds: r.Seconds + second.Seconds, Note: r.Note, Flaky: append(r.Flaky, f.names()...)}
	for _, s := range r.Specs {
		if s.Again == nil || *s.Again != f.again {
			n.add(s)
		}
	}
	for _, s := range second.Specs {
		n.add(s)
	}
	return n
}

// tryOutput buffers the output of a second try until its result is known. Lines that say what is still running pass.
type tryOutput struct {
	out  io.Writer
	text bytes.Buffer
}

func (o *tryOutput) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(beat)) {
		return o.out.Write(p)
	}
	return o.text.Write(p)
}

func writeAgain(file string, a *again) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func readAgain(file string) (*again, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	a := &again{}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return a, nil
}
