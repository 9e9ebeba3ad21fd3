package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
)

// again selects the tests to run when a failure gets a second try.
type again struct {
	Package string `json:"package"`
	// Test is the test function. For a Ginkgo suite it is the function that runs the suite.
	Test string `json:"test"`
	// Focus is a regular expression that the suite's description and the text of a spec match, and File is the place of the spec
	// as Ginkgo's file filter takes it. Both are empty for a plain test, and for a suite that runs again as a whole.
	Focus string `json:"focus,omitempty"`
	File  string `json:"file,omitempty"`
}

// ginkgoFlags returns the flags that select the specs.
func (a *again) ginkgoFlags() []string {
	flags := []string{"-ginkgo.silence-skips"}
	if a.Focus != "" {
		flags = append(flags, "-ginkgo.focus="+a.Focus)
	}
	if a.File != "" {
		flags = append(flags, "-ginkgo.focus-file="+a.File)
	}
	return flags
}

// markAgain sets what to run again for the entries that a second try concerns:
//
//   - a spec that failed runs again by itself;
//   - a spec of an ordered container needs those before it, so the whole container runs again;
//   - when the suite could not be set up, none of its specs ran, so the whole suite runs again.
//
// Every other failure stays a failure: a suite that was aborted or interrupted, because specs that did not run would
// then never run, and nodes that run after the specs, because they judge all specs together. The two slices have the
// same order. An entry of reports is nil when there is none.
func markAgain(r *types.Report, specs []spec, reports []*types.SpecReport) {
	if len(r.SpecialSuiteFailureReasons) > 0 || slices.ContainsFunc(reports, func(s *types.SpecReport) bool {
		return s != nil && s.State.Is(types.SpecStateAborted|types.SpecStateInterrupted)
	}) {
		return
	}
	all := setup(r) == blocked
	for i, s := range reports {
		switch {
		case s == nil:
		case all:
			specs[i].Again = &again{Package: specs[i].Package}
		case !s.LeafNodeType.Is(types.NodeTypeIt):
		case s.IsInOrderedContainer:
			n := orderedContainer(r, s)
			specs[i].Again = &again{
				Package: specs[i].Package,
				Focus:   "^" + quoteTexts(r.SuiteDescription, s.ContainerHierarchyTexts[:n]...) + "( |$)",
				File:    fileFilter(s.ContainerHierarchyLocations[n-1]),
			}
		case specs[i].Outcome == failed:
			specs[i].Again = &again{
				Package: specs[i].Package,
				Focus:   "^" + quoteTexts(r.SuiteDescription, append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText)...) + "$",
				File:    fileFilter(s.LeafNodeLocation),
			}
		}
	}
}

// orderedContainer returns how many of a spec's containers lead to the ordered one. The report does not say which one that is.
// It is the outermost one, or one inside it, of those in which all specs are ordered, so it is whole if that one runs.
func orderedContainer(r *types.Report, s *types.SpecReport) int {
	for n := 1; n < len(s.ContainerHierarchyTexts); n++ {
		if !slices.ContainsFunc(r.SpecReports, func(o types.SpecReport) bool {
			return o.LeafNodeType.Is(types.NodeTypeIt) && !o.IsInOrderedContainer && inContainer(&o, s, n)
		}) {
			return n
		}
	}
	return len(s.ContainerHierarchyTexts)
}

// inContainer reports whether the first n containers of two specs are the same.
func inContainer(a, b *types.SpecReport, n int) bool {
	if len(a.ContainerHierarchyTexts) < n || len(b.ContainerHierarchyTexts) < n {
		return false
	}
	for i := range n {
		if a.ContainerHierarchyTexts[i] != b.ContainerHierarchyTexts[i] ||
			fileFilter(a.ContainerHierarchyLocations[i]) != fileFilter(b.ContainerHierarchyLocations[i]) {
			return false
		}
	}
	return true
}

// quoteTexts returns an expression for what Ginkgo matches a focus against: the suite's description, then each text that is not
// empty, with a space between them.
func quoteTexts(description string, texts ...string) string {
	texts = slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return t == "" })
	return regexp.QuoteMeta(description + " " + strings.Join(texts, " "))
}

// fileFilter returns a place as Ginkgo's file filter takes it, or "" where the filter cannot name the file.
func fileFilter(l types.CodeLocation) string {
	if strings.Contains(l.FileName, ":") {
		return ""
	}
	return fmt.Sprintf("^%s$:%d", regexp.QuoteMeta(l.FileName), l.LineNumber)
}

// failureText returns what Ginkgo prints of a spec that failed.
func failureText(s *types.SpecReport) string {
	var out bytes.Buffer
	reporters.NewDefaultReporter(types.ReporterConfig{NoColor: true}, &out).DidRun(*s)
	return shortOutput(strings.TrimSpace(out.String()))
}

// maxOutput limits what a report keeps of the output of one failure, in bytes.
const maxOutput = 128 << 10

// shortOutput leaves out the middle of output that is too long.
func shortOutput(text string) string {
	if len(text) <= maxOutput {
		return text
	}
	return text[:maxOutput/2] + "\n[… left out …]\n" + text[len(text)-maxOutput/2:]
}
