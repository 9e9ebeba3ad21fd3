// Package weburl parses and changes URLs as browsers do, by the URL Standard (https://url.spec.whatwg.org). It is
// what the class URL of definition code is made of.
//
// It differs from the standard in two points. Hosts with letters outside of ASCII are put in lower case and converted to Punycode,
// without the other mappings and checks of IDNA. Letters of Windows drives have no meaning of their own in file URLs.
//
// The package has no variables, because it is part of a program that each execution starts.
package weburl

import (
	"slices"
	"strconv"
	"strings"
)

// URL is a parsed URL. Its parts are encoded.
type URL struct {
	Scheme             string
	Username, Password string
	Host, Port         string
	Query, Fragment    string

	// hasHost, hasQuery and hasFragment distinguish parts that are empty from parts that are not there.
	hasHost, hasQuery, hasFragment bool
	// opaque is the path of a URL such as mailto:x@y.example, which has no segments. isOpaque says that it is one.
	opaque   string
	isOpaque bool
	segments []string
}

// defaultPort returns the port that a special scheme omits, and whether the scheme is special.
func defaultPort(scheme string) (port string, special bool) {
	switch scheme {
	case "http", "ws":
		return "80", true
	case "https", "wss":
		return "443", true
	case "ftp":
		return "21", true
	}
	return "", scheme == "file"
}

func (u *URL) special() bool {
	_, special := defaultPort(u.Scheme)
	return special
}

// Parse parses a URL, which may be relative to base if that is not nil. It reports whether the URL is valid.
func Parse(text string, base *URL) (*URL, bool) {
	text = withoutBreaks(strings.TrimFunc(text, func(r rune) bool { return r <= ' ' }))
	u := &URL{}
	var query string
	text, u.Fragment, u.hasFragment = strings.Cut(text, "#")
	text, query, u.hasQuery = strings.Cut(text, "?")
	u.Fragment = fragmentSet.encode(u.Fragment)
	scheme, rest, ok := cutScheme(text)
	switch {
	case ok:
		u.Scheme = scheme
		ok = u.parseAbsolute(rest, base)
	case base == nil:
	case base.isOpaque:
		ok = text == "" && u.hasFragment && !u.hasQuery
		u.Scheme, u.opaque, u.isOpaque, u.Query, u.hasQuery = base.Scheme, base.opaque, true, base.Query, base.hasQuery
		return u, ok
	default:
		u.Scheme = base.Scheme
		ok = u.parseRelative(text, base)
	}
	if u.Query == "" && u.hasQuery { // otherwise it is that of the base
		u.Query = u.querySet().encode(query)
	}
	return u, ok
}

func withoutBreaks(text string) string {
	return strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text)
}

func (u *URL) querySet() set {
	if u.special() {
		return specialQuerySet
	}
	return querySet
}

// cutScheme divides a text after its scheme, which it returns in lower case.
func cutScheme(text string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(text, ":")
	return strings.ToLower(scheme), rest, ok && isScheme(scheme)
}

