package doctest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// packages returns the folders below internal, cmd and api that have Go files, with the text of those files. Tests do not count.
func packages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, top := range []string{"internal", "cmd", "api"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				return err
			}
			found[filepath.ToSlash(dir)] += string(text)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 100 {
		t.Fatalf("only %d packages were found", len(found))
	}
	return found
}

// A reader looks up in docs/architecture.md what a package is for, so each has a row of its own or, below internal/controller, one
// with all kinds. Packages that only tests or go generate use have none.
func TestEveryPackageHasARow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			first, _, _ := strings.Cut(line[2:], " | ")
			rows.WriteString(first + "\n")
		}
	}
	onlyTests := regexp.MustCompile(`(test|suite|/generate)$`)
	for dir := range packages(t) {
		switch {
		case onlyTests.MatchString(dir), path.Dir(dir) == "internal/controller":
		case !strings.Contains(rows.String(), "`"+dir+"`"):
			t.Errorf("docs/architecture.md has no row for %s: say there what it is for", dir)
		}
	}
}

// inCode matches what an entry of the glossary says of the code, up to its end or to the links that follow.
var inCode = regexp.MustCompile(`(?s)In the code(.*?)(?: More:|\n\n|$)`)

// What the glossary says a term is called in the code is called so.
func TestTheGlossaryNamesWhatTheCodeHas(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := packages(t)
	has := func(in func(dir string) bool, name string) bool {
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
		for dir, text := range code {
			if in(dir) && word.MatchString(text) {
				return true
			}
		}
		return false
	}
	checked := 0
	for _, m := range inCode.FindAllStringSubmatch(string(text), -1) {
		var names []string
		folder := ""
		for _, span := range spans.FindAllStringSubmatch(m[1], -1) {
			if name := span[2]; strings.Contains(name, "/") {
				folder = name
			} else {
				names = append(names, name)
			}
		}
		if folder != "" && code[folder] == "" {
			t.Errorf("the glossary names the package %s, which does not exist", folder)
			continue
		}
		for _, name := range names {
			checked++
			parts := strings.Split(name, ".")
			in := func(dir string) bool { return folder == "" || dir == folder }
			if first := parts[0]; folder == "" && len(parts) > 1 && first == strings.ToLower(first) {
				in = func(dir string) bool { return path.Base(dir) == first }
				parts = parts[1:]
			}
			for _, part := range parts {
				if !has(in, part) {
					t.Errorf("the glossary says that the code has %s, but nothing there is called %s", name, part)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d names were checked", checked)
	}
}
