// Package endpoint implements the paths of thread endpoints (END-01): how a pattern is written, which paths it matches,
// and which of several patterns comes first. It has no side effects. Controllers check patterns with it and the manager
// selects endpoints with it, so both always agree.
package endpoint

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

const (
	// MaxSegments is the largest number of segments of a pattern.
	MaxSegments = 32
	// Rest is the name of the parameter of a catch-all segment.
	Rest = "*"
)

// kind is the kind of a segment. The order of the constants is that of precedence.
type kind int

const (
	static kind = iota
	dynamic
	catchAll
)

type segment struct {
	kind kind
	text string // the text of a static segment, or the name of a dynamic one
}

// Pattern is a parsed path such as /report/[id] or /files/[*].
type Pattern struct {
	segments []segment
}

var (
	staticText    = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Parse parses a pattern: segments after "/", each a text, [name] for any one segment, or, at the end, [*] for one or
// more segments. The error says what to change.
func Parse(path string) (Pattern, error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return Pattern{}, fmt.Errorf("the path %q must begin with /", path)
	}
	if rest == "" {
		return Pattern{}, nil
	}
	parts := strings.Split(rest, "/")
	if len(parts) > MaxSegments {
		return Pattern{}, fmt.Errorf("the path has %d segments: at most %d", len(parts), MaxSegments)
	}
	names := map[string]bool{}
	var p Pattern
	for i, part := range parts {
		s, err := parseSegment(part)
		switch {
		case err != nil:
			return Pattern{}, err
		case s.kind == catchAll && i < len(parts)-1:
			return Pattern{}, fmt.Errorf("the path %q continues after [*]: that matches everything that follows, so write it last", path)
		case s.kind == dynamic && names[s.text]:
			return Pattern{}, fmt.Errorf("the path %q has [%s] twice: give each parameter a different name", path, s.text)
		}
		names[s.text] = names[s.text] || s.kind == dynamic
		p.segments = append(p.segments, s)
	}
	return p, nil
}

func parseSegment(part string) (segment, error) {
	name, bracketed := strings.CutPrefix(part, "[")
	if bracketed {
		name, bracketed = strings.CutSuffix(name, "]")
	}
	switch {
	case bracketed && name == Rest:
		return segment{catchAll, Rest}, nil
	case bracketed && parameterName.MatchString(name):
		return segment{dynamic, name}, nil
	case part == "":
		return segment{}, fmt.Errorf("the path has an empty segment: write one / between segments and none at the end")
	case part == ".", part == "..", !staticText.MatchString(part):
		return segment{}, fmt.Errorf("the segment %q is not a text of letters, digits, \".\", \"_\", \"~\" and \"-\", [name] or [*]", part)
	}
	return segment{static, part}, nil
}

// Match reports whether a path, given in segments, matches the pattern, and returns its parameters. Rest holds the
// segments that [*] matched, joined by "/".
func (p Pattern) Match(path []string) (params map[string]string, ok bool) {
	params = map[string]string{}
	for i, s := range p.segments {
		if i >= len(path) {
			return nil, false
		}
		switch s.kind {
		case catchAll:
			params[Rest] = strings.Join(path[i:], "/")
			return params, true
		case dynamic:
			params[s.text] = path[i]
		case static:
			if s.text != path[i] {
				return nil, false
			}
		}
	}
	return params, len(path) == len(p.segments)
}

// Compare orders patterns by precedence. Segment by segment, a text comes before [name], and [name] before [*].
// Patterns with the same Shape are equal.
func Compare(a, b Pattern) int {
	for i := range min(len(a.segments), len(b.segments)) {
		if c := cmp.Compare(a.segments[i].kind, b.segments[i].kind); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(len(b.segments), len(a.segments)); c != 0 {
		return c
	}
	return strings.Compare(a.Shape(), b.Shape())
}

// Shape returns the pattern without the names of its parameters. Patterns that match the same paths have the same
// shape.
func (p Pattern) Shape() string {
	var b strings.Builder
	for _, s := range p.segments {
		switch s.kind {
		case static:
			b.WriteString("/" + s.text)
		case dynamic:
			b.WriteString("/[]")
		case catchAll:
			b.WriteString("/[*]")
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
