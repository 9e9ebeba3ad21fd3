// Package doctest checks the guide: its manifests must be valid, and its links must lead somewhere.
package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/guide"
)

const root = "../.."

func pages(t *testing.T) []string {
	t.Helper()
	files, err := guide.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("only %d pages: %v", len(files), files)
	}
	return files
}

// Every manifest of one of our kinds is decoded strictly: an unknown field is an error.
func TestManifestsOfTheGuide(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := skeinv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	seen := 0
	for _, page := range pages(t) {
		blocks, err := guide.Blocks(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.Language != "yaml" {
				continue
			}
			for doc := range strings.SplitSeq(b.Text, "\n---\n") {
				// Fragments of manifests omit the version.
				if kind, ok := strings.CutPrefix(doc, "kind: "); ok {
					if kind, _, _ = strings.Cut(kind, "\n"); scheme.Recognizes(skeinv1.GroupVersion.WithKind(kind)) {
						doc = "apiVersion: " + skeinv1.GroupVersion.String() + "\n" + doc
					}
				}
				if !strings.Contains(doc, "apiVersion: "+skeinv1.GroupVersion.String()) {
					continue
				}
				seen++
				if _, _, err := decoder.Decode([]byte(doc), nil, nil); err != nil {
					t.Errorf("%s: %v\n%s", b, err, doc)
				}
			}
		}
	}
	if seen < 35 {
		t.Errorf("only %d manifests were found", seen)
	}
}

var (
	link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

func TestLinksOfTheGuide(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
}
