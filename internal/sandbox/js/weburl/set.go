package weburl

import "strings"

// Set changes the part of the URL with this name of the class URL. A value that the part cannot have changes nothing.
func (u *URL) Set(part, value string) {
	changed := *u
	if part != "username" && part != "password" {
		value = withoutBreaks(value)
	}
	if changed.set(part, value) {
		*u = changed
	}
}

// set reports whether the part can have the value. If it cannot, u may be changed in part.
func (u *URL) set(part, value string) bool {
	switch part {
	case "protocol":
		return u.setScheme(value)
	case "username":
		u.Username = userinfoSet.encode(value)
		return !u.bare()
	case "password":
		u.Password = userinfoSet.encode(value)
		return !u.bare()
	case "host", "hostname":
		return u.setHostPort(value, part == "host")
	case "port":
		digits := leadingDigits(value)
		return !u.bare() && (digits != "" || value == "") && u.setPort(digits)
	case "pathname":
		if u.isOpaque {
			return false
		}
		u.segments = nil
		if value != "" || u.special() || !u.hasHost {
			u.parsePath(value)
		}
	case "search":
		u.Query, u.hasQuery = u.querySet().encode(strings.TrimPrefix(value, "?")), value != ""
	case "hash":
		u.Fragment, u.hasFragment = fragmentSet.encode(strings.TrimPrefix(value, "#")), value != ""
	}
	return true
}

// bare reports whether the URL can have no user, password and port.
func (u *URL) bare() bool { return u.Host == "" || u.Scheme == "file" }

func (u *URL) setScheme(value string) bool {
	scheme, _, _ := strings.Cut(value, ":")
	own, special := defaultPort(strings.ToLower(scheme))
	isFile := strings.EqualFold(scheme, "file")
	if !isScheme(scheme) || special != u.special() || isFile && (u.Username != "" || u.Password != "" || u.Port != "") || u.Scheme == "file" && u.Host == "" {
		return false
	}
	if u.Scheme = strings.ToLower(scheme); u.Port == own {
		u.Port = ""
	}
	return true
}

// setHostPort sets the host, and, if withPort is true, the port that may follow it.
func (u *URL) setHostPort(value string, withPort bool) bool {
	end := 0
	for end < len(value) && !u.isSlash(value[end]) && value[end] != '?' && value[end] != '#' {
		end++
	}
	host, port, hasPort := cutPort(value[:end])
	switch {
	case u.isOpaque || hasPort && (!withPort || host == "" || u.Scheme == "file"):
		return false
	case host == "" && (u.special() && u.Scheme != "file" || u.Username != "" || u.Password != "" || u.Port != ""):
		return false
	case !u.setHost(host):
		return false
	}
	if digits := leadingDigits(port); digits != "" {
		before := u.Port
		if !u.setPort(digits) {
			u.Port = before
		}
	}
	return true
}

func leadingDigits(text string) string {
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	return text[:end]
}
