//go:build linux && (amd64 || arm64)

package hostiletest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Engine is the engine that the programs run on.
type Engine struct {
	// Name selects the expectations where engines differ: "quickjs" or "v8".
	Name string
	// Change sets up a supervisor for the engine. It may be nil.
	Change func(*supervisor.Options)
	// Base is the resident memory of an idle child in bytes, mostly text and tables of the engine. A child may use
	// twice its limit on top of that. 0 means 20 MB.
	Base int64
}

const (
	defaultBase = 20_000_000
	// late is how long a program may run beyond its wall time until it is killed and all sides know, on a machine
	// that is busy with other work. Usually it takes a quarter of a second.
	late = 30 * time.Second
	// patience bounds everything else that must happen.
	patience = 2 * time.Minute
	// prefork is how many ready children the supervisor under test keeps.
	prefork = 1
	// wholeSuite is more than all programs take together. The run beside them lasts this long.
	wholeSuite = 15 * time.Minute
)

// SlowerEnv is the variable that says how many times slower this machine is because it is emulated. Each program gets
// that many times its wall time.
const SlowerEnv = "SKEIN_TEST_SLOWER"

var slower = func() time.Duration {
	n, _ := strconv.Atoi(os.Getenv(SlowerEnv))
	return time.Duration(max(n, 1))
}()

// Specs registers one spec for each program, all in one supervisor, and then the specs that check the supervisor
// afterwards.
func Specs(engine Engine) {
	Describe("hostile programs on "+engine.Name, Ordered, ContinueOnFailure, Label("COD-01", "COD-06", "COD-08"), func() {
		programs, err := Load(engine.Name)
		if err != nil {
			panic(err)
		}
		h := &hold{engine: engine}
		BeforeAll(h.start)
		for _, p := range programs {
			p.Wall *= slower
			It(p.Title(), func() { h.check(&p) })
		}
		It("were many", func() { Expect(len(programs)).To(BeNumerically(">=", 60)) })
		It("left the run beside them alone", h.witnessed)
		It("left a supervisor that answers, with no child, goroutine or memory more than before", h.expectIntact)
	})
}

// Features registers one spec for each feature of the language that code may use.
func Features(engine Engine) {
	Describe("the language on "+engine.Name, Ordered, ContinueOnFailure, Label("COD-01", "COD-03", "COD-07"), func() {
		programs, err := LoadFeatures(engine.Name)
		if err != nil {
			panic(err)
		}
		h := &hold{engine: engine}
		BeforeAll(h.start)
		AfterAll(func() { h.release() })
		for _, p := range programs {
			p.Wall *= slower
			It(p.Title(), func() { h.check(&p) })
		}
	})
}

// hold is the supervisor in which the programs run, and a run beside them that they must not reach.
type hold struct {
	engine     Engine
	client     *client.Client
	goroutines int
	resident   int64

	witness  sandbox.Execution
	touched  int // calls of a function that only the witness has
	released chan struct{}
	release  func() // lets the witness end
}

func (h *hold) start() {
	if h.engine.Base == 0 {
		h.engine.Base = defaultBase
	}
	s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
		o.Prefork, o.MaxWallTime = prefork, wholeSuite*slower
		if h.engine.Change != nil {
			h.engine.Change(o)
		}
	})
	h.client = s.Dial(GinkgoT(), "thread-1")
	h.released = make(chan struct{})
	h.release = sync.OnceFunc(func() { close(h.released) })
	arrived := make(chan struct{})
	h.witness = h.client.RunCode(context.Background(), sandbox.CodeRequest{
		Source: "const mine = crypto; const names = Object.keys(globalThis).length; export default async () => { const v = await forbidden('wait'); return [mine, v, Object.keys(globalThis).length === names] }",
		Globals: map[string]sandbox.Binding{
			"crypto": {Value: "a secret of this run"},
			"forbidden": {Func: func(context.Context, []any) (any, error) {
				h.touched++
				close(arrived)
				<-h.released
				return "released", nil
			}},
		},
	})
	Eventually(arrived, patience).Should(BeClosed())
	Eventually(h.complete, patience).Should(BeTrue())
	h.goroutines, h.resident = runtime.NumGoroutine(), Resident(os.Getpid())
}

