package ownclock_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/ownclock"
)

func TestOwnClock(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The clock of a process")
}

var _ = Describe("The clock of a process", Label("K8S-05"), func() {
	It("is the machine's, unless a file moves it, and moves with the file", func(ctx SpecContext) {
		ahead := func() time.Duration { return time.Until(ownclock.Now()).Round(time.Minute) }
		Expect(ahead()).To(BeZero())
		file := filepath.Join(GinkgoT().TempDir(), "clock")
		Expect(os.WriteFile(file, []byte("2h\n"), 0o600)).To(Succeed())
		moving, end := context.WithCancel(ctx)
		defer end()
		Expect(ownclock.Track(moving, file)).To(Succeed())
		Expect(ahead()).To(Equal(2 * time.Hour))
		Expect(ownclock.Clock{}.Since(time.Now()).Round(time.Minute)).To(Equal(2 * time.Hour))
		Expect(ownclock.Until(time.Now()).Round(time.Minute)).To(Equal(-2 * time.Hour))
		Expect(os.WriteFile(file, []byte("-3h"), 0o600)).To(Succeed())
		Eventually(ahead).Should(Equal(-3 * time.Hour))
		end()
		Eventually(ahead).Should(BeZero())
	})

	DescribeTable("is not moved by an invalid file", func(ctx SpecContext, text string) {
		file := filepath.Join(GinkgoT().TempDir(), "clock")
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		Expect(ownclock.Track(ctx, file)).To(MatchError(ContainSubstring("write how far the clock is to be ahead, such as -40s")))
		Expect(time.Until(ownclock.Now()).Round(time.Minute)).To(BeZero())
	}, Entry("nothing", ""), Entry("a number", "40"), Entry("more than a day", "25h"))
})
