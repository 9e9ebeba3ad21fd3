package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Variables that the tier command passes to the exec command, which go test runs in place of each test program.
const (
	envSuites  = "TESTRUN_SUITES"  // folders of packages that are Ginkgo suites, one per line
	envReports = "TESTRUN_REPORTS" // the folder for their reports
	envFlags   = "TESTRUN_FLAGS"   // further flags for them, one per line
)

// execTest becomes the test program. Only Ginkgo suites know Ginkgo's flags, and go test cannot pass a flag to some
// packages only, so the flags are added here.
func execTest(args []string) error {
	if len(args) == 0 {
		return errors.New("exec: name a test program")
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if slices.Contains(strings.Split(os.Getenv(envSuites), "\n"), dir) {
		args = append(args, "-ginkgo.json-report="+suiteReport(os.Getenv(envReports), dir))
		if extra := os.Getenv(envFlags); extra != "" {
			args = append(args, strings.Split(extra, "\n")...)
		}
	}
	if err := syscall.Exec(args[0], args, withoutCompilerEnv(os.Environ())); err != nil {
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	return nil
}

// suiteReport returns the file for the report of the suite in a folder.
func suiteReport(reports, dir string) string {
	return filepath.Join(reports, strings.ReplaceAll(strings.Trim(dir, "/"), "/", "_")+".json")
}
