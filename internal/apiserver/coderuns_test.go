package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/sandbox"
)

var _ = Describe("runCode in Go", Label("COD-03", "COD-07"), func() {
	It("serves Go functions to the code, with what their parameters say", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.code(func(ctx context.Context, req sandbox.CodeRequest) any {
			var out []any
			for _, call := range []struct {
				name string
				args []any
			}{
				{"plain", []any{big.NewInt(7), values.Undefined{}}}, {"typed", []any{"x", 2.0, map[string]any{"n": 3.0}}}, {"typed", []any{"x"}}, {"typed", []any{1.0}},
				{"many", []any{"-", "a", "b"}}, {"nothing", nil}, {"fails", nil}, {"named", nil}, {"panics", nil}, {"bytes", []any{[]byte{1, 2}}}, {"when", []any{time.UnixMilli(5).UTC()}},
				{"unwritable", nil},
			} {
				v, err := req.Globals[call.name].Func(ctx, call.args)
				if err != nil {
					v = err.Error()
				}
				out = append(out, v)
			}
			return out
		})
		type point struct {
			N int `json:"n"`
		}
		x := t.RunCode(ctx, "x", runtimeclient.CodeOptions{Globals: map[string]any{
			"plain": func(_ context.Context, args []any) (any, error) { return args, nil },
			"typed": func(ctx context.Context, s string, n int, p *point) (string, error) {
				return fmt.Sprint(s, n, p), ctx.Err()
			},
			"many":       func(sep string, parts ...string) string { return strings.Join(parts, sep) },
			"nothing":    func() {},
			"fails":      func() error { return errors.New("no") },
			"named":      func() (int, error) { return 0, &runtimev1.CodeError{Name: "RangeError", Message: "far"} },
			"panics":     func() { panic("at the disco") },
			"bytes":      func(b []byte) int { return len(b) },
			"when":       func(t time.Time) time.Time { return t.Add(time.Second) },
			"unwritable": func() any { return int64(1) << 60 },
		}})
		Expect(x.Wait(ctx)).To(HaveField("Status", runtimev1.CodeSuccess))
		Expect(x.Value()).To(HaveExactElements(
			Equal([]any{big.NewInt(7), values.Undefined{}}), Equal("x2 &{3}"), Equal("x0 <nil>"), ContainSubstring("TypeError: argument 0"),
			Equal("a-b"), Equal(values.Undefined{}), Equal("Error: no"), Equal("RangeError: far"), Equal("Error: the function panics panicked: at the disco"), Equal(2.0), Equal(time.UnixMilli(1005).UTC()),
			ContainSubstring("use *big.Int"),
		))
	})

	It("gives reports and logs as they come", Label("COD-04", "COD-05"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		more := make(chan struct{})
		e.code(func(_ context.Context, req sandbox.CodeRequest) any {
			req.Report(&values.Set{Members: []any{1.0}})
			req.Log(sandbox.Log{Level: "info", Message: "half"})
			<-more
			req.Report(2.0)
			return nil
		})
		var exact []any
		logs := make(chan runtimev1.CodeLog, 1)
		x := t.RunCode(ctx, "x", runtimeclient.CodeOptions{ReportValue: func(v any) { exact = append(exact, v) }, Log: func(l runtimev1.CodeLog) { logs <- l }})
		var seen []string
		for r := range x.Reports() {
			if seen = append(seen, string(r)); len(seen) == 1 {
				Expect(x.Running()).To(BeTrue())
				Eventually(logs).Should(Receive(HaveField("Message", "half")))
				close(more)
			}
		}
		Expect(seen).To(Equal([]string{"[1]", "2"}))
		Expect(exact).To(Equal([]any{&values.Set{Members: []any{1.0}}, 2.0}))
		Expect(x.Wait(ctx)).To(And(HaveField("Reports", HaveLen(2)), HaveField("Logs", ConsistOf(HaveField("Message", "half")))))
	})

	It("says why code ended whose connection or context did", Label("COD-04"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		cause := e.code(untilEnded)
		callCtx, cancel := context.WithCancelCause(ctx)
		reported := make(chan struct{}, 2)
		o := runtimeclient.CodeOptions{Report: func(json.RawMessage) { reported <- struct{}{} }}
		x := t.RunCode(callCtx, "x", o)
		Eventually(reported).Should(Receive())
		cancel(errors.New("closing time"))
		Expect(x.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", "closing time"), HaveField("Reports", HaveLen(1))))
		Eventually(cause).Should(Receive(MatchError("closing time")), "the server is told why")

		x = t.RunCode(ctx, "x", o)
		Eventually(reported).Should(Receive())
		e.stop()
		Expect(x.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", ContainSubstring("server is stopping"))))
	})

	DescribeTable("refuses what cannot be carried", Label("COD-02"), func(ctx SpecContext, o runtimeclient.CodeOptions, message string) {
		e := newEnv()
		_, t := e.thread("hello")
		Expect(t.RunCode(ctx, "x", o).Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeLinkError), HaveField("Error.Message", ContainSubstring(message))))
	},
		Entry("an argument", runtimeclient.CodeOptions{Args: []any{make(chan int)}}, "argument 0"),
		Entry("a function of a kind that gives too much", runtimeclient.CodeOptions{Globals: map[string]any{"f": func() (int, int) { return 1, 2 }}}, "global f: it is a func() (int, int)"),
		Entry("a nil function", runtimeclient.CodeOptions{Imports: map[string]map[string]any{"a": {"f": runtimeclient.CodeFunc(nil)}}}, "import a: f: it is a nil function"),
		Entry("a function within a value", runtimeclient.CodeOptions{Globals: map[string]any{"o": map[string]any{"f": func() {}}}}, "global o: a function cannot be a value"),
		Entry("too large a value", runtimeclient.CodeOptions{Args: []any{strings.Repeat("x", runtimev1.MaxCodeMessageBytes)}}, "a message holds at most 16 MiB"),
	)

	It("says why it could not begin", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		_, err := e.client().Thread("ns", "nobody").RunCode(ctx, "x", runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(err).To(kind(runtimeclient.ErrNotFound))
		bob := *e.config
		bob.BearerToken = "bob"
		c, err := runtimeclient.New(&bob)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Thread("ns", "hello").RunCode(ctx, "x", runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(err).To(kind(runtimeclient.ErrForbidden))
		nowhere := *e.config
		nowhere.Host = "https://127.0.0.1:1"
		c, err = runtimeclient.New(&nowhere)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Thread("ns", "hello").RunCode(ctx, "x", runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(err).To(kind(runtimeclient.ErrUnavailable))
		Expect(st.Terminate(ctx, "x")).To(Succeed())
		_, err = t.RunCode(ctx, "x", runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(err).To(kind(runtimeclient.ErrTerminated))
	})
})
