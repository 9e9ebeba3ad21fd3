package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// Agents and Prompts take each hook that has a constant, and no other. Their lists have room for all of them.
func TestObjectsTakeEachHook(t *testing.T) {
	names := hookNames(t)
	for _, list := range []string{"Agent.spec.hooks", "Prompt.spec.hooks"} {
		property := list + "[].hook"
		if taken := enumOf(t, property); !slices.Equal(taken, names) {
			t.Errorf("%s takes the hooks %q, but hook_types.go has constants for %q", property, taken, names)
		}
		if most := maxItemsOf(t, list); most != int64(len(names)) {
			t.Errorf("%s takes %d hooks, but hook_types.go has constants for %d", list, most, len(names))
		}
	}
}

// maxItemsOf returns how many items a list of the CRDs takes at most.
func maxItemsOf(t *testing.T, property string) (most int64) {
	t.Helper()
	eachSchema(t, func(path string, schema apiextensionsv1.JSONSchemaProps) {
		if path == property && schema.MaxItems != nil {
			most = *schema.MaxItems
		}
	})
	if most == 0 {
		t.Fatalf("the CRDs bound no list %s", property)
	}
	return most
}

// The heading of the page on hooks and HOK-01 of the specification say how many hooks there are. HOK-01 names each.
func TestNumberOfHooksIsTheSameEverywhere(t *testing.T) {
	names := hookNames(t)
	number := map[int]string{12: "twelve", 13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen"}[len(names)]
	row := regexp.MustCompile(`(?m)^\| HOK-01 \| .*`).FindString(read(t, root, "docs/specification.md"))
	for _, want := range []struct{ where, text, says string }{
		{"docs/hooks.md", read(t, root, "docs/hooks.md"), "\n## The " + number + " hooks\n"},
		{"HOK-01 of docs/specification.md", row, "There are " + number + " hooks: "},
	} {
		if number == "" || !strings.Contains(want.text, want.says) {
			t.Errorf("%s does not say %q, but hook_types.go has constants for %d hooks", want.where, want.says, len(names))
		}
	}
	for _, name := range names {
		if !strings.Contains(row, "`"+name+"`") {
			t.Errorf("HOK-01 of docs/specification.md does not name the hook %s", name)
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
	_, section, found = strings.Cut(section, "Where a run calls its hooks") // before it is hooks/run.go
	if !found {
		t.Fatal(`the section "A hook" of docs/architecture.md does not say "Where a run calls its hooks"`)
	}
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`\.hooks\.(BeforeCreate|AfterCreate|BeforeResult|AfterResult|FilterMessages|PrefilterHistory|Announce|CallDue|CallFinal)\(`)
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