// complete reports whether all expected children exist and no others. The children that started before there were images are
// replaced, so it waits for one that has them.
func (h *hold) complete() bool {
	children := Children(os.Getpid())
	imaged := h.engine.Name != string(sandbox.QuickJS)
	for _, pid := range children {
		imaged = imaged || strings.Contains(command(pid), "--images=true")
	}
	return imaged && len(children) == sandboxtest.AtRest(prefork)+1
}

// outcome says how a program ended, by runCode or as a tool.
type outcome struct {
	sandbox.Result
	peak int64 // peak resident memory of its child, in bytes
}

// hostText matches texts that only the host side of the sandbox could have produced.
var hostText = regexp.MustCompile(`goroutine \d+|\.go:\d+|modernc\.org|github\.com/skein-dev`)

func (h *hold) check(p *Program) {
	begun := time.Now()
	r := h.run(p)
	took := time.Since(begun)
	if GinkgoWriter != nil {
		fmt.Fprintf(GinkgoWriter, "%s after %s, %.1f MB resident: %+v %v\n", r.Status, took.Round(time.Millisecond), float64(r.peak)/1e6, r.Error, r.Value)
	}
	Expect(r.Status).To(BeElementOf(p.Status), "%+v", r.Error)
	Expect(took).To(BeNumerically("<", p.Wall+late*slower))
	Expect(r.peak).To(BeNumerically("<=", 2*p.Memory+h.engine.Base), "resident memory of the child")
	Expect(r.Retriable).To(BeFalse())
	if r.Error != nil {
		Expect(r.Error.Message).NotTo(ContainSubstring("did not stop"), "the client gave it up, and did not stop it")
	}
	if r.Status == sandbox.StatusMemory && !p.Tool {
		Expect(r.MemoryUsedBytes).To(BeNumerically(">", 0))
	}
	h.checkTexts(p, r)
	if r.Status == sandbox.StatusSuccess && p.HasResult {
		Expect([]any{plain(r.Value)}).To(Equal([]any{p.Result}))
	}
	if p.Error != "" && r.Error != nil {
		Expect(r.Error.Name).To(Equal(p.Error), r.Error.Message)
	}
	if p.Message != "" {
		Expect(r.Error).NotTo(BeNil())
		Expect(r.Error.Message).To(ContainSubstring(p.Message))
	}
	Expect(h.client.RunCode(context.Background(), sandbox.CodeRequest{Source: "export default () => 42"}).Wait(context.Background()).Value).To(Equal(42.0))
}

func (h *hold) checkTexts(p *Program, r outcome) {
	if r.Status == sandbox.StatusSuccess {
		Expect(r.Error).To(BeNil())
	} else {
		Expect(r.Error).NotTo(BeNil())
		Expect(r.Error.Name).NotTo(BeEmpty())
		Expect(len(r.Error.Name)).To(BeNumerically("<=", protocol.MaxName))
		Expect(len(r.Error.Message)).To(BeNumerically("<=", protocol.MaxMessage))
		Expect(len(r.Error.Stack)).To(BeNumerically("<=", protocol.MaxStack))
		Expect(r.Error.Message + r.Error.Stack).NotTo(MatchRegexp(hostText.String()))
	}
	total, found := 0, p.Log == ""
	for _, l := range r.Logs {
		total += len(l.Message)
		found = found || strings.Contains(l.Message, p.Log)
		Expect(len(l.Message)).To(BeNumerically("<=", protocol.MaxLog))
		Expect(l.Message).NotTo(MatchRegexp(hostText.String()))
	}
	Expect(total).To(BeNumerically("<=", 2<<20))
	Expect(found).To(BeTrue(), "no line of the console says %q", p.Log)
}

func plain(v any) any {
	var out any
	Expect(value.Into(v, &out)).To(Succeed())
	return out
}

func (h *hold) run(p *Program) outcome {
	watch := Watch(os.Getpid(), h.engine.Base)
	defer watch.Stop()
	var r sandbox.Result
	if p.Tool {
		r = h.tool(p)
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), p.Wall+2*late*slower)
		defer cancel()
		r = h.client.RunCode(ctx, sandbox.CodeRequest{
			Source: p.Source, Language: p.Language, MemoryLimitBytes: p.Memory, WallTime: p.Wall, Globals: globals(),
			Imports: map[string]map[string]sandbox.Binding{"host": {"one": {Value: 1}, "echo": {Func: echo}}},
		}).Wait(ctx)
	}
	return outcome{Result: r, peak: watch.Stop()}
}

