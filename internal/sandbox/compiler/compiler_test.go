//go:build linux && (amd64 || arm64)

package compiler_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	m.Run()
}

func TestCompiler(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Compiler process")
}

// forever is source that takes the compiler minutes.
var forever = strings.Repeat("x=>", 20_000) + "1"

var _ = Describe("the compiler process", Label("TOL-02"), func() {
	var c *compiler.Compiler
	BeforeEach(func() {
		c = compiler.New(compiler.Options{Timeout: time.Minute, Wait: time.Hour})
		DeferCleanup(c.Close)
	})

	It("compiles as the compiler in this process does", func() {
		source := "interface A { n: number }\nexport default (a: A) => a.n"
		got, failed := c.Compile("tool.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		want, failed := compile.Transform("tool.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		Expect(got.Facts).To(HaveValue(HaveField("Default", sandbox.Export{Kind: sandbox.ExportFunction})), "it tells more")
		got.Facts = nil
		Expect(got).To(Equal(want))
		_, failed = c.Compile("tool.ts", "export default () => {\n  let x = ;\n}", sandbox.TypeScript)
		Expect(failed).To(HaveField("Line", 2))
		Expect(failed).To(HaveField("Column", 11))
	})

	DescribeTable("survives", func(limit time.Duration, source, message string) {
		c := compiler.New(compiler.Options{Timeout: limit, Wait: time.Hour})
		DeferCleanup(c.Close)
		_, failed := c.Compile("tool.ts", source, sandbox.TypeScript)
		Expect(failed).NotTo(BeNil())
		Expect(failed.Message).To(ContainSubstring(message))
		_, failed = c.Compile("tool.ts", "export default 1", sandbox.TypeScript)
		Expect(failed).To(BeNil())
	},
		Entry("nesting beyond its stack", time.Minute, strings.Repeat("(", 900_000), "nests too deeply"),
		Entry("source that takes forever", 5*time.Second, forever, "takes longer than 5s"),
		Entry("source of which very much becomes", time.Minute, strings.Repeat("{", 3000)+strings.Repeat("}", 3000), "becomes 18006000 bytes when it is compiled, of which at most 4194304 are kept: make it shorter, or nest it less"),
	)

	It("does not let a source that takes long delay others", func() {
		c := compiler.New(compiler.Options{Timeout: 5 * time.Second, Wait: time.Hour})
		DeferCleanup(c.Close)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Compile("slow.ts", forever, sandbox.TypeScript)
		}()
		for range 20 {
			_, failed := c.Compile("tool.ts", "export default 1", sandbox.TypeScript)
			Expect(failed).To(BeNil())
		}
		Expect(done).NotTo(BeClosed(), "it has five seconds of a processor")
	})

	It("does not blame a source for a machine that has no time for it", func() {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		late := compiler.New(compiler.Options{Timeout: 2 * time.Second, Wait: time.Hour, Command: []string{"/bin/sh", "-c", "sleep 2.1; exec " + self + " " + compiler.Arg}})
		DeferCleanup(late.Close)
		_, failed := late.Compile("tool.ts", "export default 1", sandbox.TypeScript)
		Expect(failed).To(BeNil())
	})

	It("gives up a source that the machine has no time for, and says that it is not the source", func() {
		c := compiler.New(compiler.Options{Timeout: time.Minute, Wait: 100 * time.Millisecond, Command: []string{"/bin/sh", "-c", "exec sleep 3600"}})
		DeferCleanup(c.Close)
		_, failed := c.Compile("tool.ts", "export default 1", sandbox.TypeScript)
		Expect(failed).To(MatchError("Error: the machine had no time to compile the source within 100ms: try again when it is less busy"))
	})

	It("ends when its input closes, also during a source that takes forever", func() {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		cmd := exec.Command(self, compiler.Arg)
		in, err := cmd.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() { _ = cmd.Process.Kill() })
		Expect(json.NewEncoder(in).Encode(map[string]any{"Filename": "tool.ts", "Source": forever, "Language": sandbox.TypeScript})).To(Succeed())
		Expect(in.Close()).To(Succeed())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		Eventually(done, "60s").Should(Receive(BeNil()))
	})

	It("refuses what nests too deeply or is too long, also without a name", func() {
		_, failed := c.Compile("", strings.Repeat("[", 900_000), "")
		Expect(failed).To(HaveField("Message", ContainSubstring("nests too deeply")))
		_, failed = c.Compile("", strings.Repeat(" ", compile.MaxSource+1), "")
		Expect(failed).To(HaveField("Message", ContainSubstring("at most 1048576 are compiled")))
	})

	It("answers nothing any more once closed", func() {
		Expect(c.Close()).To(Succeed())
		_, failed := c.Compile("tool.ts", "1", sandbox.TypeScript)
		Expect(failed).To(MatchError("Error: the compiler is closed"))
	})
})
