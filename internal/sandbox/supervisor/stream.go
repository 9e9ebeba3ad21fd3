//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// hardGrace is how long a child may take to stop by itself before it is killed.
const hardGrace = 250 * time.Millisecond

// refillDelay is when the pool refills during a longer run.
const refillDelay = 10 * time.Millisecond

// firstRefill is when the pool refills after the first run for which a sandbox was claimed, while children are left.
// In a burst of claims, sandboxes that are done would otherwise take the processors from those that have yet to
// answer.
const firstRefill = 100 * time.Millisecond

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			http.Error(w, "the sandbox is shutting down", http.StatusServiceUnavailable)
			return
		}
		defer s.streams.Done()
		thread := r.Header.Get(ThreadHeader)
		speaks := protocol.Speaks(r.Header.Get(protocol.VersionHeader))
		switch {
		case speaks != nil:
			http.Error(w, speaks.Error(), http.StatusUpgradeRequired)
		case r.ProtoMajor != 2:
			http.Error(w, "use HTTP/2", http.StatusHTTPVersionNotSupported)
		case thread == "" || len(thread) > 256:
			http.Error(w, "the header "+ThreadHeader+" must name the thread", http.StatusBadRequest)
		case !s.pin(thread):
			http.Error(w, "this sandbox belongs to another thread and never serves a second one", http.StatusForbidden)
		default:
			end, ok := s.activity.begin()
			if !ok { // the client treats it like a sandbox that is gone, and its caller uses another one
				http.Error(w, "the sandbox has idled for its time and is about to be deleted", http.StatusServiceUnavailable)
				return
			}
			defer end()
			s.stream(w, r)
		}
	})
	mux.HandleFunc("GET "+IdlePath, s.answerIdle)
	mux.HandleFunc("GET "+protocol.VersionPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(protocol.Versions())) })
	return mux
}

