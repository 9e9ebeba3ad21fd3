package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTierOf(t *testing.T) {
	for _, c := range []struct {
		path    string
		imports []string
		want    string
	}{
		{module + "/internal/store/sqlstore", []string{ginkgo}, "unit"},
		{module + "/internal/controller/thread", []string{module + "/test/harness"}, "integration"},
		{module + "/test/browser", []string{ginkgo}, "integration"},
		{module + "/test/conformance", []string{module + "/test/harness"}, "conformance"},
		{module + "/test/conformance/msg", nil, "conformance"},
		{module + "/test/image", nil, "e2e"},
		{module + "/test/conformanceish", nil, "unit"},
	} {
		if got := tierOf(c.path, c.imports); got != c.want {
			t.Errorf("%s is of tier %s, not %s", c.path, got, c.want)
		}
	}
}

// A stream in the format of go test: one plain test passes, one is a Ginkgo suite, one package does not build.
func TestStreamCountsEveryFailure(t *testing.T) {
	dir := t.TempDir()
	report := filepath.Join(dir, "suite.json")
	if err := os.WriteFile(report, []byte(`[{"SuiteSucceeded":false,"SpecReports":[
		{"LeafNodeType":"It","LeafNodeText":"holds","LeafNodeLabels":["MSG-01"],"State":"passed"},
		{"LeafNodeType":"It","LeafNodeText":"breaks","State":"failed"},
		{"LeafNodeType":"It","LeafNodeText":"not asked for","State":"skipped"},
		{"LeafNodeType":"It","LeafNodeText":"later","State":"pending"},
		{"LeafNodeType":"AfterSuite","State":"panicked"}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	reports := map[string]string{"suite": report, "died": filepath.Join(dir, "none.json")}
	var out bytes.Buffer
	r := &result{Tier: "unit"}
	s := &stream{out: &out, runs: map[string]*packageRun{}, builds: map[string]*strings.Builder{}}
	s.finish = func(pkg string, run *packageRun, bad bool) (string, bool) {
		return collect(r, pkg, reports[pkg], run, bad, false)
	}
	if err := s.read(strings.NewReader(strings.Join([]string{
		`{"Action":"start","Package":"plain"}`,
		`{"Action":"pass","Package":"plain","Test":"TestA/sub"}`,
		`{"Action":"pass","Package":"plain","Test":"TestA"}`,
		`{"Action":"skip","Package":"plain","Test":"TestB"}`,
		`{"Action":"pass","Package":"plain","Elapsed":1}`,
		`{"Action":"output","Package":"suite","Test":"TestSuite","Output":"Running Suite: x\n"}`,
		`{"Action":"fail","Package":"suite","Test":"TestSuite"}`,
		`{"Action":"fail","Package":"suite"}`,
		`{"Action":"output","Package":"died","Test":"TestSuite","Output":"Running Suite: y\n"}`,
		`{"Action":"fail","Package":"died"}`,
		`{"ImportPath":"broken","Action":"build-output","Output":"broken.go:1:1: no\n"}`,
		`{"Action":"fail","Package":"broken","FailedBuild":"broken"}`,
	}, "\n"))); err != nil {
		t.Fatal(err)
	}
	if r.Passed != 2 || r.Failed != 4 || r.Skipped != 2 {
		t.Errorf("counted %d passed, %d failed, %d skipped\n%+v", r.Passed, r.Failed, r.Skipped, r.Specs)
	}
	for _, want := range []string{"ok   plain (1 passed, 1 skipped, 1.0s)", "FAIL suite", "FAIL died", "broken.go:1:1: no"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the output:\n%s", want, out.String())
		}
	}
}

func TestSuiteThatCannotBeSetUp(t *testing.T) {
	for state, want := range map[string][]string{
		"failed":  {failed, blocked},
		"skipped": {skipped},
		"passed":  nil,
	} {
		file := filepath.Join(t.TempDir(), "suite.json")
		text := `[{"SuiteSucceeded":` + strconv.FormatBool(state != "failed") + `,"SpecReports":[{"LeafNodeType":"BeforeSuite","State":"` + state + `"},
			{"LeafNodeType":"It","LeafNodeLabels":["MSG-01"],"State":"skipped"}]}]`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		specs, err := readSuite(file, "suite")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range specs {
			got = append(got, s.Outcome)
		}
		if !slices.Equal(got, want) {
			t.Errorf("setup %s: %v, not %v", state, got, want)
		}
		var out bytes.Buffer
		if n := printRows(&out, []string{"MSG-01"}, specs); (n == 1) != (state == "failed") {
			t.Errorf("setup %s: %s", state, out.String())
		}
	}
}

func TestSum(t *testing.T) {
	var out bytes.Buffer
	n := printSum(&out, []*result{{Tier: "unit", Passed: 3, Failed: 1, Specs: []spec{{Name: "breaks", Outcome: failed}}}, {Tier: "e2e", Skipped: 2, Note: "no root"}})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n != 1 || lines[len(lines)-1] != "3 passed, 1 failed, 2 skipped" || !strings.Contains(out.String(), "breaks") {
		t.Errorf("%d\n%s", n, out.String())
	}
}

func TestHeartbeatSaysWhatRuns(t *testing.T) {
	var out bytes.Buffer
	s := &stream{tier: "unit", out: &out, runs: map[string]*packageRun{"slow": {started: time.Now()}}}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { s.heartbeat(time.Millisecond, 3, stop); close(ended) }()
	deadline := time.After(10 * time.Second)
	for said := false; !said; {
		select {
		case <-deadline:
			t.Fatal("said nothing")
		default:
		}
		s.mu.Lock()
		said = strings.Contains(out.String(), "0 of 3 packages done, running slow") && strings.HasPrefix(out.String(), beat+"unit ")
		s.mu.Unlock()
	}
	close(stop)
	<-ended
}
