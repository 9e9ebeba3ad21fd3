package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// beat is the time between two plain progress lines, once a build has lasted longer than that.
const beat = 15 * time.Second

// usualSpeed is how many bytes of Go source two processors compile in a second, as measured. The estimate starts with
// it.
const usualSpeed = 350_000

// progress counts what all go builds of one run do, and prints it: on a terminal in one line that is rewritten,
// elsewhere in plain lines.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
	quit     chan struct{}
	over     sync.WaitGroup

	mu         sync.Mutex
	compiling  time.Time // when the first package began
	size       map[string]int64
	begun      map[string]bool
	order      []string // the packages that began, in order
	downloaded int
	said       bool
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, began: time.Now(), quit: make(chan struct{}), size: map[string]int64{}, begun: map[string]bool{}}
	if f, ok := out.(*os.File); ok {
		if i, err := f.Stat(); err == nil && i.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
			p.terminal = true
		}
	}
	p.over.Go(p.run)
	return p
}

// run prints the first line after two seconds, so that short builds print nothing, then soon another, and then one
// every beat.
func (p *progress) run() {
	wait, next := 2*time.Second, 4*time.Second
	if p.terminal {
		wait, next = time.Second, time.Second
	}
	for {
		select {
		case <-p.quit:
			return
		case <-time.After(wait):
			p.say()
		}
		wait = next
		if !p.terminal {
			next = min(2*next, beat)
		}
	}
}

// stop ends the lines. It may be called twice.
func (p *progress) stop() {
	select {
	case <-p.quit:
		return
	default:
	}
	close(p.quit)
	p.over.Wait()
	if p.terminal && p.said {
		fmt.Fprint(p.out, "\r\033[K")
	}
}

func (p *progress) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = true
	line := "==> Build: " + p.text(time.Now())
	if p.terminal {
		fmt.Fprintf(p.out, "\r%s\033[K", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// text returns the progress at a time.
func (p *progress) text(now time.Time) string {
	n, total := len(p.order), len(p.order)
	for path := range p.size {
		if !p.begun[path] {
			total++
		}
	}
	var s string
	switch {
	case n == 0 && len(p.size) == 0:
		s = "looking at what is to be compiled"
	case len(p.size) == 0:
		s = fmt.Sprintf("%d packages", n)
	case n >= total:
		s = fmt.Sprintf("%d packages, linking", n)
	default:
		s = fmt.Sprintf("%d of %d packages", n, total)
	}
	if p.downloaded > 0 {
		s += fmt.Sprintf(", %d modules fetched", p.downloaded)
	}
	s += ", " + clock(now.Sub(p.began)) + " gone"
	switch left := p.left(now); {
	case len(p.size) == 0:
		s += "; where nothing is compiled yet this takes 7 to 15 minutes on two processors"
	case n < total:
		s += ", about " + clock(left) + " left"
	}
	return s
}

// left estimates the remaining time. A package counts by the size of its sources. It counts as done when the next
// ones have begun, because the go tool only reports what it begins.
func (p *progress) left(now time.Time) time.Duration {
	width := jobs()
	var done, total int64
	for i, path := range p.order {
		total += p.size[path]
		if i < len(p.order)-width {
			done += p.size[path]
		}
	}
	for path, size := range p.size {
		if !p.begun[path] {
			total += size
		}
	}
	var spent float64
	if !p.compiling.IsZero() {
		spent = now.Sub(p.compiling).Seconds()
	}
	// The first packages have less code for their size than later ones, so the usual speed counts as much as two minutes.
	const trust = 120
	speed := (usualSpeed*trust + float64(done)) / (trust + spent)
	const linking = 15
	return time.Duration((float64(total-done)/speed + linking) * float64(time.Second))
}

func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// done prints what was done and how long it took.
func (p *progress) done() {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	took := clock(time.Since(p.began))
	switch {
	case len(p.order) > 0:
		fmt.Fprintf(p.out, "==> Build: %d packages compiled, done after %s\n", len(p.order), took)
	case p.said:
		fmt.Fprintf(p.out, "==> Build: done after %s\n", took)
	}
}

// feed reads the output of one go build or go list: a line for each module that it downloads and for each package
// that it begins to compile. It keeps everything else for the error message.
type feed struct {
	p *progress
	// started is closed when the build has begun its last package, or is over.
	started chan struct{}
	// finished is closed when the build is over.
	finished chan struct{}

	part  []byte
	other []string
	want  map[string]int64
	begun map[string]bool
}

func (p *progress) feed() *feed {
	return &feed{p: p, started: make(chan struct{}), finished: make(chan struct{}), begun: map[string]bool{}}
}

// expect sets the packages to compile, by import path.
func (f *feed) expect(sizes map[string]int64) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if sizes == nil {
		return
	}
	f.want = sizes
	for path, size := range sizes {
		f.p.size[path] = size
	}
	f.check()
}

// known reports whether the packages to compile are known.
func (f *feed) known() bool {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.want != nil
}

// finish ends the feed. Packages that did not begin were compiled already.
func (f *feed) finish() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	for path := range f.want {
		if !f.p.begun[path] {
			delete(f.p.size, path)
		}
	}
	shut(f.started)
	shut(f.finished)
}

func shut(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// check closes started once every expected package has begun.
func (f *feed) check() {
	if f.want == nil {
		return
	}
	for path := range f.want {
		if !f.begun[path] {
			return
		}
	}
	shut(f.started)
}

// Write implements io.Writer for the standard error of the go tool.
func (f *feed) Write(b []byte) (int, error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.part = append(f.part, b...)
	for {
		i := bytes.IndexByte(f.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		f.line(string(f.part[:i]))
		f.part = f.part[i+1:]
	}
}

func (f *feed) line(s string) {
	switch {
	case strings.HasPrefix(s, "go: downloading "):
		f.p.downloaded++
	case !strings.ContainsAny(s, " :\t") && s != "": // an import path
		if f.p.compiling.IsZero() {
			f.p.compiling = time.Now()
		}
		f.begun[s] = true
		if !f.p.begun[s] {
			f.p.begun[s] = true
			f.p.order = append(f.p.order, s)
		}
		f.check()
	default:
		f.other = append(f.other, s)
	}
}

// tail returns the last lines that were neither a download nor a package.
func (f *feed) tail() string {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if n := len(f.other); n > 30 {
		f.other = f.other[n-30:]
	}
	return strings.Join(f.other, "\n")
}
