package stacks_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/stacks"
)

func TestStacks(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Stacks")
}

var _ = Describe("stacks", func() {
	It("shortens the stack of an endless recursion", Label("COD-05"), func() {
		mapper := stacks.New(nil)
		var deep strings.Builder
		for n := range 700 {
			fmt.Fprintf(&deep, "    at f (a.ts:%d:1)\n", n+1)
		}
		lines := strings.Split(mapper.Stack(deep.String()+"Caused by: Error: x\n    at g (a.ts:1:1)\n"), "\n")
		Expect(lines).To(HaveLen(43))
		Expect(lines[0]).To(Equal("    at f (a.ts:1:1)"))
		Expect(lines[29:32]).To(Equal([]string{"    at f (a.ts:30:1)", "    … 660 more", "    at f (a.ts:691:1)"}))
		Expect(lines[40:]).To(Equal([]string{"    at f (a.ts:700:1)", "Caused by: Error: x", "    at g (a.ts:1:1)"}))
	})

	It("maps stacks back, and leaves our own frames out", Label("COD-05"), func() {
		source := "interface A {\n  x: number\n}\n\nfunction f(a: A) {\n  throw new Error('' + a.x)\n}\nexport default f\n"
		m, failed := compile.Compile("dir/my tool.ts", source, "")
		Expect(failed).To(BeNil())
		line := 1 + strings.Count(m.Code[:strings.Index(m.Code, "throw")], "\n")
		mapper := stacks.New(map[string]sandbox.Module{"tool": m})
		stack := "    at f (tool:" + strconv.Itoa(line) + ":9)\n    at <anonymous> (skein:definition:3:1)\n    at map (native)\n    at g (other.ts:7:7)\n    at tool:" + strconv.Itoa(line) + ":9\n"
		Expect(mapper.Stack(stack)).To(Equal("    at f (dir/my tool.ts:6:9)\n    at g (other.ts:7:7)\n    at dir/my tool.ts:6:9"))
	})
})
