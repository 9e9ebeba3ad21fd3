package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const page = "# Page\n\n1. First:\n\n   ```sh\n   # what follows\n   A=1\n   echo a | \\\n     cat\n   echo b |\n     cat   # both\n   ```\n\n```console\n$ echo x\nx\n\n$ true\n```\n\n" +
	"```ts\nconst a = 1;\n```\n\n```yaml\ncode:\n  inline: |\n    const b = 2;\ninstructions: {inline: not code}\n```\n"

func write(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range map[string]string{"README.md": text, "config/samples/tool.yaml": "spec:\n  code: {inline: const c = 3;}\n"} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCommandsAreWhatIsPrinted(t *testing.T) {
	got, err := Commands(write(t, page), "README.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []Command{
		{"README.md:7", "A=1\n", ""},
		{"README.md:8", "echo a | \\\n  cat\n", ""},
		{"README.md:10", "echo b |\n  cat   # both\n", ""},
		{"README.md:15", "echo x\n", "x\n\n"},
		{"README.md:18", "true\n", ""},
	}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, not %q", got[i], want[i])
		}
	}
	if _, err := Commands(write(t, "```sh\nopen\n"), "README.md"); err == nil {
		t.Error("a block that is not closed is no error")
	}
}

func TestExamplesAreAllCode(t *testing.T) {
	got, err := Examples(write(t, page))
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	for _, e := range got {
		code = append(code, strings.TrimSpace(e.Code))
	}
	if strings.Join(code, "|") != "const a = 1;|const b = 2;|const c = 3;" {
		t.Errorf("%q", got)
	}
}

func TestOutputsAreComparedButForWhatVaries(t *testing.T) {
	for _, c := range []struct {
		page, real string
		same       bool
	}{
		{"NAME   AGE\nx-0123456789abcdef   4s\n", "NAME    AGE\nx-fedcba9876543210   1m12s\n", true},
		{"a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"2026-11-22T09:30:12Z info x\n", "2027-01-01T00:00:00.5Z info x\n", true},
		{"a\n…\n", "a\nb\n", true},
		{"a\n…\nz\n", "a\nb\n", false},
		{"├─a\n└─Pod/x\n", "└─a\n", true},
		{"a\n", "a\nb\n", false},
		{"a\nb\n", "a\n", false},
		{"5 messages\n", "6 messages\n", false},
		{"…\na\n", "a\n", true},
	} {
		if Same(c.page, c.real, func(line string) bool { return strings.Contains(line, "Pod/") }) != c.same {
			t.Errorf("%q and %q: not %t", c.page, c.real, c.same)
		}
	}
}
