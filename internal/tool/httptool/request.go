package httptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

const (
	defaultMaxRedirects     = 5
	defaultMaxResponseBytes = 1 << 20
	jsonType                = "application/json"
)

// Secrets are the secrets of a request, as read from the Secrets that its spec names.
type Secrets struct {
	Headers map[string]string // values by the names of spec.http.headers
	Auth    string            // password, token or key
	Signing []byte
}

// Request is spec.http of a Tool, parsed and checked.
type Request struct {
	method   string
	origin   string // scheme, host and port
	path     template
	query    []parameter
	headers  []header
	body     template
	hasBody  bool
	bodyType string
	signing  []byte
	result   *result
	allowed  []outbound.Host
	redirect int
	maxBytes int64
}

// parameter is a parameter of the query.
type parameter struct{ name, value template }

// header is a header of a request. A guarded header is sent only to the URL's own origin.
type header struct {
	name    string
	value   template
	guarded bool
}

// Compile parses a Tool's request. The error says what is wrong in spec.http.
func Compile(spec *skeinv1.HTTPTool, s Secrets) (*Request, error) {
	r := &Request{method: spec.Method, redirect: defaultMaxRedirects, maxBytes: defaultMaxResponseBytes, signing: s.Signing}
	if r.method == "" {
		r.method = http.MethodGet
	}
	if spec.MaxRedirects != nil {
		r.redirect = int(*spec.MaxRedirects)
	}
	if spec.MaxResponseBytes != nil {
		r.maxBytes = *spec.MaxResponseBytes
	}
	if spec.Signing != nil && len(s.Signing) == 0 {
		return nil, errors.New("spec.http.signing: the key in the Secret is empty")
	}
	var err error
	if err = r.compileURL(spec.URL); err != nil {
		return nil, fmt.Errorf("spec.http.url: %w", err)
	}
	if err = r.compileHeaders(spec, s); err != nil {
		return nil, err
	}
	if err = r.compileBody(spec.Body); err != nil {
		return nil, fmt.Errorf("spec.http.body: %w", err)
	}
	if r.allowed, err = outbound.ParseHosts(spec.AllowedHosts); err != nil {
		return nil, fmt.Errorf("spec.http.allowedHosts: %w", err)
	}
	if r.result, err = compileResult(spec.Result); err != nil {
		return nil, fmt.Errorf("spec.http.result: %w", err)
	}
	return r, nil
}

// Origin returns the scheme, host and port of the URL.
func (r *Request) Origin() string { return r.origin }

func (r *Request) compileURL(text string) error {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return errors.New("give a URL with https:// or http://")
	}
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest, "/?")
	authority, tail := rest, ""
	if end >= 0 {
		authority, tail = rest[:end], rest[end:]
	}
	if strings.ContainsAny(authority, "{}") {
		return errors.New("scheme, host and port must be plain, without placeholders")
	}
	if strings.Contains(authority, "@") {
		return errors.New("it has a user in it: use spec.http.auth")
	}
	origin, err := url.Parse(scheme + "://" + authority)
	if err != nil || origin.Hostname() == "" {
		return errors.New("it is not a URL: give one such as https://api.example.com/orders/{{ arguments.id }}")
	}
	r.origin = scheme + "://" + authority
	path, query, _ := strings.Cut(tail, "?")
	if path == "" {
		path = "/"
	}
	if r.path, err = parse(path, sourceArguments, sourceEnv); err != nil {
		return err
	}
	plain, _ := r.path.expand(func(*part) (any, bool, error) { return "x", true, nil }, escapePath)
	if _, err := url.Parse(r.origin + plain); err != nil {
		return errors.New("its path is not escaped: write a space as %20")
	}
	if err := checkPath(plain); err != nil {
		return err
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		var p parameter
		if p.name, err = parse(name, sourceArguments, sourceEnv); err != nil {
			return err
		}
		if p.value, err = parse(value, sourceArguments, sourceEnv); err != nil {
			return err
		}
		r.query = append(r.query, p)
	}
	return nil
}

// credentials are headers that authenticate a request.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization"}

func (r *Request) compileHeaders(spec *skeinv1.HTTPTool, s Secrets) error {
	add := func(field, name string, value template, guarded bool) error {
		name = http.CanonicalHeaderKey(name)
		if slices.ContainsFunc(r.headers, func(h header) bool { return h.name == name }) {
			return fmt.Errorf("%s: the header %s is given twice", field, name)
		}
		for i := range value {
			if !ValidHeader(value[i].text) {
				return fmt.Errorf("%s: the value of the header %s has a line break or a control character in it", field, name)
			}
		}
		r.headers = append(r.headers, header{name: name, value: value, guarded: guarded || slices.Contains(credentials, name)})
		return nil
	}
	for i, h := range spec.Headers {
		field := fmt.Sprintf("spec.http.headers[%d]", i)
		value, guarded := template{{text: s.Headers[h.Name]}}, true
		if h.Value != nil {
			var err error
			if value, err = parse(*h.Value, sourceArguments, sourceEnv); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
			guarded = value.reads(sourceEnv)
		}
		if err := add(field, h.Name, value, guarded); err != nil {
			return err
		}
	}
	name, value, err := Credential(spec.Auth, s.Auth)
	if err != nil || name == "" {
		return err
	}
	return add("spec.http.auth", name, template{{text: value}}, true)
}

