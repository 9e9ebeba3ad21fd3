package thread

import (
	"regexp"
	"strings"
)

// compileGlob compiles a pattern of *, ** and ? to a matcher of normalised paths. Without a leading slash the pattern
// matches at any depth (FIL-05).
func compileGlob(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, invalid("pattern", "give a glob, such as *.csv or /reports/**")
	}
	if len(pattern) > maxPathBytes {
		return nil, invalid("pattern", "it has %d bytes, more than %d", len(pattern), maxPathBytes)
	}
	if err := checkText("pattern", pattern); err != nil {
		return nil, err
	}
	var re strings.Builder
	re.WriteString("^")
	rest, rooted := strings.CutPrefix(pattern, "/")
	if rooted {
		re.WriteString("/")
	} else {
		re.WriteString("/(?:.*/)?")
	}
	for rest != "" {
		switch {
		case strings.HasPrefix(rest, "**/"): // any number of folders, also none
			re.WriteString("(?:.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			re.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			re.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			re.WriteString("[^/]")
			rest = rest[1:]
		default:
			end := strings.IndexAny(rest, "*?")
			if end < 0 {
				end = len(rest)
			}
			re.WriteString(regexp.QuoteMeta(rest[:end]))
			rest = rest[end:]
		}
	}
	re.WriteString("$")
	return regexp.Compile("(?s)" + re.String())
}
