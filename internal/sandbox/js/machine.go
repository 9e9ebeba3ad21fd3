//go:build linux && (amd64 || arm64)

// Package js is the program of a sandbox's child: one JavaScript engine that executes what a single Open requests. It
// exchanges frames (package protocol) over two pipes. It has nothing but those pipes; everything that the code needs
// from outside it requests from the host.
package js

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Limits on what code may have pending.
const (
	maxCalls  = 1000 // concurrent host calls
	maxTimers = 1000
)

// machine drives one engine: it runs code, waits for replies, and detects when nothing can happen any more. The
// goroutine of the engine owns all fields from started on.
type machine struct {
	vm   *qjs.VM
	conn *protocol.Conn
	// compiler is nil where all code comes compiled.
	compiler *Compiler
	// begin is what environment has made; undefined where the engine has none yet.
	begin qjs.Value

	in      chan frame          // from the manager
	room    *semaphore.Weighted // bytes of large frames that wait; nil when memory is not limited
	life    context.Context     // ends with stop
	events  chan func() error   // from timers, run on the engine's goroutine
	late    chan func() error   // from deadlines, run before everything else
	stopped chan struct{}       // closed by stop
	once    sync.Once
	die     context.CancelFunc // ends life
	reason  string             // why stopped; read only after stopped is closed

	over      atomic.Bool  // whether the Done was sent
	compiling atomic.Int64 // bytes that the compiler used, if that was too much

	turns atomic.Uint64 // counts beginnings and ends of turns; its lowest bit is inTurn while no turn runs

	started   bool
	lastCall  uint64
	lastTimer int32
	calls     map[uint64]*call
	tasks     []*task
	timers    map[int32]*timer
	console   console
}

// call is a pending host call.
type call struct {
	resolve, reject qjs.Value
	site            qjs.Value // an Error that was created at the place of the call
	released        func()    // called when the host has answered; may be nil
}

// task is a promise that something waits for.
type task struct {
	promise qjs.Value
	// done is called once with the state and the value, which it borrows.
	done func(qjs.PromiseState, qjs.Value) error
	// stuck is called instead when nothing can settle the promise any more.
	stuck func() error
	// over is called last, however the task ends, and frees what the task has kept. It may be nil.
	over func()
}

// Serve executes what the first frame of conn requests, to its end. vm is a fresh engine; if it is nil, Serve makes one
// from the images, or a new one. Only runs that do not come compiled need a compiler. Serve returns an error only when the manager breaks the
// protocol, the pipes break or there is no engine.
func Serve(vm *qjs.VM, conn *protocol.Conn, images Images, compiler *Compiler) error {
	t, content, err := conn.Read()
	if err != nil {
		return err
	}
	if t != protocol.TypeOpen {
		return protocol.Violation("a stream that starts with frame type %d", t)
	}
	open, err := protocol.ParseOpen(content)
	if err != nil {
		return err
	}
	begin := qjs.Undefined
	if vm == nil {
		if vm, begin, err = images.engine(open); err != nil {
			return err
		}
	}
	m := &machine{
		begin: begin,
		vm:    vm, conn: conn, compiler: compiler,
		in:      make(chan frame, 2*maxCalls),
		events:  make(chan func() error, maxTimers),
		late:    make(chan func() error, maxCalls),
		stopped: make(chan struct{}),
		calls:   map[uint64]*call{},
		timers:  map[int32]*timer{},
	}
	m.console.m, m.console.most, m.console.mostBytes = m, maxLogs, maxLogBytes
	m.life, m.die = context.WithCancel(context.Background())
	defer m.die()
	if open.Memory > 0 {
		vm.SetMemoryLimit(open.Memory)
		m.room = semaphore.NewWeighted(vm.MemoryLimit())
		boundGarbage(open.Memory)
	}
	go m.read()
	if open.Kind == protocol.KindIsolate {
		return m.isolate(open)
	}
	if compiler == nil && !open.Compiled() {
		return protocol.Violation("a run that is not compiled, for a child without a compiler")
	}
	return m.run(open)
}

// stop ends the code for good. Only the first reason counts.
func (m *machine) stop(reason string) {
	m.once.Do(func() {
		m.reason = reason
		m.vm.Stop()
		close(m.stopped)
		m.die()
	})
}

// errStopped means that stop was called. errMemory means that the engine ran out of memory without rejecting a
// promise.
var (
	errStopped = errors.New("stopped")
	errMemory  = errors.New("out of memory")
)

// turn runs everything that can run now and settles the tasks that are done.
func (m *machine) turn() error {
	for {
		m.vm.RunJobs()
		if m.vm.Stopped() {
			return errStopped
		}
		settled, err := m.settleTasks()
		if err != nil {
			return err
		}
		if !settled {
			m.logRejections()
			return nil
		}
	}
}

