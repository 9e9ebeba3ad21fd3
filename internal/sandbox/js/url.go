//go:build linux && (amd64 || arm64)

package js

import (
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/js/weburl"
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
	for _, f := range []hostFunc{{"parseURL", 2, i.parseURL}, {"setURL", 3, i.setURL}, {"decodeForm", 1, i.decodeForm}} {
		v, ok := i.vm.Func(f.name, f.length, f.call)
		if !ok || !i.vm.Define(sys, f.name, v, qjs.Fixed) {
			return i.vm.Rethrow()
		}
	}
	return i.vm.Call(make, qjs.Undefined, sys)
}

// parseURL implements parseURL(url, base), which returns the parts of the absolute URL. base may be undefined.
func (i *isolate) parseURL(a []qjs.Value) (qjs.Value, bool) {
	text, ok := i.vm.Text(a[0], -1)
	if !ok {
		return i.vm.Rethrow()
	}
	var base *weburl.URL
	valid := true
	if !qjs.IsUndefined(a[1]) {
		from, ok := i.vm.Text(a[1], -1)
		if !ok {
			return i.vm.Rethrow()
		}
		base, valid = weburl.Parse(from, nil)
	}
	if valid {
		if u, ok := weburl.Parse(text, base); ok {
			return i.urlParts(u)
		}
	}
	return i.vm.ThrowError("TypeError", "Invalid URL: "+text)
}

// setURL implements setURL(url, part, value), which returns the parts of the URL with one of them changed.
func (i *isolate) setURL(a []qjs.Value) (qjs.Value, bool) {
	text, ok1 := i.vm.Text(a[0], -1)
	part, ok2 := i.vm.Text(a[1], -1)
	v, ok3 := i.vm.Text(a[2], -1)
	if !ok1 || !ok2 || !ok3 {
		return i.vm.Rethrow()
	}
	u, ok := weburl.Parse(text, nil)
	if !ok {
		return i.vm.ThrowError("TypeError", "Invalid URL: "+text)
	}
	u.Set(part, v)
	return i.urlParts(u)
}

// urlParts returns an object with the properties of a URL.
func (i *isolate) urlParts(u *weburl.URL) (qjs.Value, bool) {
	parts, ok := i.vm.Object()
	if !ok {
		return i.vm.Rethrow()
	}
	for _, p := range [...][2]string{
		{"href", u.String()}, {"origin", u.Origin()}, {"protocol", u.Scheme + ":"}, {"username", u.Username}, {"password", u.Password},
		{"host", u.HostPort()}, {"hostname", u.Host}, {"port", u.Port}, {"pathname", u.Path()},
		{"search", after("?", u.Query)}, {"hash", after("#", u.Fragment)},
	} {
		v, ok := i.vm.String(p[1])
		if !ok || !i.vm.Define(parts, p[0], v, qjs.Plain) {
			return i.vm.Rethrow()
		}
	}
	return parts, true
}

// after returns a part of a URL after its mark, or nothing if the part is empty.
func after(mark, part string) string {
	if part == "" {
		return ""
	}
	return mark + part
}

// decodeForm implements decodeForm(text), which decodes a name or a value of a form in a URL.
func (i *isolate) decodeForm(a []qjs.Value) (qjs.Value, bool) {
	text, ok := i.vm.Text(a[0], -1)
	if !ok {
		return i.vm.Rethrow()
	}
	return i.vm.UTF8(validUTF8(weburl.Decode(strings.ReplaceAll(text, "+", " "))))
}
