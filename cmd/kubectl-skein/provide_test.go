package main

import (
	"context"
	"io"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// declared are the variables that every thread declares.
type declared []thread.EnvDeclaration

func (d declared) Layers(context.Context, *store.Thread) (*thread.EnvLayers, error) {
	return &thread.EnvLayers{Declared: d}, nil
}

var _ = Describe("kubectl skein provide", Label("ENV-06"), func() {
	var c command
	var st *thread.State

	BeforeEach(func(ctx SpecContext) {
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		ring := &envkeys.Keyring{}
		Expect(ring.Use(keyset)).To(BeTrue())
		env.Threads.ServeEnv(thread.EnvOptions{Cipher: ring, Layers: declared{
			{Name: "KEY", Required: true, Description: "the key of the shop"}, {Name: "REGION", Type: store.EnvText, Required: true}, {Name: "OTHER"},
		}})
		DeferCleanup(func() { env.Threads.ServeEnv(thread.EnvOptions{}) })
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Threads.Store().Apply(ctx, st.ID(), nil, &store.PutRun{Run: store.Run{ID: "sess_" + strings.Repeat("0", 32), ThreadID: st.ID(), Agent: "helper", Status: store.RunWaiting, Reason: skeinv1.ReasonEnvMissing}})).To(Succeed())
		c = command{ctx: context.Background(), ns: ns}
	})
	value := func(ctx context.Context, name string) string {
		GinkgoHelper()
		v, err := st.EnvValue(ctx, name)
		Expect(err).NotTo(HaveOccurred())
		return v.Value
	}

	It("takes a value from standard input, with the type that the agent declares", func(ctx SpecContext) {
		c.stdin = "s3cret-value\n"
		got := c.run("provide", "hello")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(Equal("error: standard input has one value, and the thread waits for KEY, REGION: name one, as in `kubectl skein provide hello KEY < FILE`\n"))
		Expect(c.run("provide", "hello", "KEY")).To(Equal(outputs{out: "KEY set\n"}))
		Expect(value(ctx, "KEY")).To(Equal("s3cret-value"))
		Expect(c.run("env", "list", "hello").out).To(MatchRegexp(`KEY +secret`))
		c.stdin = "north"
		Expect(c.run("provide", "hello")).To(Equal(outputs{out: "REGION set\n"}), "the only one that is still missing")
		Expect(c.run("env", "list", "hello").out).To(MatchRegexp(`REGION +text +\S.* north`))
		Expect(c.run("provide", "hello")).To(Equal(outputs{err: "The thread waits for no variables.\n"}))
	})

	It("takes no value from the command line", func() {
		got := c.run("provide", "hello", "KEY=s3cret-value")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(And(ContainSubstring("does not belong on the command line"), ContainSubstring("kubectl skein provide hello KEY < FILE"), Not(ContainSubstring("s3cret"))))
		Expect(c.run("provide", "hello", "KEY", "s3cret-value").err).To(ContainSubstring("one argument too many"))
		Expect(c.run("provide").err).To(ContainSubstring("THREAD is missing"))
	})

	It("says which variables there are to give", func() {
		c.stdin = "x"
		Expect(c.run("provide", "hello", "OTHER").err).To(Equal("error: the thread does not wait for OTHER, but for KEY, REGION: `kubectl skein env set hello OTHER` sets it all the same\n"))
		c.stdin = "\n"
		got := c.run("provide", "hello", "KEY")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring("KEY got no value, so nothing was set"))
	})

	It("asks on a terminal, and shows nothing of a secret", func(ctx SpecContext) {
		person, terminal := pseudoTerminal()
		shown := &lockedBuffer{}
		go func() { _, _ = io.Copy(shown, person) }() // until the terminal is closed
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, genericiooptions.IOStreams{In: terminal, Out: terminal, ErrOut: terminal}, []string{"--kubeconfig", kubeconfig, "-n", c.ns, "provide", "hello"})
		}()
		Eventually(shown.String).Should(HaveSuffix("KEY (the key of the shop): "))
		Eventually(echoing(terminal)).Should(BeFalse())
		_, err := person.WriteString("s3cret-value\n")
		Expect(err).NotTo(HaveOccurred())
		Eventually(shown.String).Should(HaveSuffix("REGION: "))
		Eventually(echoing(terminal)).Should(BeTrue())
		_, err = person.WriteString("north\n")
		Expect(err).NotTo(HaveOccurred())
		Eventually(code).Should(Receive(BeZero()))
		Eventually(shown.String).Should(HaveSuffix("REGION set\r\n"))
		Expect(shown.String()).To(And(ContainSubstring("north"), Not(ContainSubstring("s3cret"))))
		Expect(value(ctx, "KEY")).To(Equal("s3cret-value"))
		Expect(value(ctx, "REGION")).To(Equal("north"))
	}, SpecTimeout(2*patience))

	It("leaves the terminal as it was when it is interrupted", func(ctx SpecContext) {
		person, terminal := pseudoTerminal()
		shown := &lockedBuffer{}
		go func() { _, _ = io.Copy(shown, person) }()
		ctx2, interrupt := context.WithCancel(ctx)
		defer interrupt()
		code := make(chan int, 1)
		go func() {
			code <- run(ctx2, genericiooptions.IOStreams{In: terminal, Out: terminal, ErrOut: terminal}, []string{"--kubeconfig", kubeconfig, "-n", c.ns, "provide", "hello"})
		}()
		Eventually(shown.String).Should(ContainSubstring("KEY (the key of the shop): "))
		Eventually(echoing(terminal)).Should(BeFalse())
		interrupt()
		Eventually(code).Should(Receive(Equal(exitInterrupted)))
		Expect(echoing(terminal)()).To(BeTrue())
		Expect(strings.Contains(c.run("env", "list", "hello").out, "KEY")).To(BeFalse())
		_, err := person.WriteString("\n") // ends the read that was left behind
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(2*patience))
})

// echoing returns a function that reports whether a terminal shows what is typed.
func echoing(terminal *os.File) func() bool {
	return func() bool {
		state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		return err == nil && state.Lflag&unix.ECHO != 0
	}
}
