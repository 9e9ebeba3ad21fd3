package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2/types"
)

// Outcomes of a spec.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
	// blocked means that the suite could not be set up, so that the spec did not run. It counts as skipped, beside
	// the failure of the setup, but a row that it proves does not hold.
	blocked = "blocked"
)

// result is the content of a tier's report.
type result struct {
	Tier    string  `json:"tier"`
	Seconds float64 `json:"seconds"`
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	// Note says why something was skipped or could not be counted.
	Note  string `json:"note,omitempty"`
	Specs []spec `json:"specs,omitempty"`
	// Flaky are the names of tests that failed, then passed when they ran again. They count as passed.
	Flaky []string `json:"flaky,omitempty"`
}

// spec is one test: a Ginkgo spec or a plain test function.
type spec struct {
	Package string   `json:"package"`
	Name    string   `json:"name"`
	Labels  []string `json:"labels,omitempty"`
	Outcome string   `json:"outcome"`
	Seconds float64  `json:"seconds"`
	// Output is the output of a failed test.
	Output string `json:"output,omitempty"`
	// Again selects what runs when the test gets a second try. It is nil when it gets none.
	Again *again `json:"again,omitempty"`
}

func (r *result) add(s spec) {
	switch s.Outcome {
	case passed:
		r.Passed++
	case failed:
		r.Failed++
	default:
		r.Skipped++
	}
	r.Specs = append(r.Specs, s)
}

// readSuite reads the report of one Ginkgo suite. A suite that died before it wrote a report, or that failed outside
// its specs, counts as one failure, so that every failure is counted.
func readSuite(file, pkg string) ([]spec, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []types.Report
	if err := json.Unmarshal(b, &reports); err != nil {
		return nil, fmt.Errorf("read the report of %s: %w", pkg, err)
	}
	var specs []spec
	for i := range reports {
		specs = append(specs, suiteSpecs(&reports[i], pkg)...)
	}
	return specs, nil
}

func suiteSpecs(r *types.Report, pkg string) []spec {
	var specs []spec
	var sources []*types.SpecReport
	failures := 0
	unasked := setup(r)
	for i := range r.SpecReports {
		s := &r.SpecReports[i]
		got := spec{
			Package: pkg, Name: s.FullText(), Outcome: outcome(s.State), Seconds: s.RunTime.Seconds(),
			Labels: append(append([]string{}, r.SuiteLabels...), s.Labels()...),
		}
		if got.Outcome == failed {
			failures++
			got.Output = failureText(s)
		}
		if !s.LeafNodeType.Is(types.NodeTypeIt) {
			// A node around the specs (BeforeSuite, AfterSuite, …) gets a line only when it failed.
			if got.Outcome != failed {
				continue
			}
			got.Name = s.LeafNodeType.String()
		} else if notRun(s) {
			if unasked == "" {
				continue
			}
			got.Outcome = unasked
		}
		specs = append(specs, got)
		sources = append(sources, s)
	}
	markAgain(r, specs, sources)
	if !r.SuiteSucceeded && failures == 0 {
		specs = append(specs, spec{Package: pkg, Name: fmt.Sprint("the suite: ", r.SpecialSuiteFailureReasons), Outcome: failed})
	}
	return specs
}

// setup returns the outcome of the specs that did not run: blocked when the suite's setup failed, skipped when the
// setup skipped the suite, and "" when it succeeded, because then a filter excluded them.
func setup(r *types.Report) string {
	for i := range r.SpecReports {
		s := &r.SpecReports[i]
		if !s.LeafNodeType.Is(types.NodeTypeBeforeSuite | types.NodeTypeSynchronizedBeforeSuite) {
			continue
		}
		switch outcome(s.State) {
		case failed:
			return blocked
		case skipped:
			return skipped
		}
	}
	return ""
}

// notRun distinguishes a spec that did not run from one that skipped itself.
func notRun(s *types.SpecReport) bool {
	return s.State.Is(types.SpecStateSkipped) && s.Failure.Message == ""
}

func outcome(s types.SpecState) string {
	switch {
	case s.Is(types.SpecStatePassed):
		return passed
	case s.Is(types.SpecStateFailureStates):
		return failed
	default:
		return skipped
	}
}

// save writes the report of a tier.
func (r *result) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tier-"+r.Tier+".json"), append(b, '\n'), 0o644)
}

// load reads the report of a tier. It returns nil when the tier did not run.
func load(dir, tier string) (*result, error) {
	b, err := os.ReadFile(filepath.Join(dir, "tier-"+tier+".json"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &result{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read the report of tier %s: %w", tier, err)
	}
	return r, nil
}
