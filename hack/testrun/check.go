package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// checkCommand runs a command that is one test, such as verify and lint.
func checkCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	reports := reportFlag(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() < 3 || f.Arg(1) != "--" {
		return errors.New("check: give a name, -- and a command")
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, f.Arg(2), f.Args()[3:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	runErr := cmd.Run()
	r := &result{Tier: f.Arg(0), Seconds: time.Since(began).Seconds()}
	s := spec{Name: f.Arg(0), Outcome: passed, Seconds: r.Seconds}
	if runErr != nil {
		s.Outcome = failed
	}
	r.add(s)
	if err := r.save(*reports); err != nil {
		return err
	}
	fmt.Printf("%s: %s in %.0fs\n", r.Tier, s.Outcome, r.Seconds)
	if runErr != nil {
		return errFailed
	}
	return nil
}
