//go:build linux && (amd64 || arm64)

package js_test

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/inuse"
	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

func TestJS(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox child")
}

// compiler is that of runs.
var compiler = &js.Compiler{
	Compile: compile.Module,
	InUse:   inuse.Bytes,
}

// child serves one Open in this process and returns the manager's end.
func child(open *protocol.Open) *protocol.Conn {
	GinkgoHelper()
	pipe := func() (*os.File, *os.File) {
		r, w, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		vm, err := qjs.New()
		Expect(err).NotTo(HaveOccurred())
		defer vm.Close()
		_ = js.Serve(vm, protocol.NewConn(inR, outW, nil), js.Images{}, compiler)
		_ = outW.Close()
	}()
	DeferCleanup(func() {
		_ = inW.Close()
		<-ended
		for _, f := range []*os.File{inR, outR} {
			_ = f.Close()
		}
	})
	c := protocol.NewConn(outR, inW, nil)
	b, err := open.Encode()
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Write(protocol.TypeOpen, b)).To(Succeed())
	return c
}

// until reads frames up to one of the type.
func until(c *protocol.Conn, want protocol.Type) []byte {
	GinkgoHelper()
	for {
		t, content, err := c.Read()
		Expect(err).NotTo(HaveOccurred())
		if t == want {
			return content
		}
	}
}

var _ = Describe("a child", func() {
	isolate := func(code string) *protocol.Open {
		return &protocol.Open{Limits: protocol.Limits{Kind: protocol.KindIsolate}, Modules: []protocol.Module{{Name: "t", Source: code}}}
	}

	It("loads zod", Label("TOL-03"), func() {
		c := child(isolate("import { z } from 'zod'; import * as all from 'zod/v4'; export default { args: z.object({ a: z.email(), b: all.string().optional() }), execute() {} }"))
		Expect(c.Write(protocol.TypeDescribe, (&protocol.Describe{ID: 1, Module: "t"}).Encode())).To(Succeed())
		s, err := protocol.ParseSettled(until(c, protocol.TypeSettled))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Err).To(BeNil())
		v, err := value.Decode(s.Value)
		Expect(err).NotTo(HaveOccurred())
		Expect(v).To(HaveKeyWithValue("args", HaveKeyWithValue("required", []any{"a"})))
	})

	It("says that it started before any code runs, and only then", Label("COD-09"), func() {
		c := child(isolate("export default (state) => state.ping()"))
		Expect(c.Write(protocol.TypeInvoke, (&protocol.Invoke{ID: 1, Invocation: "i", Module: "t"}).Encode())).To(Succeed())
		var order []protocol.Type
		for len(order) == 0 || order[len(order)-1] != protocol.TypeHostCall {
			t, _, err := c.Read()
			Expect(err).NotTo(HaveOccurred())
			order = append(order, t)
		}
		Expect(order).To(Equal([]protocol.Type{protocol.TypeStarted, protocol.TypeHostCall}))
	})

	It("ends when its pipe closes, also during an endless loop", func() {
		c := child(&protocol.Open{
			Limits: protocol.Limits{Kind: protocol.KindRun}, Main: "main.js",
			Modules: []protocol.Module{{Name: "main.js", Form: protocol.FormJavaScript, Source: "report(1); for (;;);"}},
		})
		until(c, protocol.TypeReport)
		// The cleanup closes the pipe and waits for the end.
	})

	It("refuses a manager that does not keep to the protocol", func() {
		vm, err := qjs.New()
		Expect(err).NotTo(HaveOccurred())
		defer vm.Close()
		r, w, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		defer r.Close()
		defer w.Close()
		Expect(protocol.NewConn(nil, w, nil).Write(protocol.TypeReply, []byte{1, 1, 0})).To(Succeed())
		Expect(js.Serve(vm, protocol.NewConn(r, w, nil), js.Images{}, nil)).To(MatchError(protocol.ErrProtocol))
	})

	It("takes only compiled runs in a program without a compiler", func() {
		vm, err := qjs.New()
		Expect(err).NotTo(HaveOccurred())
		defer vm.Close()
		r, w, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		defer r.Close()
		defer w.Close()
		open := protocol.Open{Limits: protocol.Limits{Kind: protocol.KindRun}, Main: "main.js", Modules: []protocol.Module{{Name: "main.js", Form: protocol.FormJavaScript, Source: "1"}}}
		b, err := open.Encode()
		Expect(err).NotTo(HaveOccurred())
		Expect(protocol.NewConn(nil, w, nil).Write(protocol.TypeOpen, b)).To(Succeed())
		Expect(js.Serve(vm, protocol.NewConn(r, w, nil), js.Images{}, nil)).To(MatchError(protocol.ErrProtocol))
	})

	It("maps the positions of a run that comes compiled", Label("COD-05"), func() {
		source := "interface A {\n  n: number\n}\n\nexport default (a: A) => {\n  throw new Error('no ' + a.n)\n}\n"
		m, failed := compile.Compile("main.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		for _, mapped := range []bool{true, false} {
			module := protocol.Module{Name: "main.ts", Source: m.Code}
			if mapped {
				module.Map = m.SourceMap
			}
			args, err := value.Encode([]any{map[string]any{"n": 1}})
			Expect(err).NotTo(HaveOccurred())
			c := child(&protocol.Open{Limits: protocol.Limits{Kind: protocol.KindRun}, Main: "main.ts", Args: args, Modules: []protocol.Module{module}})
			done, err := protocol.ParseDone(until(c, protocol.TypeDone))
			Expect(err).NotTo(HaveOccurred())
			Expect(done.Status).To(Equal(sandbox.StatusError))
			Expect(strings.Contains(done.Outcome.Err.Stack, "main.ts:6:")).To(Equal(mapped), done.Outcome.Err.Stack)
		}
	})

	It("counts the time that was spent on a run before it came", Label("COD-06"), func() {
		c := child(&protocol.Open{Limits: protocol.Limits{Kind: protocol.KindRun, Wall: time.Hour}, Spent: time.Hour, Main: "main.js",
			Modules: []protocol.Module{{Name: "main.js", Source: "const end = Date.now() + 10_000; while (Date.now() < end);"}}})
		done, err := protocol.ParseDone(until(c, protocol.TypeDone))
		Expect(err).NotTo(HaveOccurred())
		Expect(done.Status).To(Equal(sandbox.StatusTerminated))
		Expect(done.Outcome.Err.Message).To(Equal("the code ran for longer than 1h0m0s, its limit"))
	})

	It("ends an isolate that a broken request reaches", func() {
		c := child(isolate("export default 1"))
		Expect(c.Write(protocol.TypeInvoke, []byte{0xFF})).To(Succeed())
		_, _, err := c.Read()
		Expect(err).To(HaveOccurred())
	})

	It("bounds the console", Label("COD-05"), func() {
		c := child(&protocol.Open{
			Limits: protocol.Limits{Kind: protocol.KindRun}, Main: "main.js",
			Modules: []protocol.Module{{Name: "main.js", Form: protocol.FormJavaScript, Source: "for (let i = 0; i < 5000; i++) console.log(i)"}},
		})
		n, last := 0, ""
		for {
			t, content, err := c.Read()
			Expect(err).NotTo(HaveOccurred())
			if t == protocol.TypeDone {
				break
			}
			if t == protocol.TypeLog {
				l, err := protocol.ParseLog(content)
				Expect(err).NotTo(HaveOccurred())
				n, last = n+1, l.Level+" "+l.Message
			}
		}
		Expect(n).To(Equal(1001))
		Expect(last).To(HavePrefix("warn the console's limit"))
	})
})
