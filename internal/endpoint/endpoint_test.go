package endpoint

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

func TestEndpoint(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Endpoint patterns")
}

func parse(path string) Pattern {
	GinkgoHelper()
	p, err := Parse(path)
	Expect(err).NotTo(HaveOccurred())
	return p
}

func segments(path string) []string {
	if path = strings.Trim(path, "/"); path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

var _ = Describe("A pattern", Label("END-01"), func() {
	DescribeTable("matches",
		func(pattern, path string, params map[string]string) {
			got, ok := parse(pattern).Match(segments(path))
			Expect(ok).To(Equal(params != nil))
			if ok {
				Expect(got).To(Equal(params))
			}
		},
		Entry("literal text", "/report", "report", map[string]string{}),
		Entry("the root", "/", "", map[string]string{}),
		Entry("not other literal text", "/report", "reports", nil),
		Entry("not more segments", "/report", "report/7", nil),
		Entry("not fewer segments", "/report/[id]", "report", nil),
		Entry("one segment", "/report/[id]", "report/7", map[string]string{"id": "7"}),
		Entry("several parameters", "/a/[x]/b/[y]", "a/1/b/2", map[string]string{"x": "1", "y": "2"}),
		Entry("the rest", "/files/[*]", "files/a/b c.txt", map[string]string{"*": "a/b c.txt"}),
		Entry("not an empty rest", "/files/[*]", "files", nil),
		Entry("the rest after a parameter", "/[kind]/[*]", "x/y/z", map[string]string{"kind": "x", "*": "y/z"}),
		Entry("a hidden name", "/.well-known/x", ".well-known/x", map[string]string{}),
	)

	DescribeTable("is refused with what to change",
		func(pattern, why string) {
			_, err := Parse(pattern)
			Expect(err).To(MatchError(ContainSubstring(why)))
		},
		Entry("without a slash", "report", "begin with /"),
		Entry("empty", "", "begin with /"),
		Entry("with an empty segment", "/a//b", "empty segment"),
		Entry("with a slash at the end", "/a/", "empty segment"),
		Entry("with [*] in the middle", "/[*]/a", "write it last"),
		Entry("with a name twice", "/[a]/[a]", "[a] twice"),
		Entry("with an invalid name", "/[a-b]", "[a-b]"),
		Entry("with an open bracket", "/[a", "[a"),
		Entry("with dots", "/a/../b", `".."`),
		Entry("with a query", "/a?b", "a?b"),
		Entry("that is too long", strings.Repeat("/a", MaxSegments+1), "33 segments"),
	)

	It("is ordered segment by segment: literal text first, then parameters, then the rest", func() {
		sorted := []string{"/files/latest", "/files/latest/[*]", "/files/[id]/raw", "/files/[id]", "/files/[*]", "/[kind]/latest", "/[kind]/[id]", "/[*]", "/"}
		shuffled := slices.Clone(sorted)
		slices.Reverse(shuffled)
		slices.SortFunc(shuffled, func(a, b string) int { return Compare(parse(a), parse(b)) })
		Expect(slices.IndexFunc(shuffled, func(s string) bool { return s == "/files/latest" })).To(
			BeNumerically("<", slices.Index(shuffled, "/files/[id]")))
		for _, pair := range [][2]string{
			{"/files/latest", "/files/[id]"}, {"/files/[id]", "/files/[*]"}, {"/files/[*]", "/[kind]/latest"},
			{"/[kind]/latest", "/[kind]/[id]"}, {"/[kind]/[id]", "/[*]"}, {"/files/[id]/raw", "/files/[*]"},
		} {
			Expect(Compare(parse(pair[0]), parse(pair[1]))).To(BeNumerically("<", 0), "%v", pair)
			Expect(Compare(parse(pair[1]), parse(pair[0]))).To(BeNumerically(">", 0), "%v", pair)
		}
		Expect(Compare(parse("/a/[x]"), parse("/a/[y]"))).To(BeZero(), "names do not count")
		Expect(parse("/a/[x]").Shape()).To(Equal(parse("/a/[y]").Shape()))
	})

	It("sorts the same from any order of the input", func() {
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			part := rapid.SampledFrom([]string{"a", "b", "[x]", "[y]"})
			pattern := rapid.Custom(func(t *rapid.T) string {
				parts := rapid.SliceOfNDistinct(part, 0, 3, rapid.ID).Draw(t, "parts")
				if rapid.Bool().Draw(t, "rest") {
					parts = append(parts, "[*]")
				}
				return "/" + strings.Join(parts, "/")
			})
			list := rapid.SliceOfN(pattern, 0, 8).Draw(t, "patterns")
			shapes := func(in []string) (out []string) {
				s := slices.Clone(in)
				slices.SortFunc(s, func(a, b string) int { return Compare(mustParse(a), mustParse(b)) })
				for _, p := range s {
					out = append(out, mustParse(p).Shape())
				}
				return out
			}
			first := shapes(list)
			slices.Reverse(list)
			if !slices.Equal(first, shapes(list)) {
				t.Fatalf("%v sorts as %v, and the other way round as %v", list, first, shapes(list))
			}
		})
	})
})

func mustParse(path string) Pattern {
	p, err := Parse(path)
	if err != nil {
		panic(err)
	}
	return p
}

var _ = Describe("Methods", Label("END-01"), func() {
	It("answer HEAD by GET, and list what is allowed", func() {
		Expect(Serves([]string{"GET"}, "HEAD")).To(BeTrue())
		Expect(Serves([]string{"POST"}, "HEAD")).To(BeFalse())
		Expect(Serves([]string{"HEAD"}, "GET")).To(BeFalse())
		Expect(Allow([]string{"POST", "GET"})).To(Equal([]string{"GET", "HEAD", "OPTIONS", "POST"}))
		Expect(Allow([]string{"DELETE", "OPTIONS"})).To(Equal([]string{"DELETE", "OPTIONS"}))
		Expect(Shared([]string{"GET", "PUT"}, []string{"PUT", "POST"})).To(Equal([]string{"PUT"}))
	})
})
