package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// anchor matches what a heading's anchor leaves out.
var anchor = regexp.MustCompile(`[^a-z0-9 -]`)

// The terms of the glossary are in alphabetical order, each once. Each links to a page that says more, and to other terms that
// exist.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, entries, _ := strings.Cut(string(text), "\n### ")
	anchors := map[string]bool{}
	last := ""
	for entry := range strings.SplitSeq(entries, "\n### ") {
		term, meaning, _ := strings.Cut(entry, "\n")
		lower := strings.ToLower(term)
		if lower <= last {
			t.Errorf("%q stands behind %q", term, last)
		}
		last = lower
		anchors[strings.ReplaceAll(anchor.ReplaceAllString(lower, ""), " ", "-")] = true
		if !link.MatchString(meaning) {
			t.Errorf("%q links to no page", term)
		}
	}
	if len(anchors) < 100 {
		t.Errorf("only %d terms were found", len(anchors))
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(entries, -1) {
		if !anchors[m[1]] {
			t.Errorf("there is no term for #%s", m[1])
		}
	}
}
