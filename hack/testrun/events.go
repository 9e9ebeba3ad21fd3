package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of `go test -json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // in build events
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// packageRun is what is known about a package while its tests run.
type packageRun struct {
	started time.Time
	output  strings.Builder
	plain   []spec                      // top-level test functions that have ended
	suites  map[string]bool             // test functions that run a Ginkgo suite
	tests   map[string]*strings.Builder // the output of top-level test functions
	// whole means that the test program reached its end after a failure. A program that died has skipped tests.
	whole bool
}

// stream follows go test's events and prints a line when a package ends.
type stream struct {
	tier    string
	out     io.Writer
	verbose bool
	// finish is called when a package has ended. It returns the last part of the line and whether the package failed.
	finish func(pkg string, run *packageRun, failed bool) (note string, bad bool)

	mu     sync.Mutex
	runs   map[string]*packageRun
	builds map[string]*strings.Builder
	done   int
}

func (s *stream) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) line(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil {
		// go test prints some errors as plain text.
		_, _ = s.out.Write(line)
		return
	}
	switch e.Action {
	case "build-output":
		s.build(e.ImportPath).WriteString(e.Output)
		return
	case "build-fail":
		return
	}
	p := s.run(e.Package)
	switch e.Action {
	case "start":
		p.started = time.Now()
	case "output":
		s.output(p, &e)
	case "pass", "fail", "skip":
		s.ended(p, &e)
	}
}

func (s *stream) output(p *packageRun, e *event) {
	if e.Test != "" && strings.HasPrefix(e.Output, "Running Suite: ") {
		p.suites[e.Test] = true
	}
	if e.Test == "" && e.Output == "FAIL\n" {
		p.whole = true
	}
	p.output.WriteString(e.Output)
	if e.Test != "" {
		p.test(e.Test).WriteString(e.Output)
	}
	if s.verbose {
		_, _ = io.WriteString(s.out, e.Output)
	}
}

func (s *stream) ended(p *packageRun, e *event) {
	if e.Test != "" {
		// Only top-level functions are counted, because a subtest is part of one.
		if !strings.Contains(e.Test, "/") {
			o := map[string]string{"pass": passed, "fail": failed, "skip": skipped}[e.Action]
			t := spec{Package: e.Package, Name: e.Test, Outcome: o, Seconds: e.Elapsed}
			if o == failed {
				t.Output = shortOutput(p.test(e.Test).String())
				t.Again = &again{Package: e.Package, Test: e.Test}
			}
			p.plain = append(p.plain, t)
		}
		return
	}
	if e.FailedBuild != "" {
		p.output.WriteString(s.build(e.FailedBuild).String())
	}
	note, bad := s.finish(e.Package, p, e.Action == "fail")
	verdict := "ok  "
	if bad {
		verdict = "FAIL"
		if !s.verbose {
			_, _ = io.WriteString(s.out, p.output.String())
		}
	}
	fmt.Fprintf(s.out, "%s %s (%s, %.1fs)\n", verdict, shorten(e.Package), note, e.Elapsed)
	delete(s.runs, e.Package)
	s.done++
}

func (s *stream) run(pkg string) *packageRun {
	p := s.runs[pkg]
	if p == nil {
		p = &packageRun{started: time.Now(), suites: map[string]bool{}, tests: map[string]*strings.Builder{}}
		s.runs[pkg] = p
	}
	return p
}

// test returns the output of a test function, including its subtests.
func (p *packageRun) test(name string) *strings.Builder {
	name, _, _ = strings.Cut(name, "/")
	b := p.tests[name]
	if b == nil {
		b = &strings.Builder{}
		p.tests[name] = b
	}
	return b
}

func (s *stream) build(pkg string) *strings.Builder {
	b := s.builds[pkg]
	if b == nil {
		b = &strings.Builder{}
		s.builds[pkg] = b
	}
	return b
}

// heartbeat prints regularly what is still running, so that a long tier never seems to hang.
func (s *stream) heartbeat(every time.Duration, total int, stop <-chan struct{}) {
	began := time.Now()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		s.mu.Lock()
		var running []string
		for pkg, p := range s.runs {
			running = append(running, fmt.Sprintf("%s %.0fs", shorten(pkg), time.Since(p.started).Seconds()))
		}
		slices.Sort(running)
		what := "compiling"
		if len(running) > 0 {
			what = "running " + strings.Join(running, ", ")
		}
		fmt.Fprintf(s.out, beat+"%s %.0fs: %d of %d packages done, %s\n", s.tier, time.Since(began).Seconds(), s.done, total, what)
		s.mu.Unlock()
	}
}

func shorten(pkg string) string { return strings.TrimPrefix(pkg, module+"/") }
