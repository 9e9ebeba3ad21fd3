package thread

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzNormalizePath checks that every normalised path stays within the root and normalises to itself (FIL-04).
func FuzzNormalizePath(f *testing.F) {
	for _, seed := range []string{
		"", "/", ".", "..", "/a/../b", "a//b/./c", "/a/..", "/.../x", "//", "/a\x00b", "/\xff", "/ü", "a/" + strings.Repeat("b", 255),
		strings.Repeat("a/", 600), "/a/...", "./..", "\\..\\x", "/a\n/b", strings.Repeat("x", 256),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := NormalizePath(p)
		if err != nil {
			if !IsInvalid(err) {
				t.Fatalf("%q: %v is not the caller's mistake", p, err)
			}
			return
		}
		again, err := NormalizePath(clean)
		if err != nil || again != clean {
			t.Fatalf("%q became %q, and that %q, %v", p, clean, again, err)
		}
		if !strings.HasPrefix(clean, "/") || path.Clean(clean) != clean || len(clean) > maxPathBytes || !utf8.ValidString(clean) || strings.ContainsRune(clean, 0) {
			t.Fatalf("%q became %q, which is no normalised path", p, clean)
		}
		for part := range strings.SplitSeq(clean, "/") {
			if part == ".." || len(part) > maxNameBytes {
				t.Fatalf("%q became %q", p, clean)
			}
		}
	})
}

// FuzzGlob checks that a glob matches what a simple interpreter of it matches (FIL-05).
func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{
		{"*.csv", "/a.csv"}, {"/a/**", "/a/b/c"}, {"a?c", "/x/abc"}, {"**/x", "/x"}, {"/**/x", "/a/x"}, {"[a]", "/a"}, {"a**b", "/a/b"},
		{"/", "/"}, {"***", "/a/b"}, {"?", "/é"}, {"(", "/("}, {"\\*", "/\\x"}, {"/a/*/c", "/a/b/c"}, {"**", "/a\nb"}, {"$^", "/$^"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		clean, err := NormalizePath(name)
		if err != nil || clean == "/" {
			return
		}
		re, err := compileGlob(glob)
		if err != nil {
			if !IsInvalid(err) {
				t.Fatalf("%q: %v is not the caller's mistake", glob, err)
			}
			return
		}
		if strings.Count(glob, "*") > 8 || len(glob) > 64 || len(clean) > 64 {
			return // the simple interpreter is slow
		}
		want := false
		if rest, rooted := strings.CutPrefix(glob, "/"); rooted {
			want = globMatches([]rune(rest), []rune(clean[1:]))
		} else {
			for i, r := range clean {
				want = want || r == '/' && globMatches([]rune(glob), []rune(clean[i+1:]))
			}
		}
		if got := re.MatchString(clean); got != want {
			t.Fatalf("%q on %q: %t, want %t", glob, clean, got, want)
		}
	})
}

// globMatches is the simple interpreter: character by character.
func globMatches(glob, name []rune) bool {
	if len(glob) == 0 {
		return len(name) == 0
	}
	switch {
	case glob[0] == '*' && len(glob) > 1 && glob[1] == '*':
		if len(glob) > 2 && glob[2] == '/' { // any folders, also none
			if globMatches(glob[3:], name) {
				return true
			}
			for i, r := range name {
				if r == '/' && globMatches(glob[3:], name[i+1:]) {
					return true
				}
			}
			return false
		}
		for i := 0; i <= len(name); i++ {
			if globMatches(glob[2:], name[i:]) {
				return true
			}
		}
		return false
	case glob[0] == '*':
		for i := 0; ; i++ {
			if globMatches(glob[1:], name[i:]) {
				return true
			}
			if i == len(name) || name[i] == '/' {
				return false
			}
		}
	case len(name) == 0:
		return false
	case glob[0] == '?':
		return name[0] != '/' && globMatches(glob[1:], name[1:])
	}
	return glob[0] == name[0] && globMatches(glob[1:], name[1:])
}

// FuzzImage checks that no head of an image makes examine fail, or underestimate the memory for decoding (FIL-06).
func FuzzImage(f *testing.F) {
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"))
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff"))
	f.Add([]byte("\xff\xd8\xff\xc2\x00\x11\x08\x00\x10\x00\x10\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"))
	f.Add([]byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"))
	f.Add([]byte("RIFF\xff\xff\xff\xffWEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00VP8L\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := examine(data)
		if err != nil || p == nil {
			return
		}
		if p.width <= 0 || p.height <= 0 || p.decodedBytes() <= 0 {
			t.Fatalf("an image of %d by %d pixels", p.width, p.height)
		}
	})
}
