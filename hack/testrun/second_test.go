package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// envCommand makes this program testrun itself.
const envCommand = "TESTRUN_TEST_COMMAND"

// moduleOfTests is the module of the packages that these tests write.
const moduleOfTests = "example.test/flaky"

// suiteFile is a Ginkgo suite. failing(name, n) is true for the first n runs of a spec; a file remembers them.
const suiteFile = `package %[1]s

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Expect

func failing(name string, n int64) bool {
	f, err := os.OpenFile(filepath.Join(os.Getenv("TESTRUN_TEST_RUNS"), %[1]q+"."+name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		panic(err)
	}
	info, err := f.Stat()
	if err != nil {
		panic(err)
	}
	return info.Size() <= n
}

func run(name string, n int64) {
	GinkgoWriter.Println("writer of", name)
	Expect(failing(name, n)).To(BeFalse(), "this is "+name)
}

func TestSuite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "suite (%[1]s)")
}
`

// project is a module of packages to test, and a make program that runs its tests as the tier unit. Other tiers have
// no tests.
type project struct {
	dir, reports, runs, make string
}

func newProject(t *testing.T, packages map[string]string) *project {
	t.Helper()
	p := &project{dir: t.TempDir(), reports: t.TempDir(), runs: t.TempDir()}
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		p.write(t, filepath.Join(p.dir, name), strings.Replace(string(b), "module "+module, "module "+moduleOfTests, 1), 0o600)
	}
	for name, body := range packages {
		text := "package " + name + "\n" + body
		if strings.Contains(body, "It(") {
			p.write(t, filepath.Join(p.dir, name, "suite_test.go"), fmt.Sprintf(suiteFile, name), 0o600)
			text = "package " + name + "\nimport . \"github.com/onsi/ginkgo/v2\"\n" + body
		}
		p.write(t, filepath.Join(p.dir, name, "x_test.go"), text, 0o600)
	}
	p.make = filepath.Join(p.dir, "make")
	p.write(t, p.make, fmt.Sprintf(`#!/bin/sh
reports='%[1]s' only=
for word; do
	case $word in
	test-*) tier=${word#test-} ;;
	verify | lint) exit ${FAIL_CHECKS:-0} ;;
	ONLY=*) only="-only ${word#ONLY=}" ;;
	REPORTS=*) reports=${word#REPORTS=} ;;
	esac
done
if [ "$tier" = unit ]; then
	exec '%[2]s' tier -reports "$reports" -C '%[3]s' $only unit
fi
[ -z "$only" ] || exit 1
echo '{"tier": "'"$tier"'"}' >"$reports/tier-$tier.json"
`, p.reports, os.Args[0], p.dir), 0o700)
	return p
}

func (p *project) write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// test runs all tiers, and returns what was printed and whether the run passed.
func (p *project) test(t *testing.T, env ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "all", "-reports", p.reports, "-make", p.make)
	cmd.Env = append(os.Environ(), append([]string{envCommand + "=1", "TESTRUN_TEST_RUNS=" + p.runs, "CI="}, env...)...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out), err == nil
}

// ran returns how often a spec ran.
func (p *project) ran(pkg, name string) int {
	b, _ := os.ReadFile(filepath.Join(p.runs, pkg+"."+name))
	return len(b)
}

// check compares the result of a run. The closing line must be the last, alone.
func check(t *testing.T, out string, passed, want bool, closing string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if i := len(lines) - 1; passed != want || lines[i] != closing {
		t.Errorf("passed: %v, closing line %q, but want %v, %q\n%s", passed, lines[i], want, closing, out)
	}
}

const twoFlaky = `
var _ = Describe("a (kind) of [thing]", func() {
	It("is right", func() { run("right", 0) })
	It("is right once in a while +1", func() { run("flaky", 1) })
	It("is right once in a while +10", func() { run("other", 0) })
})
`

// Plain tests also record their runs in the environment's folder.
const plain = `
import (
	"os"
	"testing"
)

func TestOnce(t *testing.T) {
	f, err := os.OpenFile(os.Getenv("TESTRUN_TEST_RUNS")+"/plain.once", os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
		t.Run("part", func(t *testing.T) { t.Error("this is plain") })
	}
}

func TestOnceMore(t *testing.T) {}
`

