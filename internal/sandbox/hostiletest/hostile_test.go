//go:build linux && (amd64 || arm64)

package hostiletest_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/hostiletest"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	m.Run()
}

func TestHostile(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Hostile programs")
}

func init() {
	engine := hostiletest.Engine{Name: string(sandboxtest.Engine()), Base: bases[sandboxtest.Engine()]}
	hostiletest.Specs(engine)
	hostiletest.Features(engine)
}

// bases are the resident memory of idle children. For V8 it includes Deno and the keeper.
var bases = map[sandbox.Engine]int64{sandbox.QuickJS: 20_000_000, sandbox.V8: 100_000_000}

var _ = Describe("the collection of programs", func() {
	It("reads what an engine is expected to differ in", func() {
		const text = "=== a\nstatus: error\nerror: TypeError\nerror@v8: RangeError\n--\nthrow @@3:x@@\n\n=== b\nstatus@v8: success\nstatus: error\nmemory: 2Mi\nwall: 1s\nas: tool\n--\n1\n"
		quickjs, err := hostiletest.Parse("g", text, "quickjs")
		Expect(err).NotTo(HaveOccurred())
		v8, err := hostiletest.Parse("g", text, "v8")
		Expect(err).NotTo(HaveOccurred())
		Expect([]string{quickjs[0].Error, v8[0].Error}).To(Equal([]string{"TypeError", "RangeError"}))
		Expect(quickjs[0].Source).To(Equal("throw xxx\n"))
		Expect(quickjs[1].Status).To(Equal([]sandbox.Status{sandbox.StatusError}))
		Expect(v8[1].Status).To(Equal([]sandbox.Status{sandbox.StatusSuccess}))
		Expect(quickjs[1].Memory).To(BeEquivalentTo(2 << 20))
		Expect(quickjs[1].Tool).To(BeTrue())
	})

	It("says what is wrong in a file", func() {
		for text, says := range map[string]string{
			"=== a\nstatus: error\n":                "no line --",
			"=== a\nmessage: x\n--\n1":              "no status",
			"=== a\nstatus: error\ncolor: x\n--\n1": `"color" is not known`,
			"=== a\nstatus\n--\n1":                  "no line of a head",
		} {
			_, err := hostiletest.Parse("g", text, "quickjs")
			Expect(err).To(MatchError(ContainSubstring(says)), text)
		}
	})
})
