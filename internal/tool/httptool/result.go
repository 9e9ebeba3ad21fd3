package httptool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/client-go/util/jsonpath"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// maxErrorShown is how much of the body of an error response the model gets to read.
const maxErrorShown = 4 << 10

// result says what the model gets to read of a response.
type result struct {
	jsonPath string
	text     template
}

func compileResult(spec *skeinv1.HTTPResult) (*result, error) {
	if spec == nil {
		return nil, nil
	}
	if spec.JSONPath != "" {
		return &result{jsonPath: spec.JSONPath}, jsonpath.New("result").Parse(spec.JSONPath)
	}
	t, err := parse(spec.Template, sourceStatus, sourceBody, sourceHeaders)
	return &result{text: t}, err
}

// answer is a response with its body read.
type answer struct {
	code   int
	header http.Header
	body   []byte
	redact func(text string) string
}

func (a *answer) status() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)))
}

// textual reports whether the body is text.
func (a *answer) textual() bool {
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	for _, prefix := range []string{"image/", "audio/", "video/", "font/"} {
		if strings.HasPrefix(kind, prefix) && kind != "image/svg+xml" {
			return false
		}
	}
	return utf8.Valid(a.body) && bytes.IndexByte(a.body, 0) < 0
}

// failure describes an error response.
func (a *answer) failure() string {
	text := "the server answered " + a.status()
	switch {
	case len(a.body) == 0:
		return text
	case !a.textual():
		return text + fmt.Sprintf(" with %d bytes that are not text", len(a.body))
	}
	return text + ": " + a.shown(maxErrorShown)
}

// read converts a response to what the model gets to read.
func (r *result) read(a *answer) (string, error) {
	if r.jsonPath != "" {
		return r.pick(a)
	}
	var body any
	bodyErr := decode(a.body, &body)
	return r.text.expand(func(p *part) (any, bool, error) {
		switch {
		case p.source == sourceStatus:
			return strconv.Itoa(a.code), true, nil
		case p.source == sourceHeaders:
			return a.header.Get(p.path[0]), true, nil
		case len(p.path) == 0:
			return strings.ToValidUTF8(string(a.body), "\uFFFD"), true, nil
		case bodyErr != nil:
			return nil, false, errors.New("the server's answer is not JSON, so nothing can be taken out of it: " + a.clip())
		}
		v, ok := lookup(body, p.path)
		return v, ok, nil
	}, escapeNothing)
}

// pick returns what the path matches.
func (r *result) pick(a *answer) (text string, err error) {
	defer func() {
		if p := recover(); p != nil { // the library may panic: paths are a language of their own, and the server controls the document
			err = fmt.Errorf("the server's answer does not fit spec.http.result.jsonPath: %v", p)
		}
	}()
	var body any
	if err := json.Unmarshal(a.body, &body); err != nil {
		return "", errors.New("the server's answer is not JSON, so nothing can be taken out of it: " + a.clip())
	}
	path := jsonpath.New("result").AllowMissingKeys(true)
	if err := path.Parse(r.jsonPath); err != nil {
		return "", err
	}
	found, err := path.FindResults(body)
	if err != nil {
		return "", fmt.Errorf("the server's answer does not fit spec.http.result.jsonPath: %w", err)
	}
	list := []any{}
	for _, matches := range found {
		for _, m := range matches {
			if m.IsValid() && m.CanInterface() {
				list = append(list, m.Interface())
			}
		}
	}
	switch len(list) {
	case 0:
		return "null", nil
	case 1:
		if s, ok := list[0].(string); ok {
			return s, nil
		}
		return jsonOf(list[0]), nil
	}
	return jsonOf(list), nil
}

func (a *answer) clip() string { return a.shown(200) }

// shown returns the beginning of the body. It redacts the text before it cuts it, because half of a secret would not be
// found.
func (a *answer) shown(limit int) string {
	text := a.redact(string(a.body))
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// decode reads one JSON value and keeps its numbers as written.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one value")
	}
	return nil
}

// lookup follows a path into a JSON value. null counts as absent.
func lookup(v any, path []string) (any, bool) {
	for _, key := range path {
		switch node := v.(type) {
		case map[string]any:
			v = node[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, v != nil
}