// stream serves one isolate: it passes the Open to a child, and frames in both directions until one side ends.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	body := bufio.NewReaderSize(r.Body, protocol.ReadBuffer)
	header, limits, err := readOpen(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.last.Store(uint32(limits.Kind))
	if limits.Kind == protocol.KindRun {
		s.ran.Store(true)
	}
	limits.Memory = capped(limits.Memory, s.opts.MaxMemory)
	limits.Wall = capped(limits.Wall, s.opts.MaxWallTime)

	release, err := s.admission.admit(r.Context(), limits, r.Header.Get(NestedHeader) != "")
	var kept *memoryKeptError
	switch {
	case errors.As(err, &kept):
		gone := protocol.Gone{Status: sandbox.StatusMemory, Reason: kept.text}
		_ = protocol.NewConn(nil, w, nil).Write(protocol.TypeGone, gone.Encode())
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer release()
	open, pool := opening{header: header, limits: limits, rest: body}, s.poolOf(limits.Kind)
	if limits.Kind == protocol.KindRun && s.runs != nil {
		if open, pool, err = s.compile(r.Context(), open); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	child, err := pool.take(r.Context())
	if err != nil {
		logf("%v", err)
		http.Error(w, "the sandbox could not start a child", http.StatusInternalServerError)
		return
	}
	defer pool.allowRefill()
	defer child.dispose()
	defer time.AfterFunc(refillDelay, pool.allowRefill).Stop()

	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	if err := out.Flush(); err != nil {
		return
	}
	if err := open.send(child.in); err != nil {
		// Either the manager or the child disappeared; the end of the child shows which.
		child.kill(protocol.Gone{Status: sandbox.StatusTerminated, Reason: "the stream broke before the code was there"})
	}
	if limits.Kind == protocol.KindRun {
		defer time.AfterFunc(limits.Wall-open.spent+hardGrace, func() {
			child.kill(protocol.Gone{Status: sandbox.StatusTerminated, Reason: fmt.Sprintf("the code ran for longer than %s, its limit", limits.Wall)})
		}).Stop()
	}
	// When the manager gives up the stream, do not wait until the child reads the manager's frames: they may fill the
	// pipe, with a Terminate stuck behind them.
	defer context.AfterFunc(r.Context(), func() {
		child.kill(protocol.Gone{Status: sandbox.StatusTerminated, Reason: "the manager closed the stream"})
	})()
	// The manager's side ends with the stream, which ends with this function.
	go func() {
		err := toChild(child, body)
		if err != nil {
			child.kill(protocol.Gone{Status: sandbox.StatusTerminated, Reason: "the manager closed the stream"})
		}
	}()
	toManager(child, w, out)
}

func capped[T int64 | time.Duration](asked, most T) T {
	if asked <= 0 || asked > most {
		return most
	}
	return asked
}

// readOpen reads the header and the limits of the first frame.
func readOpen(body io.Reader) (protocol.Header, protocol.Limits, error) {
	h, err := protocol.ReadHeader(body)
	if err != nil {
		return h, protocol.Limits{}, err
	}
	if h.Type != protocol.TypeOpen || h.Size < protocol.LimitsSize {
		return h, protocol.Limits{}, protocol.Violation("a stream that starts with frame type %d", h.Type)
	}
	raw := make([]byte, protocol.LimitsSize)
	if _, err := io.ReadFull(body, raw); err != nil {
		return h, protocol.Limits{}, err
	}
	limits, err := protocol.ParseLimits(raw)
	return h, limits, err
}

// send passes on the first frame, with the limits that apply here.
func (o *opening) send(w io.Writer) error {
	head := binary.BigEndian.AppendUint32(nil, uint32(o.header.Size+1))
	head = o.limits.Append(append(head, byte(o.header.Type)))
	rest := o.header.Size - protocol.LimitsSize
	if rest <= 64<<10 {
		// Small enough for one write.
		whole := make([]byte, len(head)+rest)
		copy(whole, head)
		if _, err := io.ReadFull(o.rest, whole[len(head):]); err != nil {
			return err
		}
		_, err := w.Write(whole)
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := io.CopyN(w, o.rest, int64(rest))
	return err
}

// toChild passes on the manager's frames. It returns nil when the child no longer reads.
func toChild(child *process, body *bufio.Reader) error {
	for {
		h, err := protocol.ReadHeader(body)
		if err != nil {
			return err
		}
		if !h.Type.FromManager() || h.Type == protocol.TypeOpen {
			return protocol.Violation("frame type %d from the manager", h.Type)
		}
		if h.Type == protocol.TypeTerminate {
			content, err := protocol.ReadContent(body, h)
			if err != nil {
				return err
			}
			reason := protocol.ParseText(content)
			time.AfterFunc(hardGrace, func() {
				child.kill(protocol.Gone{Status: sandbox.StatusTerminated, Reason: reason})
			})
			if err := protocol.NewConn(nil, child.in, nil).Write(h.Type, content); err != nil {
				return nil
			}
			continue
		}
		if err := protocol.Copy(child.in, body, h); err != nil {
			return nil
		}
	}
}

// toManager passes on the child's frames up to its last, or reports why there was none.
func toManager(child *process, w io.Writer, out *http.ResponseController) {
	for {
		h, err := protocol.ReadHeader(child.out)
		if err == nil && !h.Type.FromChild() {
			err = protocol.Violation("frame type %d from a child", h.Type)
		}
		if err != nil {
			if errors.Is(err, protocol.ErrProtocol) {
				logf("%v", err)
				child.kill(protocol.Gone{Status: sandbox.StatusTerminated, Reason: "the code broke out of the engine and was stopped"})
			}
			gone := child.gone()
			_ = protocol.NewConn(nil, w, out.Flush).Write(protocol.TypeGone, gone.Encode())
			return
		}
		if err := protocol.Copy(w, child.out, h); err != nil {
			return
		}
		if child.out.Buffered() == 0 || h.Type == protocol.TypeDone {
			if err := out.Flush(); err != nil {
				return
			}
		}
		if h.Type == protocol.TypeDone {
			return
		}
	}
}
