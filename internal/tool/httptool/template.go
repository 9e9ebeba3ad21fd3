package httptool

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The sources that placeholders can read.
const (
	sourceArguments = "arguments"
	sourceEnv       = "env"
	sourceStatus    = "status"
	sourceBody      = "body"
	sourceHeaders   = "headers"
)

var (
	opening     = regexp.MustCompile(`\{\{[^}]*\}?\}?`)
	placeholder = regexp.MustCompile(`^\{\{\s*([A-Za-z]+)((?:\.[A-Za-z0-9_-]+)*)\s*\}\}$`)
)

// part is a part of a template: text, or a placeholder when source is set.
type part struct {
	text   string
	source string
	path   []string
}

// name returns the name of a placeholder as its author wrote it.
func (p *part) name() string { return strings.Join(append([]string{p.source}, p.path...), ".") }

type template []part

// parse parses a template. sources are the sources that its placeholders may read.
func parse(text string, sources ...string) (template, error) {
	var t template
	for text != "" {
		at := opening.FindStringIndex(text)
		if at == nil {
			return append(t, part{text: text}), nil
		}
		if at[0] > 0 {
			t = append(t, part{text: text[:at[0]]})
		}
		m := placeholder.FindStringSubmatch(text[at[0]:at[1]])
		if m == nil {
			return nil, fmt.Errorf("%s is not a placeholder: %s", text[at[0]:at[1]], usage(sources))
		}
		p := part{source: m[1]}
		if m[2] != "" {
			p.path = strings.Split(m[2][1:], ".")
		}
		named := p.source == sourceArguments || p.source == sourceEnv || p.source == sourceHeaders
		single := p.source == sourceEnv || p.source == sourceHeaders
		if !slices.Contains(sources, p.source) || named && len(p.path) == 0 || single && len(p.path) > 1 || p.source == sourceStatus && len(p.path) > 0 {
			return nil, fmt.Errorf("%s is not a placeholder: %s", text[at[0]:at[1]], usage(sources))
		}
		t = append(t, p)
		text = text[at[1]:]
	}
	return t, nil
}

func usage(sources []string) string {
	if slices.Contains(sources, sourceArguments) {
		return "write {{ arguments.NAME }} or {{ env.NAME }}"
	}
	return "write {{ status }}, {{ body }}, {{ body.NAME }} or {{ headers.NAME }}"
}

// reads reports whether the template has a placeholder of a source.
func (t template) reads(source string) bool {
	return slices.ContainsFunc(t, func(p part) bool { return p.source == source })
}

// values returns the value of a placeholder. ok is false when the value is absent.
type values func(p *part) (v any, ok bool, err error)

// expand fills in a template. escape returns the text of a value; ok is false when the value is absent.
func (t template) expand(of values, escape func(p *part, v any, ok bool) (string, error)) (string, error) {
	var out strings.Builder
	for i := range t {
		p := &t[i]
		if p.source == "" {
			out.WriteString(p.text)
			continue
		}
		v, ok, err := of(p)
		if err != nil {
			return "", err
		}
		text, err := escape(p, v, ok)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// textOf returns a string as it is, and any other value as JSON.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return jsonOf(v)
}

func jsonOf(v any) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the value was read from JSON
	return strings.TrimSuffix(buf.String(), "\n")
}

// expandJSON fills in a template of JSON. Within a string, a value becomes part of the string; elsewhere it is a JSON
// value.
func (t template) expandJSON(of values) (string, error) {
	var out strings.Builder
	quoted, escaped := false, false
	for i := range t {
		p := &t[i]
		if p.source == "" {
			for _, b := range []byte(p.text) {
				switch {
				case escaped:
					escaped = false
				case quoted && b == '\\':
					escaped = true
				case b == '"':
					quoted = !quoted
				}
			}
			out.WriteString(p.text)
			continue
		}
		v, ok, err := of(p)
		if err != nil {
			return "", err
		}
		switch {
		case quoted && ok:
			text := jsonOf(textOf(v))
			out.WriteString(text[1 : len(text)-1])
		case quoted:
		case ok:
			out.WriteString(jsonOf(v))
		default:
			out.WriteString("null")
		}
	}
	return out.String(), nil
}

// escapeXML escapes a value for XML or HTML.
func escapeXML(_ *part, v any, _ bool) (string, error) {
	var buf bytes.Buffer
	err := xml.EscapeText(&buf, []byte(textOf(v)))
	return buf.String(), err
}

func escapeForm(_ *part, v any, _ bool) (string, error) { return url.QueryEscape(textOf(v)), nil }

func escapeNothing(_ *part, v any, _ bool) (string, error) { return textOf(v), nil }