func (r *Request) compileBody(b *skeinv1.HTTPBody) error {
	if b == nil {
		r.hasBody = r.method == http.MethodPost || r.method == http.MethodPut || r.method == http.MethodPatch
		r.bodyType = jsonType
		return nil
	}
	r.hasBody, r.bodyType = true, b.ContentType
	if r.bodyType == "" {
		r.bodyType = jsonType
	}
	if _, _, err := mime.ParseMediaType(r.bodyType); err != nil {
		return fmt.Errorf("contentType: %w", err)
	}
	var err error
	if r.body, err = parse(b.Template, sourceArguments, sourceEnv); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	if r.body == nil {
		r.body = template{}
	}
	if !isJSON(r.bodyType) {
		return nil
	}
	for _, v := range []any{"x", nil} {
		text, _ := r.body.expandJSON(func(*part) (any, bool, error) { return v, v != nil, nil })
		if !json.Valid([]byte(text)) {
			return errors.New("template: it is not JSON when it is filled in: check its commas, brackets and quotes, or give another contentType")
		}
	}
	return nil
}

// isJSON reports whether a content type is JSON.
func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == jsonType || strings.HasSuffix(kind, "+json")
}

// Credential returns the header that authenticates a request; no name when auth is nil.
func Credential(auth *skeinv1.ToolAuth, secret string) (name, value string, err error) {
	switch {
	case auth == nil:
		return "", "", nil
	case secret == "":
		return "", "", errors.New("auth: the value in the Secret is empty")
	case auth.Basic != nil:
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(auth.Basic.Username, secret)
		return "Authorization", req.Header.Get("Authorization"), nil
	case auth.Bearer != nil:
		return "Authorization", "Bearer " + secret, nil
	default:
		return auth.Header.Name, secret, nil
	}
}

// outgoing is the request of one call.
type outgoing struct {
	method   string
	url      *url.URL
	headers  []filled
	body     []byte
	bodyType string
}

type filled struct {
	name, value string
	guarded     bool
}

// fill builds the request of a call. The error is for the model.
func (r *Request) fill(of values, arguments json.RawMessage) (*outgoing, error) {
	path, err := r.path.expand(of, escapePath)
	if err != nil {
		return nil, err
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	query, err := r.fillQuery(of)
	if err != nil {
		return nil, err
	}
	out := &outgoing{method: r.method}
	if out.url, err = url.Parse(r.origin + path); err != nil {
		return nil, errors.New("the arguments do not fit into the URL")
	}
	out.url.RawQuery = query
	for _, h := range r.headers {
		value, err := h.value.expand(of, func(p *part, v any, ok bool) (string, error) {
			text := strings.TrimSpace(textOf(v))
			if !ValidHeader(text) {
				return "", fmt.Errorf("%s goes into the header %s and must have no line break and no control character in it", p.name(), h.name)
			}
			return text, nil
		})
		if err != nil {
			return nil, err
		}
		if value != "" {
			out.headers = append(out.headers, filled{h.name, value, h.guarded})
		}
	}
	if !r.hasBody {
		return out, nil
	}
	out.bodyType = r.bodyType
	out.body, err = r.fillBody(of, arguments)
	return out, err
}

func (r *Request) fillBody(of values, arguments json.RawMessage) ([]byte, error) {
	if r.body == nil {
		return arguments, nil
	}
	kind, _, _ := mime.ParseMediaType(r.bodyType)
	escape := escapeNothing
	switch {
	case isJSON(r.bodyType):
		text, err := r.body.expandJSON(of)
		return []byte(text), err
	case kind == "application/x-www-form-urlencoded":
		escape = escapeForm
	case strings.HasSuffix(kind, "/xml"), strings.HasSuffix(kind, "+xml"), kind == "text/html":
		escape = escapeXML
	}
	text, err := r.body.expand(of, escape)
	return []byte(text), err
}

func (r *Request) fillQuery(of values) (string, error) {
	var pairs []string
	for _, p := range r.query {
		absent := false
		escape := func(_ *part, v any, ok bool) (string, error) {
			absent = absent || !ok
			return url.QueryEscape(textOf(v)), nil
		}
		name, err := p.name.expand(of, escape)
		if err != nil {
			return "", err
		}
		if len(p.value) == 1 && p.value[0].source != "" { // each item of a list becomes a pair of its own
			v, ok, err := of(&p.value[0])
			if err != nil {
				return "", err
			}
			if list, is := v.([]any); is && ok {
				for _, item := range list {
					pairs = append(pairs, name+"="+url.QueryEscape(textOf(item)))
				}
				continue
			}
		}
		value, err := p.value.expand(of, escape)
		if err != nil {
			return "", err
		}
		if !absent {
			pairs = append(pairs, name+"="+value)
		}
	}
	return strings.Join(pairs, "&"), nil
}

// escapePath escapes a value for one segment of a path.
func escapePath(p *part, v any, ok bool) (string, error) {
	text := textOf(v)
	if !ok || text == "" {
		return "", fmt.Errorf("%s is part of the URL's path and must not be empty", p.name())
	}
	return url.PathEscape(text), nil
}

// checkPath refuses segments with which a server would leave the intended path. Some servers and proxies unescape a
// path before they look for such segments, some of them twice, and treat a backslash as a slash.
func checkPath(path string) error {
	for range 3 {
		for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
				return errors.New(`a segment of the URL's path must not be "." or ".."`)
			}
		}
		plain, err := url.PathUnescape(path)
		if err != nil || plain == path {
			return nil
		}
		path = plain
	}
	return nil
}

// ValidHeader reports whether a text can be the value of a header.
func ValidHeader(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
