//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

const one = "export default () => 1"

// patience bounds what must happen, with room for busy machines.
const patience = 2 * time.Minute

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	DeferCleanup(cancel)
	return ctx
}

// children returns the pids of this process's running children.
func children() []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
		if fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			out = append(out, pid)
		}
	}
	return out
}

// stands reports whether all threads of a process are stopped, or it has ended.
func stands(pid int) bool {
	stats, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if state := b[min(len(b), bytes.LastIndexByte(b, ')')+1):]; err == nil && !bytes.HasPrefix(state, []byte(" T")) {
			return false
		}
	}
	return true
}

// unread returns how many bytes wait in the pipe that a process reads.
func unread(pid int) int {
	in, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/fd/0", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(in)
	n, _ := unix.IoctlGetInt(in, unix.TIOCINQ)
	return n
}

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	Expect(err).NotTo(HaveOccurred())
	return len(entries)
}

// holdRun starts code that waits until release is closed, and returns once it runs.
func holdRun(ctx context.Context, c *client.Client) (e sandbox.Execution, release func()) {
	GinkgoHelper()
	on, off := make(chan struct{}), make(chan struct{})
	e = c.RunCode(ctx, sandbox.CodeRequest{Source: "export default async () => await hold()", Globals: map[string]sandbox.Binding{"hold": {Func: func(ctx context.Context, _ []any) (any, error) {
		close(on)
		select {
		case <-off:
		case <-ctx.Done():
		}
		return "held", nil
	}}}})
	Eventually(on, patience).Should(BeClosed())
	return e, sync.OnceFunc(func() { close(off) })
}

