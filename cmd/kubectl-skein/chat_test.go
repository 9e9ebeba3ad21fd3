package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("kubectl skein chat", func() {
	var c command
	var st *thread.State

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		c = command{ctx: context.Background(), ns: ns}
	})

	It("sends each line after the answer to the one before", func() {
		c.stdin = "one\n\n//two\n/help\n/nonsense\nthree"
		got := c.run("chat", "hello")
		Expect(got.code).To(BeZero(), got.err)
		var said []string
		for line := range strings.Lines(c.run("messages", "hello").out) {
			if _, text, ok := strings.Cut(strings.TrimSpace(line), "user: "); ok {
				said = append(said, text)
			} else if _, text, ok := strings.Cut(strings.TrimSpace(line), "assistant: "); ok {
				said = append(said, text)
			}
		}
		Expect(said).To(Equal([]string{"one", "echo: one", "/two", "echo: /two", "three", "echo: three"}))
		for _, text := range []string{"assistant: echo: one", "assistant: echo: /two", "assistant: echo: three"} {
			Expect(got.out).To(ContainSubstring(text))
		}
		Expect(got.err).To(And(ContainSubstring("/attach PATH"), ContainSubstring("/nonsense is not a command")))
	})

	It("attaches files, and sends nothing without them", func() {
		file := GinkgoT().TempDir() + "/orders.csv"
		Expect(os.WriteFile(file, []byte("a,b\n"), 0o600)).To(Succeed())
		c.stdin = "/attach " + file + "\nlook\n"
		got := c.run("chat", "hello")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.err).To(ContainSubstring("/orders.csv will be attached to the next message"))
		Expect(c.run("messages", "hello").out).To(ContainSubstring("user (file /orders.csv): look"))
		for command, says := range map[string]string{"/attach /nowhere": "no such file", "/attach": "name a file"} {
			c.stdin = command + "\nwithout it\n"
			got = c.run("chat", "hello")
			Expect(got.code).To(Equal(exitError), command)
			Expect(got.err).To(ContainSubstring(says))
		}
		Expect(c.run("messages", "hello").out).NotTo(ContainSubstring("without it"))
	})

	It("ends with SIGTERM, and when an answer takes too long", func(ctx SpecContext) {
		echoes.free.Store(false)
		c.stdin = "wait\n"
		got := c.run("chat", "hello", "--timeout=300ms")
		Expect(got.code).To(Equal(exitTimeout), got.err)
		Expect(got.err).To(ContainSubstring("no end of the run within 300ms"))

		waiting := func() ([]store.InboxItem, error) { return env.Threads.Store().Inbox(ctx, st.ID()) }
		Eventually(waiting).Should(HaveLen(1))
		commands, end := context.WithCancelCause(context.Background())
		defer end(nil)
		c.ctx = commands
		s := c.start("chat", "hello")
		Eventually(waiting).Should(HaveLen(2))
		end(errTerminated)
		Eventually(s.code).Should(Receive(Equal(exitInterrupted)))
	}, SpecTimeout(2*patience))

	It("exits as the last run ended", func() {
		c.stdin = "fail\n"
		Expect(c.run("chat", "hello").code).To(Equal(exitFailed))
		c.stdin = "fail\nfine\n"
		Expect(c.run("chat", "hello").code).To(BeZero())
		c.stdin = "stop\n"
		Expect(c.run("chat", "hello").code).To(Equal(exitStopped))
	})

	It("ends at the first message that the server refuses, which the error says once", func(ctx SpecContext) {
		Expect(st.Terminate(ctx, "over")).To(Succeed())
		c.stdin = "too late\nlater\n"
		got := c.run("chat", "hello")
		Expect(got.code).To(Equal(exitRefused))
		Expect(strings.Count(got.err, "the thread is terminated")).To(Equal(1), got.err)
	})

	It("says that a line is too long for a message", func() {
		c.stdin = strings.Repeat("x", runtimev1.MaxContentBytes+10) + "\n"
		got := c.run("chat", "hello")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(Equal("error: a line of the input is too long: a message has at most 262144 bytes; give the rest as a file with /attach\n"))
	})

	It("tells how it ended also after an interrupt, which may have stopped a run only", func() {
		interrupted, interrupt := context.WithCancel(context.Background())
		interrupt()
		c.ctx, c.stdin = interrupted, "fail\n"
		got := c.run("chat", "hello")
		Expect(got.code).To(Equal(exitFailed))
		Expect(got.err).To(ContainSubstring("the model took too long"))
	})

	It("leaves with /quit and sends nothing after it", func() {
		c.stdin = "/quit\nlater\n"
		Expect(c.run("chat", "hello").code).To(BeZero())
		Expect(c.run("messages", "hello").out).NotTo(ContainSubstring("later"))
	})

	It("says what is wrong with its arguments", func() {
		Expect(c.run("chat").err).To(ContainSubstring("--agent AGENT"))
		Expect(c.run("chat", "hello", "--agent=helper").err).To(Equal("error: --agent creates a new thread, and hello exists already: leave out one of the two\n"))
		Expect(c.run("chat", "hello", "--tail=-1").err).To(And(ContainSubstring("--tail"), ContainSubstring("cannot be below 0")))
		got := c.run("chat", "nobody")
		Expect(got.code).NotTo(BeZero())
		Expect(got.err).To(ContainSubstring("nobody"))
	})
})

