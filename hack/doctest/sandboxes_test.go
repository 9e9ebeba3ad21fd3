package doctest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each way in which a thread gets its sandbox pod is a label of the metrics, is taken by a file that "Where a change goes" in
// docs/architecture.md names, and is named in the guide.
func TestEachWayToASandboxHasItsPlaces(t *testing.T) {
	const folder = "internal/kube/sandboxes"
	_, section, found := strings.Cut(read(t, root, "docs/architecture.md"), "**The claim of a warm pod**")
	if !found {
		t.Fatal(`docs/architecture.md has no section "The claim of a warm pod"`)
	}
	section, _, _ = strings.Cut(section, "\n**")
	_, guide, found := strings.Cut(read(t, root, "docs/sandboxes.md"), "\n## How fast a sandbox is\n")
	if !found {
		t.Fatal(`docs/sandboxes.md has no section "How fast a sandbox is"`)
	}
	guide, _, _ = strings.Cut(guide, "\n## ")

	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") || name == "metrics.go" {
			continue
		}
		sources[name] = read(t, file)
		if strings.Contains(sources[name], "acquisition) ") && !strings.Contains(section, "`"+folder+"/"+name+"`") {
			t.Errorf("docs/architecture.md does not say what belongs into %s/%s", folder, name)
		}
	}
	ways := regexp.MustCompile(`(?m)^\t(found[A-Z]\w*)\s+= "(\w+)"`).FindAllStringSubmatch(read(t, root, folder, "metrics.go"), -1)
	if len(ways) < 4 {
		t.Fatalf("only %d ways were found in %s/metrics.go", len(ways), folder)
	}
	for _, way := range ways {
		if !strings.Contains(guide, "`"+way[2]+"`") {
			t.Errorf("docs/sandboxes.md does not say that a pod may be found as `%s`", way[2])
		}
		taken := false
		for _, source := range sources {
			taken = taken || regexp.MustCompile(`\b`+way[1]+`\b`).MatchString(source)
		}
		if !taken {
			t.Errorf("no thread gets its pod as %s", way[1])
		}
	}
}
