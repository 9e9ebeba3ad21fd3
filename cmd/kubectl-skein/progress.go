package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// progressDelay is how long a transfer takes before its progress is shown.
	progressDelay = time.Second
	// progressPeriod is how often the line is drawn again.
	progressPeriod = 200 * time.Millisecond
	// progressBar is the width of a bar.
	progressBar = 24
)

// progress shows how much of a transfer is done, in one line of a terminal.
type progress struct {
	out   io.Writer
	what  string
	total int64 // 0 when it is not known
	began time.Time
	count atomic.Int64
	stop  func()
}

// progress begins to show a transfer of total bytes, or of an unknown number when it is 0. Where the standard error is not a
// terminal it shows nothing. Call stop when the transfer has ended.
func (p *plugin) progress(what string, total int64) *progress {
	if !isTerminal(p.ErrOut) || os.Getenv("TERM") == "dumb" {
		return newProgress(io.Discard, what, total, nil, nil)
	}
	ticker := time.NewTicker(progressPeriod)
	return newProgress(p.ErrOut, what, total, ticker.C, ticker.Stop)
}

func newProgress(out io.Writer, what string, total int64, ticks <-chan time.Time, tidy func()) *progress {
	g := &progress{out: out, what: what, total: total, began: time.Now()}
	ended, drawn := make(chan struct{}), make(chan bool, 1)
	go func() {
		shown := false
		defer func() { drawn <- shown }()
		for {
			select {
			case now := <-ticks:
				if now.Sub(g.began) >= progressDelay {
					fmt.Fprintf(g.out, "\r%s\x1b[K", g.line(now))
					shown = true
				}
			case <-ended:
				return
			}
		}
	}()
	g.stop = sync.OnceFunc(func() {
		if tidy != nil {
			tidy()
		}
		close(ended)
		if <-drawn {
			fmt.Fprint(g.out, "\r\x1b[K") // what comes next has the line for itself
		}
	})
	return g
}

// line returns the line as it is at a time.
func (g *progress) line(now time.Time) string {
	done := g.count.Load()
	rate := humanSize(int64(float64(done)/max(now.Sub(g.began).Seconds(), 0.001))) + "/s"
	if g.total <= 0 {
		return fmt.Sprintf("%s  %s  %s", g.what, humanSize(done), rate)
	}
	done = min(done, g.total)
	full := int(done * progressBar / g.total)
	bar := strings.Repeat("█", full) + strings.Repeat("░", progressBar-full)
	text := fmt.Sprintf("%s  %s %3d%%  %s of %s  %s", g.what, bar, done*100/g.total, humanSize(done), humanSize(g.total), rate)
	if done > 0 && done < g.total {
		left := time.Duration(float64(now.Sub(g.began)) * float64(g.total-done) / float64(done))
		text += "  " + left.Round(time.Second).String() + " left"
	}
	return text
}

// reader counts what is read. A reader that can seek stays one, so that a transfer can begin again.
func (g *progress) reader(r io.Reader) io.Reader {
	counted := countedReader{r, &g.count}
	if s, ok := r.(io.Seeker); ok {
		return struct {
			countedReader
			countedSeeker
		}{counted, countedSeeker{s, &g.count}}
	}
	return counted
}

// writer counts what is written.
func (g *progress) writer(w io.Writer) io.Writer { return countedWriter{w, &g.count} }

type countedReader struct {
	io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (r countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

type countedSeeker struct {
	io.Seeker
	n *atomic.Int64
}

// Seek implements io.Seeker.
func (s countedSeeker) Seek(offset int64, whence int) (int64, error) {
	at, err := s.Seeker.Seek(offset, whence)
	if err == nil {
		s.n.Store(at)
	}
	return at, err
}

type countedWriter struct {
	io.Writer
	n *atomic.Int64
}

// Write implements io.Writer.
func (w countedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// sizeOf returns the size of an open file, or 0 for what is none.
func sizeOf(r any) int64 {
	f, ok := r.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}