var _ = Describe("a supervisor", func() {
	var ctx context.Context
	BeforeEach(func() { ctx = within(2 * patience) })

	It("serves the thread that came first, and never a second one", Label("COD-08"), func() {
		s := sandboxtest.Start(GinkgoT(), nil)
		Expect(s.Dial(GinkgoT(), "thread-a").RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
		other := s.Dial(GinkgoT(), "thread-b")
		r := other.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
		Expect(r.Error.Message).To(ContainSubstring("belongs to another thread"))
		Expect(r.Retriable).To(BeTrue())
		_, err := other.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).To(MatchError(ContainSubstring("belongs to another thread")))
		Expect(s.Dial(GinkgoT(), "thread-a").RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
	})

	Describe("its endpoint", Label("COD-08"), func() {
		get := func(s *sandboxtest.Supervisor, config *tls.Config, change ...func(*http.Request)) (int, string, error) {
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.Addr+supervisor.Path, strings.NewReader("x"))
			Expect(err).NotTo(HaveOccurred())
			for _, f := range change {
				f(req)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return 0, "", err
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(text), nil
		}
		config := func(s *sandboxtest.Supervisor, p pki.Pair) *tls.Config {
			c, err := pki.ClientConfig(s.CA.Cert, p, sandboxtest.ServerName)
			Expect(err).NotTo(HaveOccurred())
			return c
		}

		It("requires TLS 1.3 and a client certificate of the CA", func() {
			s := sandboxtest.Start(GinkgoT(), nil)
			none := config(s, s.Client)
			none.Certificates = nil
			_, _, err := get(s, none)
			Expect(err).To(HaveOccurred())

			server, err := pki.IssueServer(clock.RealClock{}, s.CA, "x", time.Hour)
			Expect(err).NotTo(HaveOccurred())
			_, _, err = get(s, config(s, server))
			Expect(err).To(HaveOccurred())

			strange, err := pki.NewCA(clock.RealClock{}, "strange", time.Hour)
			Expect(err).NotTo(HaveOccurred())
			stranger, err := pki.IssueClient(clock.RealClock{}, strange, "manager", time.Hour)
			Expect(err).NotTo(HaveOccurred())
			_, _, err = get(s, config(s, stranger))
			Expect(err).To(HaveOccurred())

			old := config(s, s.Client)
			old.MaxVersion, old.MinVersion = tls.VersionTLS12, tls.VersionTLS12
			_, _, err = get(s, old)
			Expect(err).To(MatchError(ContainSubstring("protocol version")))
		})

		It("speaks HTTP/2 frames for a thread", func() {
			s := sandboxtest.Start(GinkgoT(), nil)
			code, text, err := get(s, config(s, s.Client))
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(Equal(http.StatusBadRequest))
			Expect(text).To(ContainSubstring("must name the thread"))
			code, text, err = get(s, config(s, s.Client), func(r *http.Request) { r.Header.Set(supervisor.ThreadHeader, "t") })
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(Equal(http.StatusBadRequest))
			Expect(text).NotTo(BeEmpty())
		})

		It("goes on when the certificates are renewed", func() {
			s := sandboxtest.Start(GinkgoT(), nil)
			serial := func() string {
				GinkgoHelper()
				c, err := tls.Dial("tcp", s.Addr, config(s, s.Client))
				Expect(err).NotTo(HaveOccurred())
				defer c.Close()
				return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
			}
			before := serial()
			Expect(s.WriteServerCert()).To(Succeed())
			Expect(serial()).NotTo(Equal(before))
			// A file that is being written does no harm.
			Expect(os.WriteFile(filepath.Join(s.CertDir, "tls.crt"), []byte("half"), 0o600)).To(Succeed())
			Expect(serial()).NotTo(Equal(before))
		})
	})

	It("tells a child that was killed, and goes on", Label("COD-09"), func() {
		before := children()
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Prefork = 0 })
		c := s.Dial(GinkgoT(), "t")
		e, release := holdRun(ctx, c)
		defer release()
		for _, pid := range children() {
			if !contains(before, pid) {
				// The child that makes the images may have ended by itself.
				Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Or(Succeed(), MatchError(syscall.ESRCH)))
			}
		}
		r := e.Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusMemory))
		Expect(r.Error.Message).To(ContainSubstring("killed"))
		Expect(r.Retriable).To(BeFalse())
		Expect(c.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
	})

	It("bounds how many run at a time, and lets the others wait", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Concurrency, o.MaxWallTime = 1, time.Hour })
		c := s.Dial(GinkgoT(), "t")
		// A definition isolate must not take the places of the runs that it starts.
		i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).NotTo(HaveOccurred())
		defer i.Close()
		first, release := holdRun(ctx, c)
		second := c.RunCode(ctx, sandbox.CodeRequest{Source: one})
		impatient := c.RunCode(ctx, sandbox.CodeRequest{Source: one})
		impatient.Terminate("no time")
		Expect(impatient.Wait(ctx).Error.Message).To(Equal("no time"))
		Expect(first.Done()).NotTo(BeClosed())
		Expect(second.Done()).NotTo(BeClosed())
		release()
		Expect(first.Wait(ctx).Value).To(Equal("held"))
		Expect(second.Wait(ctx).Value).To(Equal(1.0))
	})

	It("says that it is busy when no place becomes free in time", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Concurrency, o.MaxWallTime = 1, 300*time.Millisecond })
		c := s.Dial(GinkgoT(), "t")
		i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).NotTo(HaveOccurred())
		defer i.Close()
		_, err = c.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).To(MatchError(ContainSubstring("the sandbox is busy")))
	})

	It("is healthy once children wait, and not while it drains", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Drain = time.Hour })
		health := func() int {
			resp, err := http.Get("http://" + s.Health + "/healthz")
			if err != nil {
				return 0
			}
			defer resp.Body.Close()
			return resp.StatusCode
		}
		Eventually(health, patience).Should(Equal(http.StatusOK))
		c := s.Dial(GinkgoT(), "t")
		e, release := holdRun(ctx, c)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop() }()
		Eventually(health, patience).Should(Equal(http.StatusServiceUnavailable))
		refused := c.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx)
		Expect(refused.Error.Message).To(ContainSubstring("shutting down"))
		Expect(refused.Retriable).To(BeTrue())
		Expect(stopped).NotTo(Receive())
		release()
		Expect(e.Wait(ctx).Value).To(Equal("held"))
		Eventually(stopped, patience).Should(Receive(BeNil()))
	})

	It("ends what runs when its manager goes away", Label("COD-04"), func() {
		before := children()
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Prefork = 0 })
		c := s.Dial(GinkgoT(), "t")
		e, release := holdRun(ctx, c)
		defer release()
		Expect(c.Close()).To(Succeed())
		Expect(e.Wait(ctx).Status).To(Equal(sandbox.StatusTerminated))
		Eventually(func() int { return len(children()) }, patience).Should(BeNumerically("<=", len(before)+sandboxtest.AtRest(0)))
	})

	It("ends code that its manager gave up, also when the code's process has stopped reading", Label("COD-04"), func() {
		before := children()
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Prefork, o.MaxWallTime = 0, time.Hour })
		c := s.Dial(GinkgoT(), "t")
		e := c.RunCode(ctx, sandbox.CodeRequest{Source: "export default async () => await big()", Globals: map[string]sandbox.Binding{"big": {Func: func(context.Context, []any) (any, error) {
			for _, pid := range children() {
				if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); bytes.Contains(line, []byte("--make-images=false")) {
					_ = syscall.Kill(pid, syscall.SIGSTOP) // the child of the code, not the one that makes the images
					Eventually(stands, patience).WithArguments(pid).Should(BeTrue(), "no thread of it reads any more")
				}
			}
			return strings.Repeat("x", 16<<20), nil
		}}}})
		Eventually(func() (most int) {
			for _, pid := range children() {
				if !contains(before, pid) {
					most = max(most, unread(pid))
				}
			}
			return most
		}, patience).Should(BeNumerically(">", 60<<10), "its pipe is full")
		e.Terminate("enough")
		Expect(e.Wait(ctx).Error.Message).To(Equal("enough"))
		Eventually(func() int { return len(children()) }, patience).Should(BeNumerically("<=", len(before)+sandboxtest.AtRest(0)))
	})

	It("leaks nothing in 200 runs one after the other and 20 at a time", Label("COD-01"), func() {
		ctx := within(15 * time.Minute) // 401 runs, on a machine that may be busy or emulated
		good := gleak.Goroutines()
		func() {
			s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Concurrency = 8 })
			c := s.Dial(GinkgoT(), "t")
			run := func(i int) {
				defer GinkgoRecover()
				r := c.RunCode(ctx, sandbox.CodeRequest{Source: "report(1); console.log(2); export default async (n) => await add(n)", Args: []any{i}, Globals: map[string]sandbox.Binding{
					"add": {Func: func(_ context.Context, args []any) (any, error) { return args[0].(float64) + 1, nil }},
				}}).Wait(ctx)
				Expect(r.Error).To(BeNil())
				Expect(r.Value).To(Equal(float64(i + 1)))
			}
			run(0)
			ready := sandboxtest.AtRest(2)
			// The pools refill after the last run, and the images get made.
			Eventually(func() int { return len(children()) }, patience).Should(Equal(ready))
			before := descriptors()
			for i := range 200 {
				run(i)
			}
			for round := range 10 {
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() { run(100*round + i) })
				}
				all.Wait()
			}
			// A child is gone before its pipes are closed, and during the earlier reading one may have started or
			// ended. A leak in each of 401 runs would be far larger.
			Eventually(func() int { return len(children()) }, patience).Should(Equal(ready))
			Eventually(descriptors, patience).Should(BeNumerically("<=", before+16))
			Expect(c.Close()).To(Succeed())
			Expect(s.Stop()).To(Succeed())
		}()
		Eventually(children, patience).Should(BeEmpty())
		Eventually(gleak.Goroutines, patience).ShouldNot(gleak.HaveLeaked(good))
	})

	DescribeTable("refuses options that cannot work", func(change func(*supervisor.Options), message string) {
		s := sandboxtest.Start(GinkgoT(), nil)
		o := supervisor.Defaults()
		o.CertDir = s.CertDir
		change(&o)
		_, err := supervisor.New(o)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no certificates", func(o *supervisor.Options) { o.CertDir = "/nonexistent" }, "--cert-dir"),
		Entry("too little memory", func(o *supervisor.Options) { o.MaxMemory = 1000 }, "--max-memory"),
		Entry("no time", func(o *supervisor.Options) { o.MaxWallTime = 0 }, "--max-wall-time"),
		Entry("no room", func(o *supervisor.Options) { o.Concurrency = 0 }, "--max-concurrent"),
	)
})

func contains(all []int, n int) bool {
	for _, x := range all {
		if x == n {
			return true
		}
	}
	return false
}
