package engine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// crashSuites tell which suite crashes the engine at which points of its source: at each that the suite comes to, one after the
// other. Those given here are what a suite surely comes to; each holds itself to that by reaches.
var crashSuites = map[string][]string{
	"conversation": {"lease.acquired", "intake.before", "intake.after", "model.before", "model.after", "answer.before", "answer.after",
		"call.before", "call.after", "result.before", "result.after", "child.create.before", "child.create.after",
		"effect.schedule.before", "effect.schedule.after", "park.before", "park.after", "finish.before", "finish.after"},
	"approvals":  {"approval.before", "approval.after"},
	"hooks":      {"hook.before", "hook.after", "hook.rest.before", "hook.rest.after"},
	"prompts":    {"prompt.before", "prompt.after", "handoff.before", "handoff.after"},
	"immediate":  {"spawn.before", "spawn.after"},
	"sides":      {"turn.before", "turn.after"},
	"compaction": {"compact.before", "compact.after"},
	"handoffs":   {"summary.before", "summary.after", "context.before", "context.after", "declare.before", "declare.after"},
	"all at once": {"sandbox.acquire.before", "sandbox.acquire.after", "isolate.opened", "delta.before", "delta.after", "decide.before", "decide.after",
		"handler.before", "handler.after", "effect.handler.before", "effect.handler.after", "effect.finish.before", "tasks.before",
		"fail.before", "fail.after", "stop.before", "stop.after", "destroy.before", "destroy.after"},
}

// reaches holds a suite to the points that are its own.
func reaches(suite string, points map[string]int) {
	GinkgoHelper()
	for _, p := range crashSuites[suite] {
		Expect(points).To(HaveKey(p))
	}
}

var (
	faultPoint = regexp.MustCompile(`\.fault\("([a-z.]+)"\)`)
	// A transaction of a run has a point before it and one after it.
	transactionPoint = regexp.MustCompile(`\br\.(?:newTransaction\(|end\((?:ctx|context\.[A-Za-z]+\(ctx\)), )"([a-z]+)"`)
	otherPoint       = regexp.MustCompile(`\.fault\([^")]+|\br\.(?:newTransaction\(|end\((?:ctx|context\.[A-Za-z]+\(ctx\)), )[a-z]+`)
)

var _ = Describe("The crash suites", Label("RUN-02"), func() {
	It("come to every point that there is", func() {
		source := map[string]bool{}
		files, err := filepath.Glob("*.go")
		Expect(err).NotTo(HaveOccurred())
		inside, err := filepath.Glob("*/*.go")
		Expect(err).NotTo(HaveOccurred())
		for _, name := range append(files, inside...) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			code, err := os.ReadFile(name)
			Expect(err).NotTo(HaveOccurred())
			for _, m := range faultPoint.FindAllStringSubmatch(string(code), -1) {
				source[m[1]] = true
			}
			for _, m := range transactionPoint.FindAllStringSubmatch(string(code), -1) {
				source[m[1]+".before"], source[m[1]+".after"] = true, true
			}
			for _, found := range otherPoint.FindAllString(string(code), -1) {
				Expect(name+" "+found).To(BeElementOf("run/transaction.go .fault(tx.point + ", "run/finish.go r.newTransaction(point", "engine.go .fault(point string"), "a point whose name is not at its place cannot be looked for")
			}
		}
		crashed := map[string]bool{}
		for _, points := range crashSuites {
			for _, p := range points {
				crashed[p] = true
			}
		}
		Expect(crashed).To(Equal(source), "each point of the source is crashed at, and none is listed that is gone")
	})
})
