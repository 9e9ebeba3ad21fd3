package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

// typesOf runs kubectl skein types.
func typesOf(ctx SpecContext, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, harness.Bin("kubectl-skein"), append([]string{"types"}, args...)...).Output()
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// memberOf matches a member of an interface in builder.d.ts.
var memberOf = regexp.MustCompile(`(?m)^    (?:readonly )?(\w+)\??[(<:]`)

var _ = Describe("The types of the API", Label("TOL-03"), func() {
	It("fit the fixtures, and find the mistakes in those that have some", func(ctx SpecContext) {
		root := harness.Root()
		tsc := filepath.Join(root, "hack", "tsc.sh")
		installed, err := exec.CommandContext(ctx, tsc, "install").Output()
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		Expect(os.CopyFS(dir, os.DirFS(filepath.Join(root, "test", "fixtures")))).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "skein.d.ts"), []byte(typesOf(ctx)), 0o644)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "globals.d.ts"), []byte(typesOf(ctx, "--globals")), 0o644)).To(Succeed())
		Expect(os.Symlink(filepath.Join(strings.TrimSpace(string(installed)), "node_modules"), filepath.Join(dir, "node_modules"))).To(Succeed())
		check := func() (string, error) {
			out, err := exec.CommandContext(ctx, tsc, "-p", dir).CombinedOutput()
			return string(out), err
		}
		out, err := check()
		Expect(err).NotTo(HaveOccurred(), out)

		By("finding a mistake where there was none")
		bad := filepath.Join(dir, "tools", "events.ts")
		Expect(os.WriteFile(bad, []byte(strings.Replace(fixture("tools/events.ts"), "state.emit(", "state.emitt(", 1)), 0o644)).To(Succeed())
		out, err = check()
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("Property 'emitt' does not exist on type 'ThreadState'"))
	}, SpecTimeout(5*time.Minute))

	It("have the members of ThreadState that state has, and no others", func(ctx SpecContext) {
		text := typesOf(ctx)
		body := text[strings.Index(text, "export interface ThreadState {"):]
		body = body[:strings.Index(body, "\n  }\n")]
		var declared []string
		for _, m := range memberOf.FindAllStringSubmatch(body, -1) {
			if m[1] != "_notPackableRuntimeContext" { // only where a platform has configured it
				declared = append(declared, m[1])
			}
		}
		Expect(len(declared)).To(BeNumerically(">", 50))
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "members", `export default (state: object) => Reflect.ownKeys(state).filter((k) => k !== '_notPackableRuntimeContext').join(' ');`, nil), map[string]any{})
		content, status := result(say(ctx, t, 1, "go"), "members")
		Expect(status).To(Equal("success"), content)
		Expect(strings.Fields(content)).To(ConsistOf(declared))
	}, SpecTimeout(2*time.Minute))
})
