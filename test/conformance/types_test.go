package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/guide"
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

// memberOfClass matches a member of a class or an interface in globals.d.ts; statics are told by their first group.
var memberOfClass = regexp.MustCompile(`(?m)^  (static )?(?:readonly )?(\w+)\??[(<:]`)

// classMembers gives what globals.d.ts declares for a class: its own members, sorted, those of the class itself as
// "static x".
func classMembers(globals, head string) []string {
	GinkgoHelper()
	_, body, found := strings.Cut(globals, "\n"+head+" {\n")
	Expect(found).To(BeTrue(), head)
	body, _, _ = strings.Cut(body, "\n}\n")
	var out []string
	for _, m := range memberOfClass.FindAllStringSubmatch(body, -1) {
		if m[2] != "constructor" {
			out = append(out, m[1]+m[2])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func membersOf(types, name string) []string {
	GinkgoHelper()
	_, body, found := strings.Cut(types, "export interface "+name+" {\n")
	Expect(found).To(BeTrue(), name)
	body, _, _ = strings.Cut(body, "\n  }\n")
	var out []string
	for _, m := range memberOf.FindAllStringSubmatch(body, -1) {
		out = append(out, m[1])
	}
	return out
}

// project is a folder with the types that kubectl skein prints, and with the packages that they need.
type project string

func newProject(ctx SpecContext) project {
	GinkgoHelper()
	installed, err := exec.CommandContext(ctx, tsc(), "install").Output()
	Expect(err).NotTo(HaveOccurred())
	p := project(GinkgoT().TempDir())
	p.write("skein.d.ts", typesOf(ctx))
	p.write("handlers.d.ts", typesOf(ctx, "--handlers"))
	p.write("globals.d.ts", typesOf(ctx, "--globals"))
	Expect(os.Symlink(filepath.Join(strings.TrimSpace(string(installed)), "node_modules"), filepath.Join(string(p), "node_modules"))).To(Succeed())
	return p
}

func (p project) write(path, text string) {
	GinkgoHelper()
	path = filepath.Join(string(p), path)
	Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
}

// compile runs the compiler by the tsconfig.json of each folder, until one has a mistake.
func (p project) compile(ctx SpecContext, folders ...string) (string, error) {
	for _, folder := range folders {
		if out, err := exec.CommandContext(ctx, tsc(), "-p", filepath.Join(string(p), folder)).CombinedOutput(); err != nil {
			return string(out), err
		}
	}
	return "", nil
}

func tsc() string { return filepath.Join(harness.Root(), "hack", "tsc.sh") }

var _ = Describe("The types of the API", Label("TOL-03"), func() {
	It("fit the fixtures, and find the mistakes in those that have some", func(ctx SpecContext) {
		project := newProject(ctx)
		Expect(os.CopyFS(string(project), os.DirFS(filepath.Join(harness.Root(), "test", "fixtures")))).To(Succeed())
		// Handlers by themselves: the types of libraries that they use need globals that sandboxes do not have.
		out, err := project.compile(ctx, ".", "handlers")
		Expect(err).NotTo(HaveOccurred(), out)

		By("finding a mistake where there was none")
		project.write("tools/events.ts", strings.Replace(fixture("tools/events.ts"), "state.emit(", "state.emitt(", 1))
		out, err = project.compile(ctx, ".")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("Property 'emitt' does not exist on type 'ThreadState'"))
	}, SpecTimeout(5*time.Minute))

	It("fit every example of the guide and of the samples", Label("AGT-09"), func(ctx SpecContext) {
		examples, err := guide.Examples(harness.Root())
		Expect(err).NotTo(HaveOccurred())
		Expect(len(examples)).To(BeNumerically(">=", 16))
		project := newProject(ctx)
		project.write("tsconfig.json", fixture("tsconfig.json"))
		project.write("handlers/tsconfig.json", fixture("handlers/tsconfig.json"))
		for i, example := range examples {
			folder, code := "definitions", example.Code
			if strings.Contains(code, "@agentuity/") {
				folder = "handlers"
			}
			if !strings.Contains(code, "export ") { // a few lines of a definition's function, which is called with state
				code = "declare const state: import('@standardagents/builder').ThreadState;\n" + code
			}
			project.write(fmt.Sprintf("%s/%d-%s.ts", folder, i, strings.NewReplacer("/", "-", ":", "-").Replace(example.From)), code)
		}
		out, err := project.compile(ctx, ".", "handlers")
		Expect(err).NotTo(HaveOccurred(), out)
	}, SpecTimeout(5*time.Minute))

	It("have every hook", Label("HOK-01"), func(ctx SpecContext) {
		Expect(membersOf(typesOf(ctx), "HookSignatures")).To(ConsistOf(
			"after_thread_created", "after_subagent_created", "after_system_message", "filter_messages", "prefilter_llm_history",
			"before_create_message", "after_create_message", "before_update_message", "after_update_message",
			"before_store_tool_result", "after_tool_call_success", "after_tool_call_failure"))
	}, SpecTimeout(2*time.Minute))

	It("have the members of ThreadState that state has, and no others", func(ctx SpecContext) {
		declared := slices.DeleteFunc(membersOf(typesOf(ctx), "ThreadState"), func(name string) bool {
			return name == "_notPackableRuntimeContext" // only where a platform has configured it
		})
		Expect(len(declared)).To(BeNumerically(">", 50))
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "members", `export default (state: object) => Reflect.ownKeys(state).filter((k) => k !== '_notPackableRuntimeContext').join(' ');`, nil), map[string]any{})
		content, status := result(say(ctx, t, 1, "go"), "members")
		Expect(status).To(Equal("success"), content)
		Expect(strings.Fields(content)).To(ConsistOf(declared))
	}, SpecTimeout(2*time.Minute))

	It("have the members that the classes of requests and answers have, and no others", Label("END-01"), func(ctx SpecContext) {
		globals := typesOf(ctx, "--globals")
		body := classMembers(globals, "interface Body")
		Expect(body).To(ContainElements("body", "json"))
		// The two that only say what to do instead are not declared, so that the compiler finds them.
		found := map[string][]string{}
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "members", `
const names = (o: object) => Object.getOwnPropertyNames(o).filter((k) => !/^_|^(constructor|length|name|prototype|formData|blob)$/.test(k));
const of = (c: any) => [...names(c).map((k) => 'static ' + k), ...names(c.prototype)];
export default () => ({ Headers: of(Headers), ReadableStream: of(ReadableStream), Request: of(Request), Response: of(Response), Body: of(Object.getPrototypeOf(Response)) });`, nil), map[string]any{})
		content, status := result(say(ctx, t, 1, "go"), "members")
		Expect(status).To(Equal("success"), content)
		Expect(json.Unmarshal([]byte(content), &found)).To(Succeed())
		Expect(found["Body"]).To(ConsistOf(body))
		for _, name := range []string{"Headers", "ReadableStream", "Request", "Response"} {
			Expect(found[name]).To(ConsistOf(classMembers(globals, "declare class "+strings.Replace(name, "ReadableStream", "ReadableStream<R = any>", 1))), name)
		}
	}, SpecTimeout(2*time.Minute))
})
