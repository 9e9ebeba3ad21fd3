//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
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

	It("has images made also when each child is taken as soon as it is ready", func(ctx SpecContext) {
		s := start(func(o *Options) { child(o); o.Prefork = 1 })
		taking, stop := context.WithCancel(ctx)
		var taken sync.WaitGroup
		defer taken.Wait()
		defer stop()
		for _, p := range s.pools {
			taken.Go(func() {
				for {
					select {
					case child := <-p.ready:
						child.dispose()
						p.allowRefill()
					case <-taking.Done():
						return
					}
				}
			})
		}
		Eventually(ctx, s.prepared).WithTimeout(2 * time.Minute).Should(BeClosed())
	})

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

	It("renews those that started before the images were made", func(ctx SpecContext) {
		s := start(child)
		Eventually(ctx, s.pools[0].renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
		for range s.opts.Prefork {
			child, err := s.pools[0].take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
			Expect(child.images).To(BeTrue(), "it would load the libraries for itself")
		}
	}, SpecTimeout(5*time.Minute))

	It("keeps no file when the images cannot be made", func() {
		s := start(child)
		p := &pool{server: &Server{opts: s.opts, ctx: s.ctx, spawner: s.spawner, reaper: s.reaper}}
		p.server.opts.Child = []string{"false"}
		files := func() (n int) {
			open, err := os.ReadDir("/proc/self/fd")
			Expect(err).NotTo(HaveOccurred())
			for _, f := range open {
				if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(to, "skein-images") {
					n++
				}
			}
			return n
		}
		Eventually(s.prepared, 2*time.Minute).Should(BeClosed())
		before := files()
		Expect(before).To(Equal(1), "those of the pool")
		_, err := p.makeImages()
		Expect(err).To(MatchError(ContainSubstring("exit status 1")))
		Expect(files()).To(Equal(before))
	})

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

	It("starts children of the small program for each kind of execution", func(ctx SpecContext) {
		s := start(beside(func(path string) error { return os.Symlink(self(), path) }))
		for _, kind := range []protocol.Kind{protocol.KindIsolate, protocol.KindRun} {
			p := s.poolOf(kind)
			Eventually(ctx, p.renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
			child, err := p.take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
			Expect(child.cmd.Path).To(Equal(programPath))
			Expect(child.cmd.ExtraFiles[0]).To(BeIdenticalTo(s.small.file))
			Expect(child.cmd.Args).To(ContainElement("--compiler=false"))
			Expect(child.cmd.Args).To(ContainElement(fmt.Sprintf("--kind=%d", kind)))
			Expect(child.images).To(BeTrue())
		}
		made := func(kind protocol.Kind) (all []bool) {
			for at := int64(0); at < js.ImagesSize; at += qjs.ImageSpan {
				header := make([]byte, 8)
				_, err := s.poolOf(kind).images.Load().ReadAt(header, at)
				Expect(err).NotTo(HaveOccurred())
				all = append(all, !bytes.Equal(header, make([]byte, 8)))
			}
			return all
		}
		Expect(made(protocol.KindRun)).To(Equal([]bool{true, false, false}))
		Expect(made(protocol.KindIsolate)).To(Equal([]bool{false, true, true}))
		Expect(s.poolOf(protocol.KindRun).size()).To(Equal(1), "there were no runs yet")
		Expect(s.poolOf(protocol.KindIsolate).size()).To(Equal(s.opts.Prefork))
	}, SpecTimeout(5*time.Minute))

	It("starts children of the small program, whatever the numbers of open files", func(ctx SpecContext) {
		s := start(beside(func(path string) error { return os.Symlink(self(), path) }))
		isolates := s.poolOf(protocol.KindIsolate)
		Eventually(ctx, isolates.prepared).WithTimeout(2 * time.Minute).Should(BeClosed())
		for n := range 128 { // before a child executes its program, descriptors of its parent are moved above the highest that it gets
			fd, err := unix.FcntlInt(isolates.images.Load().Fd(), unix.F_DUPFD_CLOEXEC, n)
			Expect(err).NotTo(HaveOccurred())
			p := &pool{server: s, small: s.small}
			p.images.Store(os.NewFile(uintptr(fd), "images"))
			child, err := p.spawn()
			Expect(err).NotTo(HaveOccurred(), "images at %d", fd)
			Expect(child.images).To(BeTrue())
			child.dispose()
			Expect(p.images.Load().Close()).To(Succeed())
		}
	}, SpecTimeout(5*time.Minute))

	Describe("a run that comes", func() {
		var s *Server
		BeforeEach(func(ctx SpecContext) {
			s = start(beside(func(path string) error { return os.Symlink(self(), path) }))
			Eventually(ctx, s.warm).WithTimeout(2 * time.Minute).Should(BeClosed())
		})
		// first returns the first frame of a run as the supervisor reads it.
		first := func(source string, arguments int) opening {
			GinkgoHelper()
			open := &protocol.Open{Limits: protocol.Limits{Kind: protocol.KindRun, Memory: 1 << 20, Wall: time.Minute}, Main: "main.ts", Args: make([]byte, arguments),
				Modules: []protocol.Module{{Name: "main.ts", Form: protocol.FormTypeScript, Source: source}}}
			b, err := open.Encode()
			Expect(err).NotTo(HaveOccurred())
			var frame bytes.Buffer
			Expect(protocol.NewConn(nil, &frame, nil).Write(protocol.TypeOpen, b)).To(Succeed())
			header, limits, err := readOpen(&frame)
			Expect(err).NotTo(HaveOccurred())
			return opening{header: header, limits: limits, rest: &frame}
		}
		// given returns what a child reads.
		given := func(o opening) *protocol.Open {
			GinkgoHelper()
			var sent bytes.Buffer
			Expect(o.send(&sent)).To(Succeed())
			kind, content, err := protocol.NewConn(&sent, nil, nil).Read()
			Expect(err).NotTo(HaveOccurred())
			Expect(kind).To(Equal(protocol.TypeOpen))
			Expect(sent.Len()).To(BeZero())
			open, err := protocol.ParseOpen(content)
			Expect(err).NotTo(HaveOccurred())
			return open
		}

		It("is compiled before its child begins, in the time of the run", func(ctx SpecContext) {
			o, pool, err := s.compile(ctx, first("export default (n: number) => n", 3))
			Expect(err).NotTo(HaveOccurred())
			Expect(pool).To(BeIdenticalTo(s.poolOf(protocol.KindRun)))
			open := given(o)
			Expect(open.Compiled()).To(BeTrue())
			Expect(open.Modules[0].Source).To(And(ContainSubstring("(n) => n;"), Not(ContainSubstring("number"))))
			Expect(open.Modules[0].Map).NotTo(BeEmpty())
			Expect(open.Spent).To(BeNumerically(">", 0))
			open.Modules, open.Spent = nil, 0
			Expect(open).To(Equal(&protocol.Open{Limits: protocol.Limits{Kind: protocol.KindRun, Memory: 1 << 20, Wall: time.Minute}, Main: "main.ts", Args: make([]byte, 3), Bindings: nil, Static: []byte{}}))
		})

		DescribeTable("goes as it is to a child with a compiler", func(ctx SpecContext, source string, arguments int) {
			o, pool, err := s.compile(ctx, first(source, arguments))
			Expect(err).NotTo(HaveOccurred())
			Expect(pool).To(BeIdenticalTo(s.compiling))
			Expect(pool.options().Compiler).To(BeTrue())
			Expect(pool.command(pool.options(), nil).Path).To(Equal(s.opts.Program))
			open := given(o)
			Expect(open.Modules).To(ConsistOf(protocol.Module{Name: "main.ts", Form: protocol.FormTypeScript, Source: source}))
			Expect(open.Args).To(HaveLen(arguments))
			Expect(open.Wall).To(Equal(time.Minute))
			Expect(open.Spent).To(Equal(o.spent))
		},
			Entry("with a mistake", "export default () => {", 0),
			Entry("with long arguments", "export default 1", maxOpen),
			Entry("with arguments above what is passed on in one write", "export default () => {", 100<<10),
		)
	})

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
