package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every piece of Go in the guides is in the examples, word for word, so that it compiles.
func TestGuide(t *testing.T) { checkGuide(t, "../../../docs/go-client.md", 5) }

func TestGuideToCode(t *testing.T) { checkGuide(t, "../../../docs/code-execution.md", 1) }

func checkGuide(t *testing.T, file string, least int) {
	t.Helper()
	guide, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	if len(pieces) < least {
		t.Fatalf("the guide has only %d pieces of Go", len(pieces))
	}
	for _, p := range pieces {
		var indented strings.Builder
		for line := range strings.Lines(p[1]) {
			if strings.TrimSpace(line) != "" {
				indented.WriteByte('\t')
			}
			indented.WriteString(line)
		}
		if !strings.Contains(string(examples), indented.String()) {
			t.Errorf("this is in the guide, but not in example_test.go:\n%s", p[1])
		}
	}
}
