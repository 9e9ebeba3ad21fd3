//go:build linux && (amd64 || arm64)

package compiler_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/hostiletest"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

var _ = Describe("the compiler of runs", Label("COD-01", "COD-05"), func() {
	unexpected := func(err error) {
		defer GinkgoRecover()
		Expect(err).NotTo(HaveOccurred())
	}
	var c *compiler.Runs
	BeforeEach(func() {
		c = compiler.NewRuns(compiler.Options{}, unexpected)
		DeferCleanup(c.Close)
		c.Warm()
	})
	typescript := func(source string) protocol.Module {
		return protocol.Module{Name: "main.ts", Form: protocol.FormTypeScript, Source: source}
	}
	run := func(modules ...protocol.Module) ([]protocol.Module, bool) {
		GinkgoHelper()
		compiled, _, ok := c.Compile(context.Background(), modules)
		return compiled, ok
	}
	// compiled waits until a run is compiled: it is not while others are, nor while a process that has ended is replaced.
	compiled := func(modules ...protocol.Module) (got []protocol.Module) {
		GinkgoHelper()
		Eventually(func() (ok bool) {
			got, ok = run(modules...)
			return ok
		}, "60s").Should(BeTrue())
		return got
	}
	again := func() { GinkgoHelper(); compiled(typescript("export default 1")) }

	It("compiles all modules of a run as the child of the run does", func() {
		modules := []protocol.Module{
			{Name: "main.ts", Form: protocol.FormTypeScript, Source: "interface A { n: number }\nexport default (a: A): number => a.n"},
			{Name: "lib/b.js", Form: protocol.FormJavaScript, Source: "export const b = '<é>'"},
			{Name: "data.json", Form: protocol.FormJSON, Source: `{"a": [1]}`},
			{Name: "made.js", Form: protocol.FormCompiled, Source: "export default 1 "},
		}
		got := compiled(modules...)
		Expect(got).To(HaveLen(len(modules)))
		for i, m := range modules {
			want, failed := compile.Module(m)
			Expect(failed).To(BeNil())
			Expect(got[i]).To(Equal(protocol.Module{Name: m.Name, Form: protocol.FormCompiled, Source: want.Code, Map: want.SourceMap}))
		}
	})

	DescribeTable("leaves to the child", func(source string) {
		_, ok := run(typescript(source))
		Expect(ok).To(BeFalse())
		again()
	},
		Entry("a mistake", "export default () => {\n let x = ;\n}"),
		Entry("a source that is long", strings.Repeat(" ", compiler.MaxRun+1)),
		Entry("a source that takes forever", forever),
		Entry("nesting beyond its stack", strings.Repeat("(", compiler.MaxRun/2-1)+"1"+strings.Repeat(")", compiler.MaxRun/2-1)),
		Entry("a source of which much more becomes", strings.Repeat("{", 800)+strings.Repeat("}", 800)),
	)

	It("counts the modules of a run together, and compiles none without one", func() {
		half := protocol.Module{Name: "a.js", Form: protocol.FormJavaScript, Source: strings.Repeat(" ", compiler.MaxRun/2)}
		compiled(half, half)
		_, ok := run(half, half, protocol.Module{Name: "b.js", Form: protocol.FormJavaScript, Source: ";"})
		Expect(ok).To(BeFalse())
		_, ok = run()
		Expect(ok).To(BeFalse())
	})

	It("compiles twenty at once", func() {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				name := string(rune('a' + i))
				Expect(compiled(typescript("export const " + name + ": number = 1"))[0].Source).To(ContainSubstring("const " + name + " = 1"))
			})
		}
		all.Wait()
	})

	It("compiles nothing any more once closed", func() {
		c.Close()
		_, ok := run(typescript("export default 1"))
		Expect(ok).To(BeFalse())
	})

	It("keeps no run waiting for a process that is not there yet", func() {
		cold := compiler.NewRuns(compiler.Options{}, unexpected)
		DeferCleanup(cold.Close)
		given, stop := context.WithCancel(context.Background())
		stop()
		for _, ctx := range []context.Context{given, context.Background()} {
			_, took, ok := cold.Compile(ctx, []protocol.Module{typescript("1")})
			Expect(ok).To(BeFalse())
			Expect(took).To(BeZero(), "the run has used nothing")
		}
		cold.Warm()
		Eventually(func() bool {
			_, _, ok := cold.Compile(context.Background(), []protocol.Module{typescript("1")})
			return ok
		}, "60s").Should(BeTrue())
	})

	It("says that its process does not start, and does not try again with each run", func() {
		var failures []error
		broken := compiler.NewRuns(compiler.Options{Command: []string{"/bin/false"}}, func(err error) { failures = append(failures, err) })
		DeferCleanup(broken.Close)
		broken.Warm()
		Expect(failures).To(HaveLen(1))
		for range 20 {
			_, _, ok := broken.Compile(context.Background(), []protocol.Module{typescript("1")})
			Expect(ok).To(BeFalse())
		}
		Expect(failures).To(HaveLen(1))
	})

	It("replaces a process that was killed while nothing was compiled, and leaves no zombie", func() {
		killed := hostiletest.Children(os.Getpid())
		for _, pid := range killed {
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		}
		Expect(killed).NotTo(BeEmpty())
		for _, pid := range killed {
			Eventually("/proc/"+strconv.Itoa(pid), "60s").ShouldNot(BeAnExistingFile())
		}
		again()
	})
})
