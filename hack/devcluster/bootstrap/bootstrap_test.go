package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module makes a small Go module that stands for hack/devcluster.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var files = map[string]string{
	"go.mod":          "module example.test/x\n\ngo 1.26.0\n",
	"main.go":         "package main\n\nfunc main() { println(\"one\") }\n",
	"main_test.go":    "package main\n",
	"README.md":       "words\n",
	"bootstrap/b.go":  "package main\n",
	"internal/a/a.go": "package a\n",
}

func TestKeyFollowsWhatIsBuilt(t *testing.T) {
	dir := module(t, files)
	a := artifact{name: "x", module: ".", skip: []string{"bootstrap"}}
	key := func(gover string) string {
		t.Helper()
		k, err := a.key(dir, gover)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := key("go1.26.0")
	if key("go1.26.1") == first {
		t.Error("another toolchain has the same key")
	}
	for name, changes := range map[string]bool{"main.go": true, "go.mod": true, "internal/a/a.go": true, "main_test.go": false, "README.md": false, "bootstrap/b.go": false} {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(files[name]+"// more\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := key("go1.26.0") != first; got != changes {
			t.Errorf("editing %s: key changed: %v, want %v", name, got, changes)
		}
		if err := os.WriteFile(p, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// small is an artifact of the module above.
func small() artifact {
	return artifact{name: "x", module: ".", steps: func(string) ([]step, error) {
		return []step{{out: "x", pkgs: []string{"."}}}, nil
	}}
}

func newBuilder(t *testing.T, src string, out io.Writer) *builder {
	t.Helper()
	t.Setenv("SKEIN_CACHE", t.TempDir())
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	return &builder{src: src, cache: c, out: out, gover: "go"}
}

func TestBuildMakesACompleteArtifactOrNone(t *testing.T) {
	dir := module(t, files)
	var out bytes.Buffer
	b := newBuilder(t, dir, &out)
	a := small()
	if err := os.MkdirAll(filepath.Join(b.cache.dir, ".build-old"), 0o755); err != nil { // an interrupted build
		t.Fatal(err)
	}
	key, err := b.key(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.build(context.Background(), a, key); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.cache.path("x", key), "x")); err != nil {
		t.Error(err)
	}
	if !b.built(a) || !strings.Contains(out.String(), "building x") || !strings.Contains(out.String(), "x built in") {
		t.Errorf("built %v, output %q", b.built(a), out.String())
	}

	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	key, err = b.key(a)
	if err != nil {
		t.Fatal(err)
	}
	err = b.build(context.Background(), a, key)
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("a broken source gives %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.cache.dir, ".build-*")); b.built(a) || len(left) > 0 {
		t.Errorf("after a failure: built %v, left %v", b.built(a), left)
	}
}

func TestAnInterruptedBuildLeavesNothing(t *testing.T) {
	b := newBuilder(t, module(t, files), io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.build(ctx, small(), "k"); err == nil {
		t.Error("no error")
	}
	if b.cache.has("x", "k") {
		t.Error("the cache has the artifact")
	}
}

func TestOnlyOneBuildAtATime(t *testing.T) {
	var out bytes.Buffer
	b := newBuilder(t, t.TempDir(), &out)
	unlock, err := b.cache.lock(context.Background(), &out)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.cache.lock(ctx, &out); err == nil {
		t.Fatal("a second build got the lock")
	}
	if !strings.Contains(out.String(), "waiting for another build") {
		t.Errorf("waiting says %q", out.String())
	}
	unlock()
	again, err := b.cache.lock(context.Background(), &out)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestPruneKeepsWhatIsUsed(t *testing.T) {
	b := newBuilder(t, t.TempDir(), io.Discard)
	for i, age := range []time.Duration{0, time.Hour, 30 * time.Hour, 40 * time.Hour, 50 * time.Hour, 60 * time.Hour} {
		dir := b.cache.path("node", string(rune('a'+i)))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b.cache.touch(dir)
		when := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(dir, stamp), when, when); err != nil {
			t.Fatal(err)
		}
	}
	b.cache.prune()
	var left string
	for _, v := range b.cache.versions("node") {
		left += v[len(v)-1:]
	}
	if left != "abcd" {
		t.Errorf("left are %q, want the last four", left)
	}
}

func TestProgressCounts(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "x")
	p.start(func() int { return 3 })
	for _, s := range []string{"go: downloading a v1\n", "exam", "ple.test/a\nexample.test/b\n", "# example.test/b\n./b.go:1:1: broken\n"} {
		if _, err := p.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	p.say()
	p.stop()
	if want := "2 of 3 packages compiled, 1 modules downloaded"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in %q", want, out.String())
	}
	if !strings.Contains(p.tail(), "broken") {
		t.Errorf("the error message lost the compiler's: %q", p.tail())
	}
}

func TestModuleVersion(t *testing.T) {
	dir := module(t, map[string]string{"go.mod": "module x\n\nrequire a.test/b v1.2.3\n\nrequire (\n\tc.test/d/v2 v2.0.1 // indirect\n)\n"})
	for m, want := range map[string]string{"a.test/b": "v1.2.3", "c.test/d/v2": "v2.0.1"} {
		if got, err := moduleVersion(filepath.Join(dir, "go.mod"), m); err != nil || got != want {
			t.Errorf("%s: %q, %v", m, got, err)
		}
	}
	if _, err := moduleVersion(filepath.Join(dir, "go.mod"), "e.test/f"); err == nil {
		t.Error("no error for a module that is not required")
	}
}
