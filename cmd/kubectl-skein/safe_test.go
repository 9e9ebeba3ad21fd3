package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// controls clears the line before it, as text of a model might.
const controls = "\x1b[1A\x1b[2K\u009b2Kquietly\r"

var _ = Describe("text of other users", func() {
	It("does not control the terminal, and makes no rows of its own", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		c := command{ctx: context.Background(), ns: ns}
		_, st, err := env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		text, title := "invoice "+controls, "title\n"+controls
		_, err = st.Inject(ctx, thread.NewMessage{Role: store.RoleUser, Content: &text})
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Update(ctx, thread.ThreadUpdate{Title: &title})).To(Succeed())
		run := store.Run{ID: "sess_" + strings.Repeat("0", 31) + "f", ThreadID: st.ID(), Agent: "helper", Status: store.RunFailed, Reason: "ModelFailed", Message: "the model said\n" + controls, StartedAt: 1, EndedAt: 2}
		Expect(env.Threads.Store().Apply(ctx, st.ID(), nil, &store.PutRun{Run: run})).To(Succeed())
		echoes.approvals = []approval.Call{{ToolCallID: "call_1", Name: "pay", Arguments: "{\"to\":\"" + controls + "\",\n\"amount\":120}"}}
		DeferCleanup(func() { echoes.approvals = nil })

		for rows, args := range map[string][]string{
			`^CALL.*\ncall_1 +pay +\{"to":"\[1A\[2K2Kquietly ?", "amount":120\} .*\n$`: {"approvals", "hello"},
			`^hello\tuser\tinvoice \[1A\[2K2Kquietly ?\n$`:                             {"search", "invoice"},
			`^NAME.*\nhello +title \[1A\[2K2Kquietly .*\n$`:                            {"history"},
			`^RUN.*\nsess_.* the model said \[1A\[2K2Kquietly *\n$`:                    {"runs", "hello"},
		} {
			got := c.run(args...)
			Expect(got.code).To(BeZero(), got.err)
			Expect(got.out).To(MatchRegexp(rows))
			Expect(strings.ContainsAny(got.out, "\x1b\r\u009b")).To(BeFalse(), "%q", got.out)
		}
	})

	It("does not control the terminal in errors either, which say all that the command has to say", func() {
		printed := func(err error) string {
			var out bytes.Buffer
			printError(&out, err)
			return out.String()
		}
		Expect(printed(errors.New("the run failed: " + controls))).To(Equal("error: the run failed: [1A[2K2Kquietly\n"))
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "threads"}, "b", errors.New(controls))
		Expect(printed(conflict)).To(HavePrefix("Error from server (Conflict): Operation cannot be fulfilled"))
		Expect(printed(conflict)).NotTo(ContainSubstring("\x1b"))
		Expect(printed(fmt.Errorf("namespace demo: %w; repeat the command to continue", conflict))).
			To(MatchRegexp(`^Error from server \(Conflict\): namespace demo: Operation .*; repeat the command to continue\n$`))
	})
})
