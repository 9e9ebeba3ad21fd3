package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// tierOrder is the order in which tiers run and are listed.
var tierOrder = []string{"verify", "lint", "unit", "integration", "v8", "conformance", "outages", "e2e", "cluster"}

// sumCommand prints a line for each tier and, last, the total.
func sumCommand(args []string) error {
	f := flag.NewFlagSet("sum", flag.ContinueOnError)
	reports := reportFlag(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	var results []*result
	for _, t := range tierOrder {
		r, err := load(*reports, t)
		if err != nil {
			return err
		}
		if r == nil {
			// A tier without a report did not get as far as running its tests.
			r = &result{Tier: t, Failed: 1, Note: "left no report: see its output above"}
		}
		results = append(results, r)
	}
	if printSum(os.Stdout, results) > 0 {
		return errFailed
	}
	return nil
}

func printSum(out io.Writer, results []*result) int {
	var sum result
	for _, r := range results {
		sum.Passed += r.Passed
		sum.Failed += r.Failed
		sum.Skipped += r.Skipped
		sum.Seconds += r.Seconds
		for _, s := range r.Specs {
			if s.Outcome == failed {
				fmt.Fprintf(out, "FAILED %s: %s %s\n", r.Tier, shorten(s.Package), s.Name)
			}
		}
		for _, name := range r.Flaky {
			fmt.Fprintf(out, "FLAKY %s: %s (failed, then passed alone: see both outputs above)\n", r.Tier, name)
		}
	}
	for _, r := range results {
		fmt.Fprintf(out, "%-12s %5d passed %4d failed %4d skipped %6.0fs  %s\n", r.Tier, r.Passed, r.Failed, r.Skipped, r.Seconds, r.Note)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", sum.Passed, sum.Failed, sum.Skipped)
	return sum.Failed
}
