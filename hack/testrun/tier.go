package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tierOptions are the flags of the tier command.
type tierOptions struct {
	reports  string
	filter   string
	timeout  time.Duration
	parallel int
	race     bool
	verbose  bool
	skip     string
	// only limits the tier to what gets a second try.
	only *again
	// modules are the folders of other modules of this repository, whose packages all belong to the tier.
	modules  []string
	patterns []string
}

// onScratch are the tiers whose tests may write to memory. Benchmarks and tests that run on a node use the disk.
var onScratch = map[string]bool{"unit": true, "integration": true, "v8": true, "conformance": true, "outages": true}

func tierCommand(ctx context.Context, args []string) error {
	var o tierOptions
	f := flag.NewFlagSet("tier", flag.ContinueOnError)
	reports := reportFlag(f)
	f.StringVar(&o.filter, "label-filter", "", "Ginkgo label filter; packages without Ginkgo specs are left out then")
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "time limit of one package")
	f.IntVar(&o.parallel, "p", 2, "packages that are built and run at once")
	f.BoolVar(&o.race, "race", false, "run with the race detector")
	f.BoolVar(&o.verbose, "v", false, "print all output")
	f.StringVar(&o.skip, "skip-because", "", "do not run the tests: count them as skipped for this reason")
	f.Func("only", "file that says which tests get a second try; no others run", func(file string) (err error) {
		o.only, err = readAgain(file)
		return err
	})
	f.Func("C", "folder of another Go module, all of whose packages make up the tier; can be repeated", func(dir string) error {
		o.modules = append(o.modules, dir)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return errors.New("tier: name the tier: unit, integration, v8, conformance, outages, e2e or bench")
	}
	var err error
	if o.reports, err = filepath.Abs(*reports); err != nil {
		return err
	}
	o.patterns = f.Args()[1:]
	if onScratch[f.Arg(0)] {
		remove, err := memoryFolder()
		if err != nil {
			return err
		}
		defer remove()
	}
	r, err := runTier(ctx, f.Arg(0), &o)
	if err != nil {
		return err
	}
	if err := r.save(o.reports); err != nil {
		return err
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped in %.0fs\n", r.Tier, r.Passed, r.Failed, r.Skipped, r.Seconds)
	if r.Failed > 0 {
		return errFailed
	}
	return nil
}

func runTier(ctx context.Context, tier string, o *tierOptions) (*result, error) {
	began := time.Now()
	suites := filepath.Join(o.reports, tier)
	if err := os.RemoveAll(suites); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(suites, 0o755); err != nil {
		return nil, err
	}
	r := &result{Tier: tier, Note: o.skip}
	modules := o.modules
	if len(modules) == 0 {
		modules = []string{"."}
	}
	for _, dir := range modules {
		packages, err := listPackages(ctx, dir, o.patterns)
		if err != nil {
			return nil, err
		}
		if len(o.modules) == 0 {
			packages = slices.DeleteFunc(packages, func(p testPackage) bool { return !p.in(tier) })
		}
		if o.filter != "" || o.skip != "" {
			packages = slices.DeleteFunc(packages, func(p testPackage) bool { return !p.Ginkgo })
		}
		if o.only != nil {
			packages = slices.DeleteFunc(packages, func(p testPackage) bool { return p.Path != o.only.Package })
		}
		if len(packages) == 0 && o.only == nil {
			fmt.Printf("%s: no package has tests of this tier\n", tier)
		}
		if len(packages) == 0 {
			continue
		}
		if err := goTest(ctx, r, dir, packages, suites, o); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// goTest runs go test for the packages and adds the results to r.
func goTest(ctx context.Context, r *result, dir string, packages []testPackage, suites string, o *tierOptions) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"test", "-json", "-count=1", "-p", strconv.Itoa(o.parallel), "-timeout", o.timeout.String(), "-exec", self + " exec"}
	if o.race {
		args = append(args, "-race")
	} else {
		args = append(args, "-ldflags=-s -w") // linking a hundred suites without debug information takes a quarter less time
	}
	if len(o.modules) == 0 {
		args = append(args, "-vet=off") // the linter vets the main module
	}
	var folders []string
	isSuite := map[string]string{}
	for _, p := range packages {
		args = append(args, p.Path)
		if p.Ginkgo {
			folders = append(folders, p.Dir)
			isSuite[p.Path] = suiteReport(suites, p.Dir)
		}
	}
	flags := []string{"-ginkgo.no-color", "-ginkgo.timeout=" + suiteTimeout(o.timeout).String()}
	if o.filter != "" {
		flags = append(flags, "-ginkgo.label-filter="+o.filter)
	}
	if o.skip != "" {
		flags = append(flags, "-ginkgo.dry-run")
	}
	if o.verbose || o.only != nil {
		flags = append(flags, "-ginkgo.v")
	}
	if o.only != nil {
		args = append(args, "-run", "^"+o.only.Test+"$")
		flags = append(flags, o.only.ginkgoFlags()...)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// An interrupt reaches go test and the suites too, so that they clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Minute
	cmd.Env = append(os.Environ(), envSuites+"="+strings.Join(folders, "\n"), envReports+"="+suites, envFlags+"="+strings.Join(flags, "\n"))
	cmd.Env = append(cmd.Env, compilerEnv(availableMemory())...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s := &stream{tier: r.Tier, out: os.Stdout, verbose: o.verbose || o.only != nil, runs: map[string]*packageRun{}, builds: map[string]*strings.Builder{}}
	s.finish = func(pkg string, run *packageRun, bad bool) (string, bool) {
		return collect(r, pkg, isSuite[pkg], run, bad, o.skip != "")
	}
	stop := make(chan struct{})
	go s.heartbeat(30*time.Second, len(packages), stop)
	readErr := s.read(pipe)
	waitErr := cmd.Wait()
	close(stop)
	if readErr != nil {
		return readErr
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if waitErr != nil && r.Failed == 0 {
		// go test failed and no package reports why. Count it, so that it is not lost.
		r.add(spec{Name: "go test: " + waitErr.Error(), Outcome: failed})
	}
	return nil
}

// suiteTimeout returns the time limit of a suite whose package has this limit. Without a limit of its own, a suite ends after an
// hour. It ends before its package, which would end without a report.
func suiteTimeout(limit time.Duration) time.Duration { return limit - limit/30 }

// collect adds the tests of one package to the result and returns a note for its line.
func collect(r *result, pkg, report string, run *packageRun, bad, dry bool) (string, bool) {
	before := *r
	add := func(t spec) {
		// When the program died, it skipped tests, for which a second try of one test does not make up.
		if bad && !run.whole {
			t.Again = nil
		}
		r.add(t)
	}
	for _, t := range run.plain {
		if !run.suites[t.Name] {
			add(t)
		}
	}
	if report != "" {
		specs, err := readSuite(report, pkg)
		if err != nil && len(run.suites) > 0 {
			specs = []spec{{Package: pkg, Name: "the suite died before its report", Outcome: failed}}
		}
		for _, s := range specs {
			if dry {
				s.Outcome = skipped
			}
			for suite := range run.suites {
				if s.Again != nil {
					s.Again.Test = suite
				}
			}
			add(s)
		}
	}
	if bad && r.Failed == before.Failed {
		r.add(spec{Package: pkg, Name: "the package", Outcome: failed})
	}
	return tally(r.Passed-before.Passed, r.Failed-before.Failed, r.Skipped-before.Skipped), r.Failed > before.Failed
}

func tally(p, f, s int) string {
	parts := []string{fmt.Sprintf("%d passed", p)}
	if f > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", f))
	}
	if s > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", s))
	}
	return strings.Join(parts, ", ")
}
