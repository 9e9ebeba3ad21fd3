package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// beat is the time between two progress lines. Plain lines, no terminal tricks: the same in a terminal and in CI.
const beat = 15 * time.Second

// progress reads what go build -v writes (a line for each downloaded module and each compiled package), counts it,
// and says once every beat how far it is. Everything else is kept for the error message.
type progress struct {
	out   io.Writer
	name  string
	began time.Time

	mu                         sync.Mutex
	part                       []byte
	downloaded, compiled, want int
	other                      []string
	quit                       chan struct{}
}

func newProgress(out io.Writer, name string) *progress {
	fmt.Fprintf(out, "devcluster: building %s (once for each version; minutes on a cold machine)\n", name)
	return &progress{out: out, name: name, began: time.Now()}
}

// start begins the next step. want counts its packages, which downloads their modules on a cold machine.
func (p *progress) start(want func() int) {
	p.mu.Lock()
	p.compiled, p.want, p.quit = 0, 0, make(chan struct{})
	quit := p.quit
	p.mu.Unlock()
	go func() {
		t := time.NewTicker(beat)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				p.say()
			}
		}
	}()
	n := want() // before the build: afterwards less is stale
	p.mu.Lock()
	p.want = n
	p.mu.Unlock()
}

func (p *progress) stop() { close(p.quit) }

func (p *progress) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := fmt.Sprintf("%d packages compiled", p.compiled)
	switch {
	case p.want > 0 && p.compiled >= p.want:
		s = "linking"
	case p.want > 0:
		s = fmt.Sprintf("%d of %d packages compiled", p.compiled, p.want)
	}
	if p.downloaded > 0 {
		s += fmt.Sprintf(", %d modules downloaded", p.downloaded)
	}
	fmt.Fprintf(p.out, "devcluster: %s: %s, %.0f s\n", p.name, s, time.Since(p.began).Seconds())
}

func (p *progress) done() {
	fmt.Fprintf(p.out, "devcluster: %s built in %.0f s\n", p.name, time.Since(p.began).Seconds())
}

// Write takes the output of go build.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.part = append(p.part, b...)
	for {
		i := bytes.IndexByte(p.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		p.line(string(p.part[:i]))
		p.part = p.part[i+1:]
	}
}

func (p *progress) line(s string) {
	switch {
	case strings.HasPrefix(s, "go: downloading "):
		p.downloaded++
	case !strings.ContainsAny(s, " :\t") && s != "": // an import path
		p.compiled++
	default:
		p.other = append(p.other, s)
	}
}

// tail gives the last lines that were neither a download nor a package.
func (p *progress) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.other); n > 30 {
		p.other = p.other[n-30:]
	}
	return strings.Join(p.other, "\n")
}