// settleTasks reports whether it settled any task. That may have made more code ready to run.
func (m *machine) settleTasks() (bool, error) {
	settled := false
	for _, t := range append([]*task(nil), m.tasks...) {
		if !slices.Contains(m.tasks, t) {
			continue // dropped by the done of another task
		}
		state, v := m.vm.State(t.promise)
		if state == qjs.Pending {
			continue
		}
		settled = true
		m.remove(t)
		err := t.done(state, v)
		m.vm.Free(v)
		t.end()
		if err != nil {
			return settled, err
		}
	}
	return settled, nil
}

// drop gives up a task.
func (m *machine) drop(t *task) {
	m.remove(t)
	t.end()
}

func (t *task) end() {
	if t.over != nil {
		t.over()
	}
}

func (m *machine) remove(t *task) {
	for i, other := range m.tasks {
		if other == t {
			m.tasks = append(m.tasks[:i:i], m.tasks[i+1:]...)
			m.vm.Free(t.promise)
			return
		}
	}
}

// idle reports whether no reply and no timer is pending, so that unsettled tasks can never settle.
func (m *machine) idle() bool { return len(m.calls) == 0 && len(m.timers) == 0 }

// unstick gives up the tasks that nothing can settle any more.
func (m *machine) unstick() error {
	if !m.idle() || len(m.tasks) == 0 || len(m.in) > 0 || len(m.events) > 0 || len(m.late) > 0 {
		return nil
	}
	if m.vm.OutOfMemory() {
		return errMemory
	}
	for _, t := range append([]*task(nil), m.tasks...) {
		m.drop(t)
		if err := t.stuck(); err != nil {
			return err
		}
	}
	return nil
}

// inTurn is the lowest bit of turns while the engine's goroutine does not wait.
const inTurn = 0

// wait takes the next event and handles it.
func (m *machine) wait(handle func(frame) error) error {
	select {
	case event := <-m.late: // otherwise code that keeps the engine busy would learn of its end only after all its turns
		m.turns.Add(2)
		return event()
	default:
	}
	m.turns.Add(1)
	select {
	case <-m.stopped:
		return errStopped
	case event := <-m.late:
		m.turns.Add(1)
		return event()
	case event := <-m.events:
		m.turns.Add(1)
		return event()
	case f := <-m.in:
		m.turns.Add(1)
		defer m.used(f)
		switch f.typ {
		case protocol.TypeReply:
			return m.reply(f.content)
		case errorReply:
			return m.tooLarge(f.content)
		}
		return handle(f)
	}
}

// after runs f on the engine's goroutine after d, through one of the channels that wait reads.
func (m *machine) after(to chan<- func() error, d time.Duration, f func() error) *time.Timer {
	return time.AfterFunc(d, func() {
		select {
		case to <- f:
		case <-m.stopped:
		}
	})
}

// start reports, once, that code of the request is about to run.
func (m *machine) start() error {
	if m.started {
		return nil
	}
	m.started = true
	return m.conn.Write(protocol.TypeStarted, nil)
}

// done sends the last frame.
func (m *machine) done(status sandbox.Status, outcome protocol.Outcome) error {
	if !m.over.CompareAndSwap(false, true) {
		return nil
	}
	d := protocol.Done{Status: status, Memory: max(m.vm.PeakMemory(), m.compiling.Load()), Outcome: outcome}
	err := m.conn.WriteParts(protocol.TypeDone, d.Head(), outcome.Value)
	if err == nil {
		return nil
	}
	// The only failure with a remedy is a result too large for a frame.
	d.Status, d.Outcome = sandbox.StatusError, protocol.Outcome{Err: &sandbox.Error{Name: "RangeError", Message: err.Error()}}
	return m.conn.Write(protocol.TypeDone, d.Encode())
}

// ended is done for a reason that is not in the code.
func (m *machine) ended(err error) error {
	if errors.Is(err, errStopped) && m.vm.Exhausted() {
		err = errMemory
	}
	switch {
	case errors.Is(err, errStopped):
		return m.done(sandbox.StatusTerminated, failure("Terminated", "%s", m.reason))
	case errors.Is(err, errMemory):
		return m.done(sandbox.StatusMemory, failure("InternalError", "the code ran out of memory"))
	}
	return err
}

func failure(name, format string, args ...any) protocol.Outcome {
	return protocol.Outcome{Err: &sandbox.Error{Name: name, Message: fmt.Sprintf(format, args...)}}
}

// thrown returns a thrown value as an error, with the engine's positions.
func (m *machine) thrown(v qjs.Value) (*sandbox.Error, qjs.ErrorInfo) {
	info := m.vm.Info(v)
	return &sandbox.Error{Name: info.Name, Message: info.Message, Stack: info.Stack}, info
}

// pending takes the exception that the engine holds.
func (m *machine) pending() (*sandbox.Error, qjs.ErrorInfo) {
	v := m.vm.Exception()
	defer m.vm.Free(v)
	return m.thrown(v)
}

func (m *machine) logRejections() {
	for _, reason := range m.vm.Rejections() {
		m.console.write("error", "unhandled rejection: "+m.vm.Inspect(reason))
		m.vm.Free(reason)
	}
}
