package prompt

import (
	"fmt"
	"regexp"
	"strings"
)

// segment is a piece of a template: literal text, or a placeholder.
type segment struct {
	literal string
	from    source
	path    []string // for an argument: its name and the path to the value within it; for a variable: its name
}

// source is where the value of a placeholder comes from.
type source int

const (
	fromText source = iota
	fromArguments
	fromEnv
)

const (
	opening = "{{"
	closing = "}}"
	escaped = `\{{` // the braces themselves
)

var (
	argumentPath = regexp.MustCompile(`^arguments((?:\.[A-Za-z0-9_-]+)+)$`)
	variablePath = regexp.MustCompile(`^env\.([A-Za-z_][A-Za-z0-9_]{0,127})$`)
)

// parse parses a text with placeholders. The error quotes the first invalid one, with its line.
func parse(text string) ([]segment, error) {
	var out []segment
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			out = append(out, segment{literal: plain.String()})
			plain.Reset()
		}
	}
	rest := text
	for {
		at := strings.Index(rest, opening)
		if at < 0 {
			plain.WriteString(rest)
			flush()
			return out, nil
		}
		if at > 0 && rest[at-1] == escaped[0] {
			plain.WriteString(rest[:at-1] + opening)
			rest = rest[at+len(opening):]
			continue
		}
		end := strings.Index(rest[at:], closing)
		line := 1 + strings.Count(text[:len(text)-len(rest)+at], "\n")
		if end < 0 {
			return nil, fmt.Errorf("line %d: %s has no %s: close it, or write %s for the braces themselves", line, quote(rest[at:]), closing, escaped)
		}
		s, ok := placeholder(strings.TrimSpace(rest[at+len(opening) : at+end]))
		if !ok {
			return nil, fmt.Errorf("line %d: %s is not a placeholder: write {{ arguments.NAME }} or {{ env.NAME }}, or %s for the braces themselves",
				line, quote(rest[at:at+end+len(closing)]), escaped)
		}
		plain.WriteString(rest[:at])
		flush()
		out = append(out, s)
		rest = rest[at+end+len(closing):]
	}
}

func placeholder(inside string) (segment, bool) {
	if m := argumentPath.FindStringSubmatch(inside); m != nil {
		return segment{from: fromArguments, path: strings.Split(m[1][1:], ".")}, true
	}
	if m := variablePath.FindStringSubmatch(inside); m != nil {
		return segment{from: fromEnv, path: m[1:]}, true
	}
	return segment{}, false
}

// maxQuote is how much of an invalid placeholder an error shows, in bytes.
const maxQuote = 60

func quote(text string) string {
	if line, _, more := strings.Cut(text, "\n"); more {
		text = line + "…"
	}
	if len(text) > maxQuote {
		text = strings.ToValidUTF8(text[:maxQuote], "") + "…"
	}
	return text
}
