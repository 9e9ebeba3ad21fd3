package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fresh is a checkout on a machine where nothing was ever compiled: its caches are empty, and its go command only
// records that it was called.
type fresh struct {
	t              *testing.T
	root, calls    string
	tmp, home, bin string
}

func newFresh(t *testing.T) *fresh {
	t.Helper()
	dir := t.TempDir()
	f := &fresh{t: t, root: filepath.Join(dir, "skein"), calls: filepath.Join(dir, "calls"), tmp: filepath.Join(dir, "tmp"), home: filepath.Join(dir, "home"), bin: filepath.Join(dir, "bin")}
	for _, d := range []string{f.tmp, f.home, f.bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"demo", "devcluster"} {
		if err := os.CopyFS(filepath.Join(f.root, "hack", folder), os.DirFS(filepath.Join("..", folder))); err != nil {
			t.Fatal(err)
		}
	}
	step, err := os.ReadFile(filepath.Join("..", "step.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.root, "hack", "step.sh"), step, 0o755); err != nil {
		t.Fatal(err)
	}
	compiler := "#!/bin/sh\necho \"go $*\" >>'" + f.calls + "'\necho 'no compiler here' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(f.bin, "go"), []byte(compiler), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// run runs a script of the checkout and returns its exit code and output.
func (f *fresh) run(script string, args ...string) (code int, stdout, stderr string) {
	f.t.Helper()
	cmd := exec.Command(filepath.Join(f.root, "hack", script), args...)
	cmd.Dir = f.root
	cmd.Env = append(os.Environ(), "PATH="+f.bin+":"+os.Getenv("PATH"), "HOME="+f.home, "TMPDIR="+f.tmp,
		"SKEIN_CACHE="+filepath.Join(f.home, "cache"), "SKEIN_DEVCLUSTER_DIR=", "NODE=auto")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (f *fresh) compiled() string {
	b, _ := os.ReadFile(f.calls)
	return string(b)
}

// Commands for a cluster that was never up compile nothing.
func TestNothingIsCompiledToFindThatNothingIsUp(t *testing.T) {
	f := newFresh(t)
	const up = "devcluster/devcluster.sh"
	for _, c := range []struct {
		script string
		args   []string
		code   int
		says   string
	}{
		{"demo/run.sh", []string{"--down"}, 0, "nothing is up in " + f.tmp},
		{up, []string{"down"}, 0, "nothing is up in " + f.tmp},
		{up, []string{"down", "--name=x"}, 0, "x"},
		{up, []string{"down", "--dir", filepath.Join(f.tmp, "other")}, 0, "nothing is up in " + filepath.Join(f.tmp, "other")},
		{up, []string{"status"}, 1, "nothing is up in " + f.tmp},
		{up, []string{"status", "--name", "x"}, 1, "x"},
		{up, []string{"env"}, 1, "run up first"},
		{up, []string{"down", "--help"}, 0, "Usage of down"},
		{up, []string{"down", "--called=x"}, 2, `does not know "--called=x"`},
		{up, []string{"down", "--name"}, 2, "--name needs a value"},
		{up, []string{"status", "--name=No"}, 1, `"No" is not valid`},
	} {
		code, stdout, stderr := f.run(c.script, c.args...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s %v: exit code %d, want %d with %q:\n%s%s", c.script, c.args, code, c.code, c.says, stdout, stderr)
		}
	}
	if calls := f.compiled(); calls != "" {
		t.Errorf("a compiler ran:\n%s", calls)
	}
	if entries, _ := os.ReadDir(f.home); len(entries) != 0 {
		t.Errorf("%v was made", entries)
	}
}

// Commands that need the programs do not guess without them, and down forgets a failed start.
func TestWhatNeedsTheProgramsBuildsThem(t *testing.T) {
	f := newFresh(t)
	run := filepath.Join(f.tmp, "c")
	if err := os.MkdirAll(run+"-failed-logs", 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := f.run("devcluster/devcluster.sh", "down", "--dir="+run); code != 0 || f.compiled() != "" {
		t.Errorf("down: %d, %s", code, f.compiled())
	}
	if _, err := os.Stat(run + "-failed-logs"); !os.IsNotExist(err) {
		t.Errorf("the logs of the failed start are still there: %v", err)
	}
	for _, args := range [][]string{{"env", "--assets"}, {"up"}, {"build"}} {
		before := f.compiled()
		if code, _, stderr := f.run("devcluster/devcluster.sh", args...); code == 0 || !strings.Contains(stderr, "no compiler here") || f.compiled() == before {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	before := f.compiled()
	if f.run("devcluster/devcluster.sh", "down", "--dir="+run); f.compiled() == before {
		t.Error("a cluster's run directory was there, and nothing was built that could clean it up")
	}
}

// The first demo prints what it does and how long that takes before it does anything.
func TestTheFirstDemoSaysWhatItDoes(t *testing.T) {
	f := newFresh(t)
	code, stdout, stderr := f.run("demo/run.sh")
	if code == 0 || !strings.Contains(stderr, "no compiler here") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, words := range []string{"starts a Kubernetes cluster", "make demo-down", "7 to 15 minutes"} {
		if !strings.Contains(stdout, words) {
			t.Errorf("it does not say %q:\n%s", words, stdout)
		}
	}
	if calls := f.compiled(); !regexp.MustCompile(`^go build -o build/\.demo-[0-9]+ \./hack/demo\n$`).MatchString(calls) {
		t.Errorf("it began with:\n%s", calls)
	}
}

// The first test run says what it does and how long that takes before it builds anything.
func TestTheFirstTestRunSaysWhatItDoes(t *testing.T) {
	f := newFresh(t)
	text, err := os.ReadFile(filepath.Join("..", "test.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{"test.sh": string(text), "prerequisites.sh": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(f.root, "hack", name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.bin, "make"), []byte("#!/bin/sh\necho \"make $*\"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MAKE", "make")
	code, stdout, stderr := f.run("test.sh")
	said, _, built := strings.Cut(stdout, "make --no-print-directory build/testrun")
	if code != 1 || !built {
		t.Fatalf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	for _, words := range []string{"runs all tests in four lanes", "The first run", "on two processors", "GB"} {
		if !strings.Contains(said, words) {
			t.Errorf("it does not say %q before it builds:\n%s", words, stdout)
		}
	}
}
