//go:build linux && (amd64 || arm64)

package v8

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/stacks"
)

// keeper connects the supervisor and an engine for one Open. mu guards over, requests and writing to conn.
type keeper struct {
	conn   *protocol.Conn // to the supervisor
	engine *engine
	open   *protocol.Open
	inbox  *inbox
	mapper *stacks.Mapper // for a run; the client maps for isolates

	ending   atomic.Bool  // whether the reason of the end is decided
	compiler atomic.Int64 // bytes that the compiler used, if that was too much
	mu       sync.Mutex
	over     bool
	requests map[uint64]*time.Timer // current requests of an isolate
	ended    chan struct{}          // closed when the last frame is sent
}

// busyGrace is how long beyond its limit an engine may be busy before it is ended. By then code that awaits has
// answered its own request, even on a busy machine. The keeper cannot distinguish a busy engine from one that has yet
// to reach the answer.
const busyGrace = time.Second

// keep executes an Open, up to its last frame.
func keep(conn *protocol.Conn, e *engine, open *protocol.Open) error {
	k := &keeper{conn: conn, engine: e, open: open, inbox: newInbox(open.Memory), requests: map[uint64]*time.Timer{}, ended: make(chan struct{})}
	// From here on the keeper ends when the manager says so, when the time is up or when the engine ends, whatever
	// else it is doing.
	if open.Kind == protocol.KindRun && open.Wall > 0 {
		time.AfterFunc(open.Wall, func() { k.end(terminated(overtime(open.Wall))) })
	}
	go e.memory.guard(k.ended, func() { k.end(memoryDone(open.Memory)) })
	boundGarbage(open.Memory)
	go k.fromManager()
	failed := make(chan error, 1)
	go func() { failed <- k.serve() }()
	select {
	case <-k.ended:
		return nil
	case err := <-failed:
		e.kill()
		return err
	}
}

func overtime(wall time.Duration) string {
	return fmt.Sprintf("the code ran for longer than %s, its limit", wall)
}

func terminated(reason string) protocol.Done {
	return protocol.Done{Status: sandbox.StatusTerminated, Outcome: protocol.Outcome{Err: &sandbox.Error{Name: "Terminated", Message: reason}}}
}

func memoryDone(limit int64) protocol.Done {
	e := &sandbox.Error{Name: "InternalError", Message: "the code ran out of memory: its limit is " + size(limit)}
	e.Stack = e.Error()
	return protocol.Done{Status: sandbox.StatusMemory, Outcome: protocol.Outcome{Err: e}}
}

func size(bytes int64) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// end sends the last frame, once, and ends the engine. The engine is dead before the frame is sent, so that a thread
// that gets the frame no longer uses processor time. Only the first reason counts, from before the kill: code that
// then finds the engine dead must not report that it died by itself. When end returns, the frame has been sent.
func (k *keeper) end(d protocol.Done) {
	if !k.ending.CompareAndSwap(false, true) {
		<-k.ended
		return
	}
	k.engine.memory.look()
	k.engine.kill()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	d.Memory = max(k.engine.memory.used(), k.compiler.Load())
	if err := k.conn.Write(protocol.TypeDone, d.Encode()); err != nil {
		// The only failure with a remedy is a result too large for a frame.
		d.Status, d.Outcome = sandbox.StatusError, protocol.Outcome{Err: &sandbox.Error{Name: "RangeError", Message: err.Error()}}
		_ = k.conn.Write(protocol.TypeDone, d.Encode())
	}
	close(k.ended)
	k.inbox.die()
}

// fromManager receives the manager's frames. A Terminate acts at once.
func (k *keeper) fromManager() {
	reason, err := k.inbox.untilTerminate(k.conn)
	if err != nil {
		reason = "the sandbox's connection ended"
	}
	k.end(terminated(reason))
}

// serve prepares the code, passes it to the engine and passes frames on. An error is the manager's or ours.
func (k *keeper) serve() error {
	if k.open.Kind == protocol.KindIsolate {
		addLibraries(k.open)
	} else {
		stop := k.watchCompiler()
		mapper, failed := compileModules(k.open)
		stop()
		if k.mapper = mapper; failed != nil {
			k.end(protocol.Done{Status: sandbox.StatusLinkError, Outcome: protocol.Outcome{Err: failed}})
			return nil
		}
	}
	content, err := k.open.Encode()
	if err != nil {
		k.end(protocol.Done{Status: sandbox.StatusError, Outcome: protocol.Outcome{Err: &sandbox.Error{Name: "RangeError", Message: err.Error()}}})
		return nil
	}
	to := protocol.NewConn(nil, k.engine.in, nil)
	go k.toEngine(to, content)
	return k.fromEngine()
}