func echo(_ context.Context, args []any) (any, error) {
	if len(args) == 0 {
		return value.Undefined{}, nil
	}
	return args[0], nil
}

// globals returns the functions and values that the host provides to a program.
func globals() map[string]sandbox.Binding {
	return map[string]sandbox.Binding{
		"echo": {Func: echo},
		"hold": {Func: func(ctx context.Context, _ []any) (any, error) { <-ctx.Done(); return nil, ctx.Err() }},
		"fail": {Func: func(_ context.Context, args []any) (any, error) {
			return nil, &sandbox.Error{Name: args[0].(string), Message: args[1].(string)}
		}},
		"big": {Func: func(_ context.Context, args []any) (any, error) {
			return strings.Repeat("x", int(min(args[0].(float64), 31<<20))), nil
		}},
		"table": {Value: map[string]any{
			"m": &value.Map{Entries: [][2]any{{"k", "v"}}}, "d": time.UnixMilli(0), "__proto__": map[string]any{"polluted": true},
		}},
	}
}

// tool runs a program as the definition of a tool.
func (h *hold) tool(p *Program) (r sandbox.Result) {
	begun := time.Now()
	defer func() { r.Duration = time.Since(begun) }()
	module, failed := compile.Compile("tool.ts", p.Source, sandbox.TypeScript)
	if failed != nil {
		return sandbox.Result{Status: sandbox.StatusLinkError, Error: failed}
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.Wall+2*late*slower)
	defer cancel()
	isolate, err := h.client.OpenIsolate(ctx, sandbox.IsolateRequest{
		Modules: map[string]sandbox.Module{"tool": module}, MemoryLimitBytes: p.Memory, WallTime: p.Wall,
		Static: map[string]any{"threadId": "thread-1"},
		Host: func(ctx context.Context, _, method string, args []any) (any, error) {
			switch method {
			case "echo":
				return echo(ctx, args)
			case "runCode":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("state has no method %q", method)
		},
		Log: func(_ string, l sandbox.Log) { r.Logs = append(r.Logs, l) },
	})
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = isolate.Close() }()
	v, err := isolate.Invoke(ctx, "call-1", "tool", map[string]any{"__proto__": map[string]any{"polluted": 1}})
	var gone *sandbox.IsolateGoneError
	var thrown *sandbox.Error
	switch {
	case err == nil:
		r.Status, r.Value = sandbox.StatusSuccess, v
	case errors.As(err, &gone):
		r.Status, r.Error = gone.Status, &sandbox.Error{Name: "IsolateGone", Message: gone.Reason}
	case errors.As(err, &thrown):
		r.Status, r.Error = sandbox.StatusError, thrown
	default:
		r.Status, r.Error = sandbox.StatusError, &sandbox.Error{Name: "Error", Message: err.Error()}
	}
	return r
}

// witnessed lets the witness end and checks that the hostile program has not touched it.
func (h *hold) witnessed() {
	Expect(h.witness.Done()).NotTo(BeClosed())
	h.release()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := h.witness.Wait(ctx)
	Expect(r.Error).To(BeNil())
	Expect(r.Value).To(Equal([]any{"a secret of this run", "released", true}))
	Expect(h.touched).To(Equal(1))
}

// expectIntact releases the held code. It fails the spec unless the supervisor runs code as before, and has no more children, goroutines and
// memory than before.
func (h *hold) expectIntact() {
	h.release()
	ctx, cancel := context.WithTimeout(context.Background(), late*slower)
	defer cancel()
	r := h.client.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => 42"}).Wait(ctx)
	Expect(r.Value).To(Equal(42.0), "%v", r.Error)
	Eventually(func() int { return len(Children(os.Getpid())) }, patience).Should(Equal(sandboxtest.AtRest(prefork)))
	Eventually(runtime.NumGoroutine, patience).Should(BeNumerically("<=", h.goroutines))
	Eventually(func() int64 { return Resident(os.Getpid()) - h.resident }, patience).Should(BeNumerically("<", 48<<20), "bytes more than before, in the supervisor and the manager's side together")
}
