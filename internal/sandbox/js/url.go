//go:build linux && (amd64 || arm64)

package js

import (
	"net/url"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// urlClasses evaluates lib.URL: urlClasses() returns { URL, URLSearchParams }.
func (i *isolate) urlClasses([]qjs.Value) (qjs.Value, bool) {
	make, ok := i.vm.EvalBytecode(bytecode.Of(bytecode.URL))
	if !ok {
		return i.vm.Rethrow()
	}
	defer i.vm.Free(make)
	sys, ok := i.vm.Object()
	if !ok {
		return i.vm.Rethrow()
	}
	defer i.vm.Free(sys)
	parse, ok := i.vm.Func("parseURL", 2, i.parseURL)
	if !ok || !i.vm.Define(sys, "parseURL", parse, qjs.Fixed) {
		return i.vm.Rethrow()
	}
	return i.vm.Call(make, qjs.Undefined, sys)
}

// defaultPorts are omitted from a URL.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

// parseURL implements parseURL(url, base), which returns the parts of the absolute URL. An empty base means none.
func (i *isolate) parseURL(a []qjs.Value) (qjs.Value, bool) {
	text, ok1 := i.vm.Text(a[0], -1)
	base, ok2 := i.vm.Text(a[1], -1)
	if !ok1 || !ok2 {
		return i.vm.Rethrow()
	}
	u, err := resolveURL(text, base)
	if err != nil {
		return i.vm.ThrowError("TypeError", "Invalid URL: "+text)
	}
	parts, ok := i.vm.Object()
	if !ok {
		return i.vm.Rethrow()
	}
	for name, part := range urlParts(u) {
		v, ok := i.vm.String(part)
		if !ok || !i.vm.Define(parts, name, v, qjs.Plain) {
			return i.vm.Rethrow()
		}
	}
	if !i.vm.Define(parts, "opaque", qjs.Bool(u.Opaque != ""), qjs.Plain) {
		return i.vm.Rethrow()
	}
	return parts, true
}

func resolveURL(text, base string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	if base != "" {
		b, err := resolveURL(base, "")
		if err != nil {
			return nil, err
		}
		u = b.ResolveReference(u)
	}
	if !u.IsAbs() || defaultPorts[u.Scheme] != "" && u.Hostname() == "" {
		return nil, url.InvalidHostError(text)
	}
	return u, nil
}

func urlParts(u *url.URL) map[string]string {
	path := u.EscapedPath()
	if u.Opaque != "" {
		path = u.Opaque
	} else if path == "" {
		path = "/"
	} else {
		// Resolving the path against / removes the dots.
		path = (&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: u.Path, RawPath: u.RawPath}).EscapedPath()
	}
	port := u.Port()
	if port == defaultPorts[u.Scheme] {
		port = ""
	}
	hostname := strings.ToLower(u.Hostname())
	if strings.Contains(hostname, ":") {
		hostname = "[" + hostname + "]"
	}
	parts := map[string]string{
		"protocol": u.Scheme + ":", "username": "", "password": "", "hostname": hostname, "port": port,
		"pathname": path, "search": "", "hash": "",
	}
	if u.User != nil {
		name, password, _ := strings.Cut(u.User.String(), ":")
		parts["username"], parts["password"] = name, password
	}
	if u.RawQuery != "" {
		parts["search"] = "?" + strings.ReplaceAll(u.RawQuery, " ", "%20")
	}
	if u.Fragment != "" {
		parts["hash"] = "#" + u.EscapedFragment()
	}
	return parts
}