func TestASecondTryThatPasses(t *testing.T) {
	p := newProject(t, map[string]string{"suite": twoFlaky, "plain": plain})
	out, passed := p.test(t, "CI=true")
	check(t, out, passed, true, "7 passed, 0 failed, 0 skipped") // verify and lint too
	for _, want := range []string{
		"\nFLAKY unit: " + moduleOfTests + "/suite a (kind) of [thing] is right once in a while +1\n",
		"\nFLAKY unit: " + moduleOfTests + "/plain TestOnce\n",
		"this is plain",
		"(failed, then passed alone: see both outputs above)",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	// Both outputs: that of the first run appears twice, where it failed and beside the second.
	_, second, _ := strings.Cut(out, "=== a second try")
	first, second, ok := strings.Cut(second, "--- the second time, alone, it passed:")
	if !ok || !strings.Contains(first+second, "this is flaky") || strings.Count(first+second, "writer of flaky") != 2 {
		t.Errorf("not both outputs in\n%s", out)
	}
	for name, want := range map[string]int{"right": 1, "flaky": 2, "other": 1} {
		if got := p.ran("suite", name); got != want {
			t.Errorf("%s ran %d times", name, got)
		}
	}
	r, err := load(p.reports, "unit")
	if err != nil || len(r.Flaky) != 2 || r.Failed != 0 || r.Passed != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestNoSecondTryOutsideCI(t *testing.T) {
	p := newProject(t, map[string]string{"suite": twoFlaky})
	out, passed := p.test(t)
	check(t, out, passed, false, "4 passed, 1 failed, 0 skipped")
	if p.ran("suite", "flaky") != 1 || strings.Contains(out, "FLAKY") {
		t.Errorf("it had a second try:\n%s", out)
	}
}

func TestASecondTryThatFails(t *testing.T) {
	p := newProject(t, map[string]string{"suite": strings.ReplaceAll(twoFlaky, `run("flaky", 1)`, `run("flaky", 2)`)})
	out, passed := p.test(t, "CI=true")
	check(t, out, passed, false, "4 passed, 1 failed, 0 skipped")
	if p.ran("suite", "flaky") != 2 || !strings.Contains(out, "FAILED AGAIN unit: ") || strings.Contains(out, "FLAKY") {
		t.Errorf("no second try that fails:\n%s", out)
	}
}

// flakySpecs is a container of specs that each fail once.
func flakySpecs(n int) string {
	var b strings.Builder
	b.WriteString("\nvar _ = Describe(\"specs\", func() {\n")
	for i := range n {
		fmt.Fprintf(&b, "It(\"number %[1]d\", func() { run(\"%[1]d\", 1) })\n", i)
	}
	return b.String() + "})\n"
}

func TestThreeFlakySpecsAreTheMost(t *testing.T) {
	p := newProject(t, map[string]string{"suite": flakySpecs(3)})
	out, passed := p.test(t, "CI=true")
	check(t, out, passed, true, "5 passed, 0 failed, 0 skipped")
	if strings.Count(out, "\nFLAKY unit: ") != 6 { // with both outputs, and before the total
		t.Errorf("not all named in\n%s", out)
	}
	p = newProject(t, map[string]string{"suite": flakySpecs(4)})
	out, passed = p.test(t, "CI=true")
	check(t, out, passed, false, "2 passed, 4 failed, 0 skipped")
	if !strings.Contains(out, "no second try: 4 tests failed") {
		t.Errorf("it does not say why:\n%s", out)
	}
}

func TestASecondTryOfAnOrderedContainer(t *testing.T) {
	p := newProject(t, map[string]string{"suite": `
var _ = Describe("outer", func() {
	It("is beside it", func() { run("beside", 0) })
	Describe("in order", Ordered, func() {
		done := false
		BeforeAll(func() { done = false })
		It("is first", func() { run("first", 0); done = true })
		Context("within", func() {
			It("is second", func() { Expect(done).To(BeTrue()); run("second", 1) })
		})
		It("is third", func() { run("third", 0) })
	})
})
`})
	p.write(t, filepath.Join(p.dir, "suite", "y_test.go"), "package suite\nimport . \"github.com/onsi/gomega\"\nvar _ = Expect\n", 0o600)
	file := filepath.Join(p.dir, "suite", "x_test.go")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, file, strings.Replace(string(b), "import .", "import . \"github.com/onsi/gomega\"\nimport .", 1), 0o600)
	out, passed := p.test(t, "CI=true")
	check(t, out, passed, true, "6 passed, 0 failed, 0 skipped") // the third ran, too
	var runs []int
	for _, name := range []string{"beside", "first", "second", "third"} {
		runs = append(runs, p.ran("suite", name))
	}
	if !slices.Equal(runs, []int{1, 2, 2, 1}) {
		t.Errorf("they ran %v times\n%s", runs, out)
	}
}

func TestASecondTryOfASuiteThatCouldNotBeSetUp(t *testing.T) {
	p := newProject(t, map[string]string{"suite": `
var _ = BeforeSuite(func() { run("setup", 1) })
var _ = Describe("specs", func() {
	It("is one", Label("MSG-01"), func() { run("one", 0) })
	It("is two", func() { run("two", 0) })
})
`})
	out, passed := p.test(t, "CI=true")
	check(t, out, passed, true, "4 passed, 0 failed, 0 skipped")
	if strings.Count(out, "\nFLAKY unit: "+moduleOfTests+"/suite BeforeSuite") != 2 {
		t.Errorf("not named in\n%s", out)
	}
}

// Ginkgo ends a suite after an hour when nothing else is said, and its package would end without a report.
func TestASuiteHasTheTimeOfItsPackage(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{90 * time.Minute: 87 * time.Minute, 30 * time.Second: 29 * time.Second} {
		if got := suiteTimeout(limit); got != want {
			t.Errorf("a suite whose package has %v gets %v, not %v", limit, got, want)
		}
	}
	p := newProject(t, map[string]string{"suite": `
var _ = It("has time", func() {
	if suite, _ := GinkgoConfiguration(); suite.Timeout.String() != "` + suiteTimeout(30*time.Minute).String() + `" {
		Fail(suite.Timeout.String())
	}
})
`})
	out, passed := p.test(t)
	check(t, out, passed, true, "3 passed, 0 failed, 0 skipped")
}

// A failure that does not belong to a test gets no second try.
func TestNoSecondTry(t *testing.T) {
	for name, packages := range map[string]map[string]string{
		"a build":       {"suite": "\nvar _ = It(\"is\", func() { nothing() })\n"},
		"a panic":       {"suite": "\nvar _ = It(\"is\", func() { if failing(\"once\", 1) { go panic(\"no\"); select {} } })\n"},
		"an exit":       {"plain": strings.ReplaceAll(plain, `t.Error("this is plain")`, `os.Exit(1)`)},
		"a plain panic": {"plain": strings.ReplaceAll(plain, `t.Error("this is plain")`, `panic("no")`)},
		"an abort":      {"suite": "\nvar _ = It(\"is\", func() { if failing(\"once\", 1) { AbortSuite(\"no\") } })\n"},
		"an AfterSuite": {"suite": "\nvar _ = It(\"is\", func() {})\nvar _ = AfterSuite(func() { run(\"end\", 1) })\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, packages)
			out, passed := p.test(t, "CI=true")
			if passed || strings.Contains(out, "second t") || strings.Contains(out, "FLAKY") {
				t.Errorf("it had a second try:\n%s", out)
			}
		})
	}
	t.Run("a check", func(t *testing.T) {
		p := newProject(t, nil)
		out, passed := p.test(t, "CI=true", "FAIL_CHECKS=1")
		check(t, out, passed, false, "0 passed, 2 failed, 0 skipped")
	})
}

// Each tier's target passes on what to run again, and where to write its report.
func TestTargetsOfTiersTakeASecondTry(t *testing.T) {
	for _, tier := range slices.Concat(testLanes...) {
		if tier.check {
			continue
		}
		cmd := exec.Command("make", "--no-print-directory", "-n", tier.target, "ONLY=a/second try.json", "REPORTS=other/reports", "PREBUILT=1")
		cmd.Dir = "../.."
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "-only 'a/second try.json'") || !strings.Contains(string(out), "-reports other/reports") {
			t.Errorf("%s: %v\n%s", tier.target, err, out)
		}
	}
}
