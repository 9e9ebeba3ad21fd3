package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hookNames returns the names of the hooks that api/v1alpha1/hook_types.go has constants for, sorted.
func hookNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^\tHook\w+ +HookName = "(\w+)"`).FindAllStringSubmatch(read(t, root, "api/v1alpha1/hook_types.go"), -1) {
		names = append(names, m[1])
	}
	if len(names) < 12 {
		t.Fatalf("hook_types.go has %d names of hooks; the pattern does not fit any more", len(names))
	}
	slices.Sort(names)
	return names
}

// Agents and Prompts take each hook that has a constant, and no other.
func TestObjectsTakeEachHook(t *testing.T) {
	names := hookNames(t)
	for _, property := range []string{"Agent.spec.hooks[].hook", "Prompt.spec.hooks[].hook"} {
		if taken := enumOf(t, property); !slices.Equal(taken, names) {
			t.Errorf("%s takes the hooks %q, but hook_types.go has constants for %q", property, taken, names)
		}
	}
}

// The page on hooks has a row for each hook.
func TestGuideNamesEachHook(t *testing.T) {
	page, err := os.ReadFile("../../docs/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../api/v1alpha1/hook_types.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`HookName = "(\w+)"`).FindAllSubmatch(source, -1)
	if len(names) < 12 {
		t.Fatalf("hook_types.go has %d names of hooks; the pattern does not fit any more", len(names))
	}
	types, err := os.ReadFile("../../internal/sandbox/types/builder.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range names {
		if !strings.Contains(string(page), "`"+string(m[1])+"`") {
			t.Errorf("docs/hooks.md does not name the hook %s", m[1])
		}
		if !strings.Contains(string(types), string(m[1])) {
			t.Errorf("builder.d.ts does not name the hook %s", m[1])
		}
	}
}

// "Where a change goes" in docs/architecture.md names each file of a run that calls hooks.
func TestEachFileThatCallsHooksIsNamed(t *testing.T) {
	const folder = "internal/engine/run"
	_, section, found := strings.Cut(read(t, root, "docs/architecture.md"), "\n**A hook**\n")
	if !found {
		t.Fatal(`docs/architecture.md has no section "A hook"`)
	}
	section, _, _ = strings.Cut(section, "\n**")
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`\.hooks\.(BeforeCreate|AfterCreate|BeforeResult|AfterResult|FilterMessages|PrefilterHistory|CallDue|CallFinal)\(`)
	calling := 0
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") && calls.MatchString(read(t, file)) {
			calling++
			if !strings.Contains(section, "`"+name+"`") {
				t.Errorf(`the section "A hook" of docs/architecture.md does not name %s of %s, which calls hooks`, name, folder)
			}
		}
	}
	if calling < 5 {
		t.Errorf("only %d files of %s call hooks; the pattern does not fit any more", calling, folder)
	}
}
