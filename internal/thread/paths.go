package thread

import (
	"path"
	"strings"
)

const (
	maxPathBytes = 1024
	maxNameBytes = 255
)

// NormalizePath returns the canonical form of a path of a thread's files: absolute, without empty parts, "." or a
// trailing slash; "/" is the root. "..", NUL and over-long paths are an *InvalidError (FIL-04).
func NormalizePath(p string) (string, error) {
	if err := checkText("path", p); err != nil {
		return "", err
	}
	if len(p) > maxPathBytes {
		return "", invalid("path", "it has %d bytes, more than %d: use a shorter one", len(p), maxPathBytes)
	}
	var parts []string
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", invalid("path", "%q leads out of its folder: write it without \"..\"", p)
		case len(part) > maxNameBytes:
			return "", invalid("path", "a part of it has %d bytes, more than %d: use a shorter name", len(part), maxNameBytes)
		}
		parts = append(parts, part)
	}
	return "/" + strings.Join(parts, "/"), nil
}

// filePath is NormalizePath for paths that cannot be the root.
func filePath(p string) (string, error) {
	clean, err := NormalizePath(p)
	if err == nil && clean == "/" {
		return "", invalid("path", "name a file, such as /notes.txt")
	}
	return clean, err
}

func baseName(p string) string {
	if p == "/" {
		return ""
	}
	return path.Base(p)
}
