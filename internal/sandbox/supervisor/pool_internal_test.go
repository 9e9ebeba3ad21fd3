//go:build linux && (amd64 || arm64)

package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

var _ = Describe("the pool of children", func() {
	self := func() string {
		GinkgoHelper()
		exe, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		return exe
	}
	child := func(o *Options) { o.Child = []string{self(), ChildArg} }
	start := func(change func(*Options)) *Server {
		GinkgoHelper()
		o := Defaults()
		o.CertDir = GinkgoT().TempDir()
		ca, err := pki.NewCA(clock.RealClock{}, "test", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		pair, err := pki.IssueServer(clock.RealClock{}, ca, "sandbox.test", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		for name, content := range map[string][]byte{certFile: pair.Cert, keyFile: pair.Key, caFile: ca.Cert} {
			Expect(os.WriteFile(filepath.Join(o.CertDir, name), content, 0o600)).To(Succeed())
		}
		change(&o)
		s, err := New(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.close)
		return s
	}

	It("leaves the processors to the first run of a sandbox, while children are left", func(ctx SpecContext) {
		s := start(child)
		Eventually(ctx, s.pools[0].renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
		take := func() {
			GinkgoHelper()
			child, err := s.pools[0].take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
		}
		Expect(s.pin("t")).To(BeTrue())
		s.pools[0].calmFor(time.Hour)
		take()
		s.pools[0].allowRefill()
		Expect(s.pools[0].refill).To(BeEmpty(), "another one is left")
		take()
		s.pools[0].allowRefill()
		Eventually(ctx, s.pools[0].full).WithTimeout(2*time.Minute).Should(BeTrue(), "none was left")
	}, SpecTimeout(5*time.Minute))

	It("renews those that started before the libraries were compiled", func(ctx SpecContext) {
		s := start(child)
		Eventually(ctx, s.pools[0].renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
		for range s.opts.Prefork {
			child, err := s.pools[0].take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
			Expect(child.libraries).To(BeTrue(), "it would compile the libraries for itself")
		}
	}, SpecTimeout(5*time.Minute))

	// beside makes a folder with a program and a small one beside it.
	beside := func(small func(path string) error) func(*Options) {
		GinkgoHelper()
		dir := GinkgoT().TempDir()
		program := filepath.Join(dir, "sandbox")
		Expect(os.Symlink(self(), program)).To(Succeed())
		Expect(small(filepath.Join(dir, SmallProgram))).To(Succeed())
		return func(o *Options) { o.Program = program }
	}
	linkTo := func(name string) func(string) error {
		return func(path string) error {
			program, err := exec.LookPath(name)
			if err != nil {
				return err
			}
			return os.Symlink(program, path)
		}
	}

	It("starts definition code in children of the small program, and runs in others", func(ctx SpecContext) {
		s := start(beside(func(path string) error { return os.Symlink(self(), path) }))
		for kind, program := range map[protocol.Kind]string{protocol.KindIsolate: s.small.path(), protocol.KindRun: s.opts.Program} {
			p := s.poolOf(kind)
			Eventually(ctx, p.renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
			child, err := p.take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
			Expect(child.cmd.Path).To(Equal(program))
			Expect(child.cmd.Args).To(ContainElement(fmt.Sprintf("--kind=%d", kind)))
			Expect(child.libraries).To(BeTrue())
		}
		Expect(int(s.small.file.Fd())).To(BeNumerically(">=", firstHigh), "a child's own descriptors would take its place")
		Expect(s.poolOf(protocol.KindRun).size()).To(Equal(1), "there were no runs yet")
		Expect(s.poolOf(protocol.KindIsolate).size()).To(Equal(s.opts.Prefork))
	}, SpecTimeout(5*time.Minute))

	DescribeTable("has one kind of children", func(small func(path string) error) {
		s := start(beside(small))
		Expect(s.pools).To(HaveLen(1))
		Expect(s.poolOf(protocol.KindRun)).To(BeIdenticalTo(s.poolOf(protocol.KindIsolate)))
	},
		Entry("without a small program", func(string) error { return nil }),
		Entry("when the small program is of another release", linkTo("echo")),
		Entry("when the small program cannot be executed", func(path string) error { return os.WriteFile(path, nil, 0o644) }),
	)
})
