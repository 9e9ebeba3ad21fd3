package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// module creates a small Go module that replaces hack/devcluster.
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
	if err := os.MkdirAll(filepath.Join(b.cache.dir, ".build-old"), 0o755); err != nil { // of an interrupted build
		t.Fatal(err)
	}
	if err := b.buildAll(context.Background(), wish{artifacts: []artifact{a}}, func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	key, err := b.key(a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.cache.path("x", key), "x")); err != nil {
		t.Error(err)
	}
	if !b.built(a) {
		t.Errorf("not built, output %q", out.String())
	}

	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	key, err = b.key(a)
	if err != nil {
		t.Fatal(err)
	}
	err = b.build(context.Background(), []keyed{{a, key}}, "")
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
	if err := b.build(ctx, []keyed{{small(), "k"}}, ""); err == nil {
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
	p := newProgress(&out)
	p.say()
	if want := "looking at what is to be compiled"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in %q", want, out.String())
	}
	f := p.feed()
	f.expect(map[string]int64{"example.test/a": 1000, "example.test/b": 1000, "example.test/c": 8000})
	for _, s := range []string{"go: downloading a v1\n", "exam", "ple.test/a\nexample.test/b\n", "# example.test/b\n./b.go:1:1: broken\n"} {
		if _, err := f.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	p.say()
	if want := "2 of 3 packages, 1 modules fetched, 0:00 gone, about 0:15 left"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in %q", want, out.String())
	}
	if !strings.Contains(f.tail(), "broken") {
		t.Errorf("the error message lost the compiler's: %q", f.tail())
	}
	select {
	case <-f.started:
		t.Error("one package has not begun, and the next build may begin")
	default:
	}
	if _, err := f.Write([]byte("example.test/c\n")); err != nil {
		t.Fatal(err)
	}
	<-f.started
	p.done()
	if want := "3 packages compiled"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in %q", want, out.String())
	}
}

// At first the measured usual speed counts, and then more and more the speed of this build.
func TestEstimate(t *testing.T) {
	t.Setenv("JOBS", "2")
	p := newProgress(&bytes.Buffer{})
	defer p.stop()
	const each = usualSpeed * 10
	sizes := map[string]int64{}
	for _, path := range strings.Split("abcdefghijklmnopqrst", "") {
		sizes["x/"+path] = each
	}
	p.feed().expect(sizes)
	at := func(began int, spent time.Duration) time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.compiling = time.Now().Add(-spent)
		for path := range sizes {
			if len(p.order) >= began {
				break
			}
			if !p.begun[path] {
				p.begun[path], p.order = true, append(p.order, path)
			}
		}
		return p.left(time.Now()).Round(5 * time.Second)
	}
	if got := at(0, 0); got != 215*time.Second {
		t.Errorf("at first %s", got)
	}
	// Two packages are compiling; ten of twenty are done, in twice the usual time.
	if got := at(12, 200*time.Second); got < 155*time.Second || got > 170*time.Second {
		t.Errorf("half-way on a slow machine %s", got)
	}
}

func TestBuildWish(t *testing.T) {
	t.Chdir(t.TempDir())
	w, err := buildWish([]string{"--bin=x", "--programs"})
	if err != nil || len(w.artifacts) != 0 || !filepath.IsAbs(w.bin) {
		t.Errorf("%v, %v", w, err)
	}
	if w, err = buildWish([]string{"--control-plane"}); err != nil || len(w.artifacts) != 1 || w.bin != "" {
		t.Errorf("%v, %v", w, err)
	}
	for _, wrong := range [][]string{{"--programs"}, {"x"}, {"--nonsense"}} {
		if _, err := buildWish(wrong); err == nil {
			t.Errorf("%v was taken", wrong)
		}
	}
	if hasFlag([]string{"up", "--gvisor=false"}, "gvisor") || !hasFlag([]string{"up", "-gvisor"}, "gvisor") || hasFlag([]string{"gvisor"}, "gvisor") {
		t.Error("--gvisor is read wrongly")
	}
	if n := len(wants(true, false)); n != 3 {
		t.Errorf("a node without gVisor has %d artifacts", n)
	}
}

// One go build makes the manager, the control plane and cluster DNS, so that what they share is compiled once. That the same
// packages are compiled by builds of each module alone, as tests are, needs the same version of every module that they share.
func TestModulesAgree(t *testing.T) {
	required := regexp.MustCompile(`(?m)^\s*(?:require )?([^\s/]+\.[^\s]+) (v[^\s]+)(?: // indirect)?$`)
	versions := map[string]string{}
	for _, file := range []string{"../../../go.mod", "../go.mod", "../dns/go.mod"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(string(b), "\nexclude (")
		for _, m := range required.FindAllStringSubmatch(text, -1) {
			module, version := m[1], m[2]
			if version == "v0.0.0" { // a Kubernetes module, which is replaced
				continue
			}
			if have := versions[module]; have != "" && have != version {
				t.Errorf("%s requires %s %s, another module here %s: run `go get` for the newer one in each", file, module, version, have)
			}
			versions[module] = version
		}
	}
	if len(versions) < 100 {
		t.Errorf("only %d modules found", len(versions))
	}
}

// What the manager uses too would be compiled twice, and be slower in it.
func TestNothingOfTheManagerIsCompiledWithoutInlining(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(explain(err))
	}
	n := 0
	for path := range strings.FieldsSeq(string(out)) {
		n++
		for _, module := range clusterOnly {
			if path == module || strings.HasPrefix(path, module+"/") {
				t.Errorf("the manager uses %s, which is of %s in clusterOnly", path, module)
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d packages found", n)
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

// A machine where a node can run builds one program for both, and one where none can run does not compile kubelet.
func TestOneProgramForAControlPlaneWithAndWithoutANode(t *testing.T) {
	b := &builder{src: module(t, files), cache: &cache{dir: t.TempDir()}, gover: "go1.26.0"}
	alone := wants(false, false)
	if got := b.orWithNode(alone); len(got) != 1 || got[0].name != controlPlane.name {
		t.Errorf("without any program: %v", got)
	}
	key, err := b.key(withNode)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.cache.path(withNode.name, key), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := b.orWithNode(alone); len(got) != 1 || got[0].name != withNode.name {
		t.Errorf("with the program for a node: %v", got)
	}
	if got := wants(true, false); hasArtifact(got, controlPlane) || !hasArtifact(got, withNode) {
		t.Errorf("with a node: %v", got)
	}
	if got := b.cache.newest(controlPlane.name, withNode.name); got != b.cache.path(withNode.name, key) {
		t.Errorf("the newest is %q", got)
	}
}

func TestCompilersCollectGarbageWhereMemoryIsShort(t *testing.T) {
	for _, c := range []struct {
		available int64
		jobs      int
		want      int64
	}{{23 << 30, 2, 2 << 30}, {6 << 30, 2, (6 << 30) / 5}, {4 << 30, 2, 0}, {9 << 30, 8, 0}} {
		if got := compilerMemory(c.available, c.jobs); got != c.want {
			t.Errorf("%d bytes, %d jobs: %d, want %d", c.available, c.jobs, got, c.want)
		}
	}
}