var _ = Describe("lines on a terminal", func() {
	var person *os.File
	var shown *lockedBuffer
	var in *lines
	var interrupts chan os.Signal

	BeforeEach(func() {
		var terminal *os.File
		person, terminal = pseudoTerminal()
		shown = &lockedBuffer{}
		go func() { _, _ = io.Copy(shown, person) }() // until the terminal is closed
		interrupts = make(chan os.Signal, 1)
		p := &plugin{IOStreams: genericiooptions.IOStreams{In: terminal, Out: terminal, ErrOut: terminal}}
		var err error
		in, err = newLines(p, interrupts)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(in.close)
		Expect(in.terminal).To(BeTrue())
		q := in.plugin(p)
		in.start()
		Eventually(shown.String).Should(ContainSubstring("> "))
		fmt.Fprintln(q.Out, "said meanwhile")
	})

	It("are edited, and brought back by the arrow keys", func() {
		_, err := person.WriteString("helo\x7flo\r")
		Expect(err).NotTo(HaveOccurred())
		Eventually(in.typed).Should(Receive(Equal("hello")))
		_, err = person.WriteString("\x1b[A!\r")
		Expect(err).NotTo(HaveOccurred())
		Eventually(in.typed).Should(Receive(Equal("hello!")))
		Expect(shown.String()).To(ContainSubstring("said meanwhile"))
		_, err = person.WriteString("\x04")
		Expect(err).NotTo(HaveOccurred())
		Eventually(in.typed).Should(BeClosed())
		Expect(in.err).NotTo(HaveOccurred())
	})

	It("keep what was typed when an interrupt comes", func() {
		_, err := person.WriteString("ab\x03c\r")
		Expect(err).NotTo(HaveOccurred())
		Eventually(interrupts).Should(Receive(Equal(os.Interrupt)))
		Eventually(in.typed).Should(Receive(Equal("abc")))
	})
})

var _ = Describe("a chat", func() {
	It("drops questions that others have answered", func() {
		var out bytes.Buffer
		c := &chat{plugin: &plugin{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}}
		c.asking = []runtimev1.Approval{{ToolCallID: "a", Name: "pay"}, {ToolCallID: "b", Name: "send", Arguments: `{"to":"x"}`}}
		c.decided(&runtimev1.Event{Data: []byte(`{"toolCallId":"a"}`)})
		Expect(c.asking).To(HaveLen(1))
		Expect(out.String()).To(Equal("Approve send({\"to\":\"x\"})? Answer y, or n with a reason for the model.\n"))
		c.decided(&runtimev1.Event{Data: []byte(`{"toolCallId":"b"}`)})
		Expect(c.asking).To(BeEmpty())
	})
})

// pseudoTerminal returns both ends of a terminal: the person's, and the program's.
func pseudoTerminal() (person, terminal *os.File) {
	GinkgoHelper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(person.Close)
	Expect(unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)).To(Succeed())
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	Expect(err).NotTo(HaveOccurred())
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(terminal.Close)
	return person, terminal
}
