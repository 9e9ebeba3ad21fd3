package doctest

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricName is the name of a metric where Go code declares it.
var metricName = regexp.MustCompile(`(?:Name: *|NewDesc\()"(skein_[a-z_]+)"`)

// The page lists every metric of the source, and no other.
func TestMetricsAreListed(t *testing.T) {
	declared := map[string]bool{}
	for _, folder := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			for _, found := range metricName.FindAllStringSubmatch(string(data), -1) {
				declared[found[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(skein_[a-z_]+)` \\|").FindAllStringSubmatch(string(data), -1) {
		if listed[row[1]] {
			t.Errorf("docs/metrics.md lists %s twice", row[1])
		}
		listed[row[1]] = true
	}
	if len(declared) < 30 {
		t.Fatalf("found only %d metrics in the source: %v", len(declared), declared)
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !listed[name] {
			t.Errorf("docs/metrics.md does not list %s: add a row for it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !declared[name] {
			t.Errorf("docs/metrics.md lists %s, which the source does not declare: remove its row", name)
		}
	}
}
