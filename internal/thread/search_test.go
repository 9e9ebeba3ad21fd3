package thread_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("finding files", Label("FIL-05"), func() {
	DescribeTable("by glob", func(ctx SpecContext, pattern string, want ...string) {
		st := newEnv(ctx).create(ctx, "t")
		for _, p := range []string{"/a.csv", "/b.txt", "/d/a.csv", "/d/e/a.csv", "/d/e/ab.csv", "/d/x[1].csv", "/D/a.csv"} {
			write(ctx, st, p, "x")
		}
		found, err := st.FindFiles(ctx, pattern)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Truncated).To(BeFalse())
		Expect(found.Paths).To(Equal(append([]string{}, want...)))
	},
		Entry("at any depth without a leading slash", "a.csv", "/D/a.csv", "/a.csv", "/d/a.csv", "/d/e/a.csv"),
		Entry("from the root with a leading slash", "/a.csv", "/a.csv"),
		Entry("a star within a name", "/*.csv", "/a.csv"),
		Entry("a star in a folder", "d/*.csv", "/d/a.csv", "/d/x[1].csv"),
		Entry("two stars at the end", "/d/**", "/d/a.csv", "/d/e/a.csv", "/d/e/ab.csv", "/d/x[1].csv"),
		Entry("two stars in the middle", "/d/**/a.csv", "/d/a.csv", "/d/e/a.csv"),
		Entry("a question mark", "a?.csv", "/d/e/ab.csv"),
		Entry("a bracket is literal", "/d/x[1].csv", "/d/x[1].csv"),
		Entry("no match", "/none/**"),
	)

	It("is cut off at 100, and says so", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		for i := range 101 {
			write(ctx, st, fmt.Sprintf("/%03d.txt", i), "line")
		}
		found, err := st.FindFiles(ctx, "*.txt")
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Paths).To(HaveLen(100))
		Expect(found.Truncated).To(BeTrue())
		page, err := st.GrepFiles(ctx, "line")
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Results).To(HaveLen(100))
		Expect(page.Truncated).To(BeTrue())
		Expect(page.Results[99].Truncated).To(BeTrue())

		Expect(st.Unlink(ctx, "/100.txt")).To(Succeed())
		Expect(st.FindFiles(ctx, "*.txt")).To(HaveField("Truncated", false))
		Expect(st.GrepFiles(ctx, "line")).To(HaveField("Truncated", false))
	})

	It("goes on behind the first thousand, in their order", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		write(ctx, st, "/z.txt", "line")
		var ops []store.Op
		for i := range 2000 {
			ops = append(ops, &store.PutFile{File: store.File{Path: fmt.Sprintf("/f-%04d", i), Dir: true}})
		}
		Expect(e.Store().Apply(ctx, st.ID(), nil, ops...)).To(Succeed())
		write(ctx, st, "/f-0999/a.txt", "line")
		found, err := st.FindFiles(ctx, "*.txt")
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(Equal(&thread.FindResult{Paths: []string{"/f-0999/a.txt", "/z.txt"}}))
		page, err := st.GrepFiles(ctx, "line")
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Results).To(HaveExactElements(HaveField("Path", "/f-0999/a.txt"), HaveField("Path", "/z.txt")))
	})

	It("refuses an invalid pattern", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		_, err := st.FindFiles(ctx, "")
		Expect(err).To(beInvalid("pattern", "give a glob"))
		_, err = st.GrepFiles(ctx, "")
		Expect(err).To(beInvalid("pattern", "regular expression"))
		_, err = st.GrepFiles(ctx, "(")
		Expect(err).To(beInvalid("pattern", "missing closing )"))
		_, err = st.GrepFiles(ctx, "(?<!x)y")
		Expect(err).To(beInvalid("pattern", "RE2"))
	})
})

var _ = Describe("searching in files", Label("FIL-05"), func() {
	It("returns the matching lines of text files", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		write(ctx, st, "/a.txt", "one\r\ntwo apples\nthree\napple four")
		write(ctx, st, "/b/c.csv", "apple,1\n")
		write(ctx, st, "/bin", "apple\x00apple")
		write(ctx, st, "/none.txt", "pear\n")
		write(ctx, st, "/long.txt", strings.Repeat("é", 600_000)+" apple\n"+strings.Repeat("é", 300)+"apple")
		page, err := st.GrepFiles(ctx, "apples?")
		Expect(err).NotTo(HaveOccurred())
		Expect(page).To(Equal(&thread.GrepPage{Results: []thread.GrepResult{
			{Path: "/a.txt", Matches: []thread.GrepMatch{{Line: 2, Content: "two apples"}, {Line: 4, Content: "apple four"}}},
			{Path: "/b/c.csv", Matches: []thread.GrepMatch{{Line: 1, Content: "apple,1"}}},
			{Path: "/long.txt", Matches: []thread.GrepMatch{{Line: 2, Content: strings.Repeat("é", 250) + "…"}}},
		}}))
	})

	It("is cut off within a file", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		write(ctx, st, "/a", strings.Repeat("x\n", 60))
		write(ctx, st, "/b", strings.Repeat("x\n", 60))
		page, err := st.GrepFiles(ctx, "x")
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Results[0].Matches).To(HaveLen(60))
		Expect(page.Results[0].Truncated).To(BeFalse())
		Expect(page.Results[1].Matches).To(HaveLen(40))
		Expect(page.Results[1].Truncated).To(BeTrue())
	})
})
