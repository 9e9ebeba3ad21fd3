package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contributorFiles are the files for contributors, with the least number of paths and of make targets that each names.
var contributorFiles = []struct {
	name           string
	paths, targets int
}{
	{"CONTRIBUTING.md", 60, 50},
	{"SECURITY.md", 0, 0},
	{"CHANGELOG.md", 0, 0},
	{"docs/architecture.md", 80, 0},
	{".github/PULL_REQUEST_TEMPLATE.md", 3, 4},
	{".github/CODEOWNERS", 10, 0},
	{".github/ISSUE_TEMPLATE/bug.yaml", 2, 0},
	{".github/workflows/test.yaml", 2, 1},
	{".github/workflows/release.yaml", 0, 2},
	{".pre-commit-config.yaml", 1, 1},
}

var (
	// spans matches what Markdown shows as code: blocks and words between backquotes.
	spans = regexp.MustCompile("(?s)```.*?\n(.*?)```|`([^`\n]+)`")
	// makeCommand matches a call of make and the words behind it, up to what ends a command.
	makeCommand = regexp.MustCompile(`(?m)\bmake((?: +[A-Za-z0-9_=./:*-]+)+)`)
	// quoted matches the value of a variable that has spaces in it.
	quoted = regexp.MustCompile(`"[^"\n]*"|'[^'\n]*'`)
	// repositoryPath matches a path below a folder of the repository's root that is not part of a longer path or name.
	repositoryPath = regexp.MustCompile(`(^|[\s("'=,:|])(?:\./|/)?((?:api|cmd|config|docs|hack|internal|test|\.ci|\.github)/[A-Za-z0-9_.*/-]*)`)
)

// texts returns the parts of a file that are searched for commands and paths: in Markdown what it shows as code, else all of it.
func texts(name, content string) []string {
	if !strings.HasSuffix(name, ".md") {
		return []string{content}
	}
	var found []string
	for _, m := range spans.FindAllStringSubmatch(content, -1) {
		found = append(found, m[1]+m[2])
	}
	return found
}

// makeWords returns the targets and the variables of the calls of make in a text.
func makeWords(text string) (targets, variables []string) {
	for _, m := range makeCommand.FindAllStringSubmatch(quoted.ReplaceAllString(text, "x"), -1) {
		for _, word := range strings.Fields(m[1]) {
			if name, _, ok := strings.Cut(word, "="); ok {
				variables = append(variables, name)
			} else {
				targets = append(targets, word)
			}
		}
	}
	return targets, variables
}

// pathsOf returns the paths of the repository in a text. It cuts off the dots of a package pattern, a slash and a full stop at the end.
func pathsOf(text string) []string {
	var found []string
	for _, m := range repositoryPath.FindAllStringSubmatch(text, -1) {
		found = append(found, strings.TrimRight(strings.TrimSuffix(m[2], "/..."), "./"))
	}
	return found
}

func TestWhatIsLookedForInTextsForContributors(t *testing.T) {
	targets, variables := makeWords("make test-unit PKG=\"./a ./b\" FILTER='x && y' # and more\nCI=true make generate docs; make RELEASE=1 build")
	if want := []string{"test-unit", "generate", "docs", "build"}; !slices.Equal(targets, want) {
		t.Errorf("the targets are %q, not %q", targets, want)
	}
	if want := []string{"PKG", "FILTER", "RELEASE"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %q, not %q", variables, want)
	}
	found := pathsOf("go test ./internal/store/... -x; see hack/test.sh. /api/ and build/testrun, example.com/docs/a, config/*/x.yaml")
	if want := []string{"internal/store", "hack/test.sh", "api", "config/*/x.yaml"}; !slices.Equal(found, want) {
		t.Errorf("the paths are %q, not %q", found, want)
	}
}

// Each target and variable of make, each path and each link that the files for contributors name exists.
func TestTextsForContributors(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	phony := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		for _, target := range strings.Fields(m[1]) {
			phony[target] = true
		}
	}
	for _, file := range contributorFiles {
		content, err := os.ReadFile(filepath.Join(root, file.name))
		if err != nil {
			t.Error(err)
			continue
		}
		paths, targets := 0, 0
		for _, text := range texts(file.name, string(content)) {
			called, set := makeWords(text)
			for _, target := range called {
				targets++
				if !phony[target] {
					t.Errorf("%s: make %s: the Makefile has no such target", file.name, target)
				}
			}
			for _, variable := range set {
				if !regexp.MustCompile(`\$\(` + variable + `\)|(?m)^(export )?` + variable + ` \?=`).Match(makefile) {
					t.Errorf("%s: make %s=…: the Makefile has no such variable", file.name, variable)
				}
			}
			for _, path := range pathsOf(text) {
				paths++
				if found, err := filepath.Glob(filepath.Join(root, path)); err != nil || len(found) == 0 {
					t.Errorf("%s: %s does not exist: %v", file.name, path, err)
				}
			}
		}
		if paths < file.paths || targets < file.targets {
			t.Errorf("%s: only %d paths and %d targets of make were found, not %d and %d", file.name, paths, targets, file.paths, file.targets)
		}
		if !strings.HasSuffix(file.name, ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(content), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(file.name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", file.name, m[1], err)
			}
		}
	}
}