func isScheme(text string) bool {
	for i := range len(text) {
		if c := text[i]; !isAlpha(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return text != ""
}

// parseAbsolute parses what follows the scheme, without query and fragment.
func (u *URL) parseAbsolute(rest string, base *URL) bool {
	special := u.special()
	switch {
	case special && base != nil && base.Scheme == u.Scheme && (u.Scheme == "file" || !strings.HasPrefix(rest, "//")):
		return u.parseRelative(rest, base)
	case u.Scheme == "file":
		return u.parseRelative(rest, &URL{Scheme: "file", hasHost: true})
	case special:
		return u.parseAuthority(strings.TrimLeft(rest, `/\`))
	case strings.HasPrefix(rest, "//"):
		return u.parseAuthority(rest[2:])
	case strings.HasPrefix(rest, "/"):
		u.parsePath(rest)
	default:
		u.opaque, u.isOpaque = controlSet.encode(rest), true
	}
	return true
}

// parseRelative parses a reference that is relative to base and has its scheme.
func (u *URL) parseRelative(rest string, base *URL) bool {
	first, second := len(rest) > 0 && u.isSlash(rest[0]), len(rest) > 1 && u.isSlash(rest[1])
	if first && second {
		if rest = rest[2:]; u.special() && u.Scheme != "file" {
			rest = strings.TrimLeft(rest, `/\`)
		}
		return u.parseAuthority(rest)
	}
	u.Username, u.Password, u.Host, u.hasHost, u.Port = base.Username, base.Password, base.Host, base.hasHost, base.Port
	if first {
		u.parsePath(rest)
		return true
	}
	u.segments = slices.Clone(base.segments)
	if rest == "" {
		if !u.hasQuery {
			u.Query, u.hasQuery = base.Query, base.hasQuery
		}
		if u.special() && len(u.segments) == 0 {
			u.segments = []string{""}
		}
		return true
	}
	u.shorten()
	u.parsePath(rest)
	return true
}

// isSlash reports whether c divides segments. In URLs with special schemes a backslash does, too.
func (u *URL) isSlash(c byte) bool { return c == '/' || c == '\\' && u.special() }

// parseAuthority parses user, password, host and port, and the path behind them.
func (u *URL) parseAuthority(rest string) bool {
	end := 0
	for end < len(rest) && !u.isSlash(rest[end]) {
		end++
	}
	authority, path := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@')
	if at >= 0 {
		name, password, _ := strings.Cut(authority[:at], ":")
		u.Username, u.Password = userinfoSet.encode(name), userinfoSet.encode(password)
	}
	host, port, hasPort := cutPort(authority[at+1:])
	if host == "" && (at >= 0 || hasPort || u.special() && u.Scheme != "file") || u.Scheme == "file" && (at >= 0 || hasPort) {
		return false
	}
	if strings.Trim(port, "0123456789") != "" || !u.setPort(port) || !u.setHost(host) {
		return false
	}
	if path != "" || u.special() {
		u.parsePath(path)
	}
	return true
}

// cutPort divides a host from its port.
func cutPort(text string) (host, port string, found bool) {
	inside := false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ':' && !inside:
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// setPort sets a port of digits. It reports whether there is such a port.
func (u *URL) setPort(digits string) bool {
	if digits == "" {
		u.Port = ""
		return true
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return false
	}
	u.Port = strconv.FormatUint(n, 10)
	if port, _ := defaultPort(u.Scheme); u.Port == port {
		u.Port = ""
	}
	return true
}

func (u *URL) setHost(text string) bool {
	host := ""
	if text != "" {
		var ok bool
		if host, ok = parseHost(text, u.special()); !ok {
			return false
		}
	}
	if u.Scheme == "file" && host == "localhost" {
		host = ""
	}
	u.Host, u.hasHost = host, true
	return true
}

// parsePath appends the segments of a path, of which the dots are resolved.
func (u *URL) parsePath(text string) {
	if text != "" && u.isSlash(text[0]) {
		text = text[1:]
	}
	for more := true; more; {
		end := 0
		for end < len(text) && !u.isSlash(text[end]) {
			end++
		}
		segment := text[:end]
		if more = end < len(text); more {
			text = text[end+1:]
		}
		switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
		case "..":
			u.shorten()
		case ".":
		default:
			u.segments = append(u.segments, pathSet.encode(segment))
			continue
		}
		if !more {
			u.segments = append(u.segments, "")
		}
	}
}

func (u *URL) shorten() {
	u.segments = u.segments[:max(len(u.segments)-1, 0)]
}

// Path returns the encoded path.
func (u *URL) Path() string {
	if u.isOpaque {
		return u.opaque
	}
	if len(u.segments) == 0 {
		return ""
	}
	return "/" + strings.Join(u.segments, "/")
}

// Origin returns scheme, host and port, or "null" if the URL has no origin that can be written.
func (u *URL) Origin() string {
	if u.Scheme == "blob" {
		if of, ok := Parse(u.opaque, nil); ok && (of.Scheme == "http" || of.Scheme == "https") {
			return of.Origin()
		}
	}
	if !u.special() || u.Scheme == "file" {
		return "null"
	}
	return u.Scheme + "://" + u.HostPort()
}

// HostPort returns the host, and the port if it is not the scheme's own.
func (u *URL) HostPort() string {
	if u.Port == "" {
		return u.Host
	}
	return u.Host + ":" + u.Port
}

// String returns the whole URL.
func (u *URL) String() string {
	var out strings.Builder
	out.WriteString(u.Scheme + ":")
	if u.hasHost {
		out.WriteString("//")
		if u.Username != "" || u.Password != "" {
			out.WriteString(u.Username)
			if u.Password != "" {
				out.WriteString(":" + u.Password)
			}
			out.WriteString("@")
		}
		out.WriteString(u.HostPort())
	} else if len(u.segments) > 1 && u.segments[0] == "" {
		out.WriteString("/.") // otherwise the path would begin with what looks like a host
	}
	out.WriteString(u.Path())
	if u.hasQuery {
		out.WriteString("?" + u.Query)
	}
	if u.hasFragment {
		out.WriteString("#" + u.Fragment)
	}
	return out.String()
}
