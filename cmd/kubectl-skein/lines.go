package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// lines reads what a person types. On a terminal it edits lines, remembers earlier ones, and keeps the line at the bottom while other
// output appears above it.
type lines struct {
	terminal bool
	typed    chan string // closed at the end of the input
	err      error       // why it ended, to be read after the channel is closed

	from     io.Reader
	editor   *term.Terminal
	file     *os.File
	restored *term.State
}

// newLines prepares to read lines. Interrupts that are typed on a terminal go to the channel.
func newLines(p *plugin, interrupts chan<- os.Signal) (*lines, error) {
	l := &lines{typed: make(chan string), from: p.In}
	in, ok := p.In.(*os.File)
	if !ok || !isTerminal(p.In) || !isTerminal(p.Out) {
		return l, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}
	l.terminal, l.file, l.restored = true, in, state
	l.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&interruptReader{from: in, interrupts: interrupts}, p.Out}, "> ")
	if width, height, err := term.GetSize(int(in.Fd())); err == nil && width > 0 {
		_ = l.editor.SetSize(width, height) // an error says that a line could not be drawn again
	}
	return l, nil
}

// plugin returns a plugin that writes above the line that is being typed.
func (l *lines) plugin(p *plugin) *plugin {
	if !l.terminal {
		return p
	}
	q := *p
	q.Out, q.ErrOut = l.editor, l.editor
	return &q
}

// start begins to read.
func (l *lines) start() {
	go func() {
		defer close(l.typed)
		if l.terminal {
			l.err = l.edit()
		} else {
			l.err = l.scan()
		}
	}()
}

func (l *lines) edit() error {
	for {
		line, err := l.editor.ReadLine()
		switch {
		case errors.Is(err, term.ErrPasteIndicator), err == nil:
			l.typed <- line
		case errors.Is(err, io.EOF):
			return nil
		default:
			return fmt.Errorf("read from the terminal: %w", err)
		}
	}
}

func (l *lines) scan() error {
	s := bufio.NewScanner(l.from)
	s.Buffer(nil, runtimev1.MaxContentBytes+len("\r\n"))
	for s.Scan() {
		l.typed <- s.Text()
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line of the input is too long: a message has at most %d bytes; give the rest as a file with /attach", runtimev1.MaxContentBytes)
	}
	return s.Err()
}

// close restores the mode that the terminal had.
func (l *lines) close() {
	if l.terminal {
		fmt.Fprintln(l.editor)
		_ = term.Restore(int(l.file.Fd()), l.restored) // nothing can be done about a terminal that is gone
	}
}

// interruptReader takes typed interrupts out of the input. A terminal in raw mode makes no signal of them.
type interruptReader struct {
	from       io.Reader
	interrupts chan<- os.Signal
}

const keyInterrupt = 3 // Ctrl-C

func (r *interruptReader) Read(p []byte) (int, error) {
	for {
		n, err := r.from.Read(p)
		kept := bytes.ReplaceAll(p[:n], []byte{keyInterrupt}, nil)
		if len(kept) < n {
			select {
			case r.interrupts <- os.Interrupt:
			default: // one waits already
			}
		}
		copy(p, kept)
		if len(kept) > 0 || err != nil || n == 0 {
			return len(kept), err
		}
	}
}
