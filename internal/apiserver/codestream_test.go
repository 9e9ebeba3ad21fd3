package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/apiserver/code"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/sandbox"
)

// exchange is a WebSocket of code with the messages of the wire.
type exchange struct{ conn *websocket.Conn }

func (e *testEnv) codeSocket(ctx context.Context, change ...func(*websocket.DialOptions)) exchange {
	GinkgoHelper()
	o := &websocket.DialOptions{
		HTTPClient: e.http1(), HTTPHeader: http.Header{"Authorization": {"Bearer alice"}}, Subprotocols: []string{runtimev1.CodeSubprotocol},
	}
	for _, f := range change {
		f(o)
	}
	conn, _, err := websocket.Dial(ctx, e.base+at("hello", "/code"), o) //nolint:bodyclose // the library closes it
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.Subprotocol()).To(Equal(runtimev1.CodeSubprotocol))
	DeferCleanup(func() { _ = conn.CloseNow() })
	return exchange{conn}
}

func (x exchange) say(ctx context.Context, m string) {
	GinkgoHelper()
	Expect(x.conn.Write(ctx, websocket.MessageText, []byte(m))).To(Succeed())
}

func (x exchange) hear(ctx context.Context) string {
	GinkgoHelper()
	_, data, err := x.conn.Read(ctx)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

// closed returns why the server closed the connection.
func (x exchange) closed(ctx context.Context) websocket.CloseError {
	GinkgoHelper()
	_, data, err := x.conn.Read(ctx)
	Expect(err).To(HaveOccurred(), string(data))
	var e websocket.CloseError
	Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
	return e
}

// code makes the engine run a Go function as code. done reports how its context ended.
func (e *testEnv) code(f func(ctx context.Context, req sandbox.CodeRequest) any) (cause chan error) {
	cause = make(chan error, 10)
	e.engine.run = func(ctx context.Context, req sandbox.CodeRequest) (sandbox.Result, error) {
		v := f(ctx, req)
		cause <- context.Cause(ctx)
		if ctx.Err() != nil {
			return sandbox.Result{Status: sandbox.StatusTerminated, Error: &sandbox.Error{Name: "Terminated", Message: context.Cause(ctx).Error()}}, nil
		}
		return sandbox.Result{Status: sandbox.StatusSuccess, Value: v, Duration: time.Millisecond}, nil
	}
	return cause
}

// untilEnded is code that ends only when it is ended.
func untilEnded(ctx context.Context, req sandbox.CodeRequest) any {
	req.Report("on")
	<-ctx.Done()
	return nil
}

var _ = Describe("the WebSocket of code", func() {
	It("has the client serve functions, and gives reports and logs as they come", Label("COD-03", "COD-04", "COD-05"), func(ctx SpecContext) {
		e := newEnv()
		e.thread("hello")
		e.code(func(ctx context.Context, req sandbox.CodeRequest) any {
			req.Report(req.Args[0])
			req.Log(sandbox.Log{Level: "warn", Message: "careful", Time: time.UnixMicro(7)})
			got, err := req.Globals["double"].Func(ctx, []any{big.NewInt(4), values.Undefined{}})
			Expect(err).NotTo(HaveOccurred())
			_, err = req.Imports["shop"]["fail"].Func(ctx, nil)
			return []any{got, err.Error(), req.Imports["shop"]["rate"].Value, req.Globals["limit"].Value}
		})
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"run","run":{"source":"export default 1","execute":{"args":[{"$date":0}]},"globals":{"limit":{"$bigint":"3"}},
			"imports":{"shop":{"rate":0.5}},"functions":[{"name":"double"},{"import":"shop","name":"fail"}]}}`)
		Expect(x.hear(ctx)).To(MatchJSON(`{"type":"report","value":{"$date":0}}`))
		Expect(x.hear(ctx)).To(MatchJSON(`{"type":"log","log":{"level":"warn","message":"careful","time":7}}`))
		Expect(x.hear(ctx)).To(MatchJSON(`{"type":"call","id":1,"function":{"name":"double"},"args":[{"$bigint":"4"},{"$undefined":true}]}`))
		x.say(ctx, `{"type":"return","id":1,"value":{"$set":[8]}}`)
		Expect(x.hear(ctx)).To(MatchJSON(`{"type":"call","id":2,"function":{"import":"shop","name":"fail"}}`))
		x.say(ctx, `{"type":"throw","id":2,"error":{"name":"RangeError","message":"sold out"}}`)
		Expect(x.hear(ctx)).To(MatchJSON(`{"type":"result","result":{"kind":"CodeResult","apiVersion":"runtime.skein.dev/v1alpha1","status":"success","durationMs":1,
			"result":[{"$set":[8]},"RangeError: sold out",0.5,{"$bigint":"3"}]}}`))
		Expect(x.closed(ctx).Code).To(Equal(websocket.StatusNormalClosure))
	})

	It("takes memory for a reply only until the code has it, however many there are", Label("COD-03", "K8S-12"), func(ctx SpecContext) {
		budget := membudget.New(16<<20, time.Millisecond)
		e := newEnv(func(o *Options) { o.Memory = budget })
		e.thread("hello")
		const calls = 40 // which take five times as much as there is
		e.code(func(ctx context.Context, req sandbox.CodeRequest) any {
			for range calls {
				if _, err := req.Globals["list"].Func(ctx, nil); err != nil {
					return err.Error()
				}
			}
			return "done"
		})
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"run","run":{"source":"export default 1","functions":[{"name":"list"}]}}`)
		reply := "[" + strings.Repeat("{},", 3000) + "{}]"
		for n := range calls {
			Expect(x.hear(ctx)).To(ContainSubstring(fmt.Sprintf(`"id":%d`, n+1)))
			x.say(ctx, fmt.Sprintf(`{"type":"return","id":%d,"value":%s}`, n+1, reply))
		}
		Expect(x.hear(ctx)).To(ContainSubstring(`"result":"done"`))
		Expect(x.closed(ctx).Code).To(Equal(websocket.StatusNormalClosure))
		Eventually(budget.Used).Should(BeZero())
	}, SpecTimeout(patience))

	DescribeTable("gives mistakes in the options as link_error", Label("COD-02"), func(ctx SpecContext, run, message string) {
		e := newEnv()
		e.thread("hello")
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"run","run":`+run+`}`)
		var m runtimev1.CodeServerMessage
		Expect(json.Unmarshal([]byte(x.hear(ctx)), &m)).To(Succeed())
		Expect(m.Result).To(HaveValue(And(HaveField("Status", runtimev1.CodeLinkError), HaveField("Error.Message", ContainSubstring(message)))))
	},
		Entry("an unknown one", `{"source":"1","timeout":5}`, "timeout"),
		Entry("an unknown one within execute", `{"source":"1","execute":{"function":"x"}}`, "function"),
		Entry("one of a wrong type", `{"source":1}`, "source"),
		Entry("no source", `{}`, "source"),
		Entry("no options at all", `null`, "source"),
		Entry("a language", `{"source":"1","language":"perl"}`, "typescript or javascript"),
		Entry("a limit", `{"source":"1","memoryLimitBytes":-1}`, "memoryLimitBytes"),
		Entry("a value", `{"source":"1","globals":{"x":{"$bigint":1}}}`, "globals.x: \"$bigint\" must hold"),
		Entry("a function that is a value too", `{"source":"1","globals":{"x":1},"functions":[{"name":"x"}]}`, `"x" is given twice`),
		Entry("a function that comes twice", `{"source":"1","functions":[{"import":"a","name":"x"},{"import":"a","name":"x"}]}`, `"x" is given twice`),
	)

	DescribeTable("ends the code", Label("COD-04"), func(ctx SpecContext, end func(*testEnv, exchange), why string, answer OmegaMatcher) {
		e := newEnv(func(o *Options) { o.heartbeat = 20 * time.Millisecond })
		e.thread("hello")
		cause := e.code(untilEnded)
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"run","run":{"source":"for (;;);"}}`)
		Expect(x.hear(ctx)).To(ContainSubstring(`"on"`))
		end(e, x)
		Eventually(cause).Should(Receive(MatchError(why)))
		if answer != nil {
			Expect(x.hear(ctx)).To(answer)
		}
	},
		Entry("when told to, for the reason given", func(_ *testEnv, x exchange) { x.say(context.Background(), `{"type":"terminate","reason":"enough"}`) },
			"enough", And(ContainSubstring(`"status":"terminated"`), ContainSubstring(`"message":"enough"`))),
		Entry("when the client leaves", func(_ *testEnv, x exchange) { _ = x.conn.Close(websocket.StatusNormalClosure, "") }, code.ErrLeft.Reason, nil),
		Entry("when the connection breaks", func(_ *testEnv, x exchange) { _ = x.conn.CloseNow() }, code.ErrLeft.Reason, nil),
		Entry("when the server stops", func(e *testEnv, _ exchange) { e.stop() }, code.ErrStopping.Reason, ContainSubstring(code.ErrStopping.Reason)),
	)

	It("ends the code when the server stops, also while a client leaves a ping unanswered", Label("COD-04"), func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.heartbeat = 20 * time.Millisecond })
		e.thread("hello")
		cause := e.code(untilEnded)
		pinged := make(chan struct{}, 1)
		x := e.codeSocket(ctx, func(o *websocket.DialOptions) {
			o.OnPingReceived = func(context.Context, []byte) bool {
				select {
				case pinged <- struct{}{}:
				default:
				}
				return false
			}
		})
		x.say(ctx, `{"type":"run","run":{"source":"for (;;);"}}`)
		Expect(x.hear(ctx)).To(ContainSubstring(`"on"`))
		heard := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			heard <- x.hear(ctx)
		}()
		Eventually(pinged).Should(Receive())
		e.stop()
		Eventually(cause).Should(Receive(MatchError(code.ErrStopping)))
		Eventually(heard).Should(Receive(ContainSubstring(code.ErrStopping.Reason)))
	}, SpecTimeout(2*patience))

	DescribeTable("closes the connection of a client that breaks the protocol, and ends its code", func(ctx SpecContext, message, why string) {
		e := newEnv()
		e.thread("hello")
		cause := e.code(untilEnded)
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"run","run":{"source":"for (;;);"}}`)
		Expect(x.hear(ctx)).To(ContainSubstring(`"on"`))
		if message == "" {
			Expect(x.conn.Write(ctx, websocket.MessageBinary, []byte("x"))).To(Succeed())
		} else {
			x.say(ctx, message)
		}
		Expect(x.closed(ctx)).To(And(HaveField("Code", websocket.StatusPolicyViolation), HaveField("Reason", ContainSubstring(why))))
		Eventually(cause).Should(Receive(MatchError(code.ErrLeft)))
	},
		Entry("no JSON", `{`, "cannot be read"),
		Entry("an unknown type", `{"type":"dance"}`, `"dance"`),
		Entry("a second run", `{"type":"run","run":{"source":"1"}}`, "after run they are"),
		Entry("an unknown field", `{"type":"return","id":1,"valeu":1}`, "valeu"),
		Entry("an answer to no call", `{"type":"return","id":7}`, "no call 7"),
		Entry("a binary message", ``, "binary"),
	)

	It("begins with run", func(ctx SpecContext) {
		e := newEnv()
		e.thread("hello")
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"terminate"}`)
		Expect(x.closed(ctx)).To(And(HaveField("Code", websocket.StatusPolicyViolation), HaveField("Reason", ContainSubstring("must be run"))))
	})

	It("needs the right to run code, besides the right to connect", Label("K8S-04"), func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("hello")
		dial := func(user string) (int, string) {
			_, resp, err := websocket.Dial(ctx, e.base+at("hello", "/code"), &websocket.DialOptions{
				HTTPClient: e.http1(), HTTPHeader: map[string][]string{"Authorization": {"Bearer " + user}},
			})
			Expect(err).To(HaveOccurred())
			body := make([]byte, 1024)
			n, _ := resp.Body.Read(body)
			return resp.StatusCode, string(body[:n])
		}
		code, _ := dial("bob")
		Expect(code).To(Equal(403))
		e.rights.allow = map[string]bool{"bob get threads/code ns/hello": true}
		code, body := dial("bob")
		Expect(code).To(Equal(403), body)
		Expect(body).To(ContainSubstring("create on threads/code"))
		Expect(e.status("GET", at("hello", "/code"), "").Message).To(ContainSubstring("WebSocket"))
		Expect(st.Terminate(ctx, "x")).To(Succeed())
		code, _ = dial("alice")
		Expect(code).To(Equal(410))
	})

	It("takes secrets out of all that it sends", Label("ENV-03"), func(ctx SpecContext) {
		secrets := redact.NewRegistry(nil)
		secrets.Register("ns", "TOKEN", "hunter2-hunter2")
		e := newEnv(func(o *Options) { o.Secrets = secrets })
		e.thread("hello")
		e.code(func(ctx context.Context, req sandbox.CodeRequest) any {
			req.Report("a hunter2-hunter2")
			req.Log(sandbox.Log{Level: "info", Message: "b hunter2-hunter2"})
			_, _ = req.Globals["f"].Func(ctx, []any{"c hunter2-hunter2"})
			return "d hunter2-hunter2"
		})
		x := e.codeSocket(ctx)
		x.say(ctx, `{"type":"run","run":{"source":"1","functions":[{"name":"f"}]}}`)
		for i := range 4 {
			m := x.hear(ctx)
			Expect(m).To(And(Not(ContainSubstring("hunter2")), ContainSubstring("[redacted]")), m)
			if i == 2 {
				x.say(ctx, `{"type":"return","id":1}`)
			}
		}
	})
})
