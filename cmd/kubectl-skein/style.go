package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// style colours text on a terminal, and leaves it unchanged elsewhere.
type style struct{ on bool }

func styleOf(w io.Writer) style {
	return style{on: isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(w any) bool {
	if o, ok := w.(*checkedOutput); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(t string) string  { return s.paint("1", t) }
func (s style) dim(t string) string   { return s.paint("2", t) }
func (s style) red(t string) string   { return s.paint("31", t) }
func (s style) green(t string) string { return s.paint("32", t) }
func (s style) cyan(t string) string  { return s.paint("36", t) }

// safe removes control characters from a text of another author, so that it cannot control the terminal. Line ends
// and tabs stay.
func safe(text string) string {
	clean := make([]rune, 0, len(text))
	for _, r := range text {
		if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			continue
		}
		clean = append(clean, r)
	}
	return string(clean)
}

// cell returns text as one line of a table: with line breaks and tabs as escapes.
func cell(text string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(safe(text)) }

// safeWriter makes a stream of text safe. It holds back an incomplete character until the rest of it comes.
type safeWriter struct {
	to   io.Writer
	rest []byte
}

// Write implements io.Writer.
func (w *safeWriter) Write(p []byte) (int, error) {
	text := slices.Concat(w.rest, p)
	whole := len(text)
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole -= n
			}
			break
		}
	}
	w.rest = slices.Clone(text[whole:])
	_, err := io.WriteString(w.to, safe(string(text[:whole])))
	return len(p), err
}