// toEngine passes the Open and what follows it to the engine.
func (k *keeper) toEngine(to *protocol.Conn, open []byte) {
	k.engine.memory.sent(len(open))
	err := to.Write(protocol.TypeOpen, open)
	for err == nil {
		select {
		case <-k.ended:
			return
		case f := <-k.inbox.frames:
			switch f.typ {
			case protocol.TypeDescribe, protocol.TypeInvoke, protocol.TypeCall:
				k.begin(f.content)
			}
			if content, ok := k.fits(f); ok {
				k.engine.memory.sent(len(content))
				err = to.Write(f.typ, content)
			}
			k.inbox.used(f)
		}
	}
	// The engine no longer reads: fromEngine reports why.
}

// fits returns what to pass on of a frame of the manager. A value larger than all memory that the code may use is not
// passed to the engine, which would accept it. A reply becomes an error that code can catch, as in the default
// engine; any other frame ends the code.
func (k *keeper) fits(f frame) ([]byte, bool) {
	if k.open.Memory <= 0 || int64(len(f.content)) <= k.open.Memory {
		return f.content, true
	}
	if f.typ == protocol.TypeReply {
		if r, err := protocol.ParseReply(f.content); err == nil {
			r.Outcome = protocol.Outcome{Err: &sandbox.Error{Name: "InternalError", Message: "out of memory"}}
			return r.Encode(), true
		}
	}
	k.end(memoryDone(k.open.Memory))
	return nil, false
}

// begin starts the clock of a request to an isolate. The engine itself answers late requests, unless it is busy.
func (k *keeper) begin(content []byte) {
	id, n := binary.Uvarint(content)
	if n <= 0 || k.open.Wall <= 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests[id] = time.AfterFunc(k.open.Wall+busyGrace, func() { k.end(terminated(overtime(k.open.Wall))) })
}

func (k *keeper) settled(content []byte) {
	id, n := binary.Uvarint(content)
	if n <= 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t, ok := k.requests[id]; ok {
		t.Stop()
		delete(k.requests, id)
	}
}

// fromEngine passes on the engine's frames up to its last, or reports why there was none.
func (k *keeper) fromEngine() error {
	from := protocol.NewConn(k.engine.out, nil, nil)
	for {
		h, err := from.ReadHeader()
		if err == nil && !h.Type.FromChild() {
			err = protocol.Violation("frame type %d from an engine", h.Type)
		}
		if err == nil && k.open.Memory > 0 && int64(h.Size) > k.open.Memory {
			// The keeper would need as much memory again to hold what the code may not even have once.
			k.end(memoryDone(k.open.Memory))
			return nil
		}
		var f frame
		if err == nil {
			f, err = readFrame(from, h)
		}
		switch {
		case errors.Is(err, protocol.ErrProtocol):
			k.end(terminated("the code broke out of the engine and was stopped"))
			return nil
		case err != nil:
			k.end(k.died())
			return nil
		case f.typ == protocol.TypeDone:
			return k.done(f.content)
		case f.typ == protocol.TypeSettled:
			k.settled(f.content)
		}
		err = k.pass(f.typ, f.content)
		f.free()
		if err != nil {
			return err
		}
	}
}

// pass sends a frame to the supervisor, unless the last one was sent.
func (k *keeper) pass(t protocol.Type, content []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return nil
	}
	return k.conn.Write(t, content)
}

// done handles the engine's own last frame, and maps its positions.
func (k *keeper) done(content []byte) error {
	d, err := protocol.ParseDone(content)
	if err != nil {
		k.end(terminated("the code broke out of the engine and was stopped"))
		return nil
	}
	switch {
	case d.Status == sandbox.StatusMemory:
		*d = memoryDone(k.open.Memory)
	case d.Err != nil && k.mapper != nil:
		d.Err.Stack = strings.TrimRight(d.Err.Error()+"\n"+k.mapper.Stack(d.Err.Stack), "\n")
	}
	k.end(*d)
	return nil
}

// died returns why an engine ended without a last frame. It waits for the process.
func (k *keeper) died() protocol.Done {
	<-k.engine.done
	state := k.engine.cmd.ProcessState
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case k.engine.stderr.ranOut():
		return memoryDone(k.open.Memory)
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		d := memoryDone(k.open.Memory)
		d.Err.Message = "the engine was killed, most likely because the sandbox ran out of memory"
		return d
	}
	fmt.Fprintf(os.Stderr, "sandbox child: the engine ended with %v: %s\n", state, k.engine.stderr.String())
	return terminated(fmt.Sprintf("the engine crashed (%v)", state))
}
