package doctest

import (
	"os"
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
