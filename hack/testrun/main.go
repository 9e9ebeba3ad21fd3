// Command testrun runs the tests of one tier and says what came out: one line a package while it runs,
// the output of what failed, and a report that later commands read.
//
//	testrun tier [flags] NAME            run a tier: unit, integration, v8, conformance, e2e, cluster, bench
//	testrun check [flags] NAME -- CMD    run a command that counts as one test, such as a linter
//	testrun all [flags]                  run all tiers, in four lanes, and sum them up; with CI set, what failed gets a second try
//	testrun rows [flags] [ROW...]        one line for each row of the specification
//	testrun sum [flags]                  one line for each tier and the sum over them
//
// It runs `go test` and reads two things: go test's event stream for plain tests, and the JSON reports of
// Ginkgo suites for specs and their labels.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// errFailed means that tests failed, which has been printed already.
var errFailed = errors.New("tests failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errFailed):
		os.Exit(1)
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name a command: tier, check, all, rows or sum")
	}
	switch args[0] {
	case "exec":
		return execTest(args[1:])
	case "tier":
		return tierCommand(ctx, args[1:])
	case "check":
		return checkCommand(ctx, args[1:])
	case "all":
		return allCommand(ctx, args[1:])
	case "rows":
		return rowsCommand(args[1:])
	case "sum":
		return sumCommand(args[1:])
	}
	return fmt.Errorf("no command %q: use tier, check, all, rows or sum", args[0])
}

// reportFlag adds the flag that every command shares.
func reportFlag(f *flag.FlagSet) *string {
	return f.String("reports", "build/reports", "folder of the tiers' reports")
}
