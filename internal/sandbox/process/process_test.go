//go:build linux && (amd64 || arm64)

package process_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

// patience bounds what must happen, with room for busy machines.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	sandboxtest.Main()
	m.Run()
}

func TestProcess(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox processes")
}

// children returns the pids of the direct children of a process.
func children(pid int) []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		rest := string(b[strings.LastIndex(string(b), ")")+2:])
		if fields := strings.Fields(rest); fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			out = append(out, n)
		}
	}
	return out
}

// running returns os.ErrNotExist once a process has ended, even if it was not reaped.
func running(pid int) error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err == nil && strings.HasPrefix(string(b[strings.LastIndex(string(b), ")")+2:]), "Z") {
		return os.ErrNotExist
	}
	return err
}

var _ = Describe("a pool of sandbox processes", func() {
	var ctx context.Context
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), 2*patience)
		DeferCleanup(cancel)
	})

	newPool := func(o process.Options) *process.Pool {
		GinkgoHelper()
		p, err := process.New(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.Close)
		return p
	}
	answer := func(s sandbox.Sandbox) any {
		GinkgoHelper()
		r := s.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => 42"}).Wait(ctx)
		Expect(r.Error).To(BeNil())
		return r.Value
	}

	It("gives each thread one process, and the same again", Label("COD-08"), func() {
		before := children(os.Getpid())
		p := newPool(process.Options{})
		a, err := p.Acquire(ctx, "thread-a")
		Expect(err).NotTo(HaveOccurred())
		again, err := p.Acquire(ctx, "thread-a")
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeIdenticalTo(a))
		b, err := p.Acquire(ctx, "thread-b")
		Expect(err).NotTo(HaveOccurred())
		Expect(b).NotTo(BeIdenticalTo(a))
		Expect(answer(a)).To(Equal(42.0))
		Expect(answer(b)).To(Equal(42.0))
		Expect(len(children(os.Getpid())) - len(before)).To(Equal(2))
		Expect(p.Close()).To(Succeed())
		Expect(children(os.Getpid())).To(HaveLen(len(before)))
		_, err = p.Acquire(ctx, "thread-a")
		Expect(err).To(MatchError(process.ErrClosed))
	})

	It("replaces a process that was killed, and says that the call may be repeated", Label("COD-09"), func() {
		p := newPool(process.Options{})
		a, err := p.Acquire(ctx, "thread-a")
		Expect(err).NotTo(HaveOccurred())
		Expect(answer(a)).To(Equal(42.0))
		for _, pid := range children(os.Getpid()) {
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		}
		r := a.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => 42"}).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
		Expect(r.Retriable || strings.Contains(r.Error.Message, "closed")).To(BeTrue(), "%+v", r.Error)
		Eventually(func(g Gomega) {
			b, err := p.Acquire(ctx, "thread-a")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(b).NotTo(BeIdenticalTo(a))
			g.Expect(answer(b)).To(Equal(42.0))
		}, patience).Should(Succeed())
	})

	It("takes the children along when a supervisor is killed, even one that nothing can interrupt", Label("COD-09"), func() {
		p := newPool(process.Options{})
		before := children(os.Getpid())
		a, err := p.Acquire(ctx, "thread-a")
		Expect(err).NotTo(HaveOccurred())
		started := make(chan struct{}, 1)
		e := a.RunCode(ctx, sandbox.CodeRequest{Source: "const u = new Uint8Array(2e7); report(1); for (;;) u.fill(1)", Report: func(any) { started <- struct{}{} }})
		Eventually(started, patience).Should(Receive())
		var supervisors, all []int
		for _, pid := range children(os.Getpid()) {
			if !slices.Contains(before, pid) {
				supervisors = append(supervisors, pid)
				all = append(all, children(pid)...)
			}
		}
		Expect(supervisors).To(HaveLen(1))
		Expect(all).NotTo(BeEmpty())
		Expect(syscall.Kill(supervisors[0], syscall.SIGKILL)).To(Succeed())
		r := e.Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
		Expect(r.Retriable).To(BeFalse())
		for _, pid := range all {
			Eventually(func() error { return running(pid) }, patience).Should(MatchError(os.ErrNotExist))
		}
	})

	It("ends a process that was idle for too long, but none that runs something", func() {
		clock := clocktesting.NewFakeClock(time.Now())
		p := newPool(process.Options{IdleTimeout: time.Minute, Clock: clock})
		before := len(children(os.Getpid()))
		idle, err := p.Acquire(ctx, "idle")
		Expect(err).NotTo(HaveOccurred())
		Expect(answer(idle)).To(Equal(42.0))
		busy, err := p.Acquire(ctx, "busy")
		Expect(err).NotTo(HaveOccurred())
		isolate, err := busy.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).NotTo(HaveOccurred())
		defer isolate.Close()
		Expect(children(os.Getpid())).To(HaveLen(before + 2))
		Eventually(clock.HasWaiters, patience).Should(BeTrue())
		Eventually(func() int { // its idle time starts when the end of its run was noticed, which may be after a step
			clock.Step(2 * time.Minute)
			return len(children(os.Getpid()))
		}, patience).Should(Equal(before + 1))
		again, err := p.Acquire(ctx, "busy")
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeIdenticalTo(busy))
	})

	It("leaves nothing behind when its owner is killed", func() {
		if os.Getenv("SKEIN_TEST_OWNER") != "" {
			p := newPool(process.Options{})
			_, err := p.Acquire(ctx, "thread-a")
			Expect(err).NotTo(HaveOccurred())
			os.Stdout.WriteString("supervisor " + strconv.Itoa(children(os.Getpid())[0]) + "\n")
			<-ctx.Done()
			return
		}
		exe, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		owner := exec.Command(exe, "-ginkgo.focus", "leaves nothing behind", "-test.v")
		owner.Env = append(os.Environ(), "SKEIN_TEST_OWNER=1")
		out, err := owner.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Start()).To(Succeed())
		supervisor := 0
		text := ""
		buffer := make([]byte, 4096)
		for supervisor == 0 {
			n, err := out.Read(buffer)
			text += string(buffer[:n])
			if _, after, found := strings.Cut(text, "supervisor "); found && strings.Contains(after, "\n") {
				supervisor, _ = strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
			}
			Expect(err).NotTo(HaveOccurred(), text)
		}
		Expect(owner.Process.Kill()).To(Succeed())
		_ = owner.Wait()
		Eventually(func() error { return running(supervisor) }, patience).Should(MatchError(os.ErrNotExist))
	})

	It("has no v8 engine without Deno, and says what to do", func() {
		p := newPool(process.Options{})
		_, err := p.AcquireOn(ctx, "thread-a", sandbox.V8)
		Expect(err).To(MatchError(ContainSubstring("start the manager with --sandbox-deno=/path/to/deno")))
		p = newPool(process.Options{Deno: "/nonexistent"})
		_, err = p.AcquireOn(ctx, "thread-a", sandbox.V8)
		Expect(err).To(MatchError(ContainSubstring("--deno: stat /nonexistent")))
		Expect(p.Acquire(ctx, "thread-a")).Error().NotTo(HaveOccurred())
	})

	It("says why a process did not start", func() {
		p := newPool(process.Options{Command: []string{"/bin/sh", "-c", "echo no room >&2; exit 3"}})
		_, err := p.Acquire(ctx, "thread-a")
		Expect(err).To(MatchError(ContainSubstring("no room")))
	})
})
