package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// EventOptions say where a stream of events begins and when it ends.
type EventOptions struct {
	// After is the sequence number after which to begin. 0 means the beginning of the log.
	After int64
	// Latest skips existing events.
	Latest bool
	// NoFollow ends the stream at the present end of the log instead of waiting for more.
	NoFollow bool
}

// ErrThreadDeleted ends a stream of events when the thread is deleted.
var ErrThreadDeleted = errors.New("the thread was deleted")

// Events streams the thread's log. It reconnects by itself when the connection ends, and continues after the last
// event, so that no event is lost or repeated. The stream ends with ctx (no error), with the thread
// (ErrThreadDeleted), at the end of the log with NoFollow, or with the error of a server that refuses.
func (t *Thread) Events(ctx context.Context, o EventOptions) iter.Seq2[runtimev1.Event, error] {
	params := map[string]string{}
	if o.NoFollow {
		params["follow"] = "false"
	}
	return t.stream(ctx, runtimev1.SubresourceEvents, o, params)
}

// LogOptions select log lines.
type LogOptions struct {
	// After is the sequence number after which to begin. 0 means all stored lines.
	After int64
	// RunID selects the lines of one run.
	RunID string
	// Firing selects the lines of the effect of one firing, as LogLine.Firing names it. Tail counts the others, too.
	Firing string
	// Tail begins with this many of the newest lines. 0 means all.
	Tail int
	// Follow waits for more lines instead of ending after the last one.
	Follow bool
}

// Logs streams what the code of a thread logged: events of the types EventCodeLog, EventHandlerLog, EventHookFailed
// and EventTaskFailed. It reconnects and ends as Events does.
func (t *Thread) Logs(ctx context.Context, o LogOptions) iter.Seq2[runtimev1.Event, error] {
	params := map[string]string{"follow": strconv.FormatBool(o.Follow)}
	if o.RunID != "" {
		params["runId"] = o.RunID
	}
	if o.Tail > 0 {
		params["tail"] = strconv.Itoa(o.Tail)
	}
	all := t.stream(ctx, runtimev1.SubresourceLogs, EventOptions{After: o.After}, params)
	if o.Firing == "" {
		return all
	}
	return func(yield func(runtimev1.Event, error) bool) {
		for e, err := range all {
			if err == nil && !ofFiring(&e, o.Firing) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// ofFiring reports whether the effect of a firing wrote a line.
func ofFiring(e *runtimev1.Event, firing string) bool {
	var l runtimev1.LogLine
	return json.Unmarshal(e.Data, &l) == nil && l.Firing == firing
}

func (t *Thread) stream(ctx context.Context, sub runtimev1.Subresource, o EventOptions, params map[string]string) iter.Seq2[runtimev1.Event, error] {
	return func(yield func(runtimev1.Event, error) bool) {
		s := &stream{thread: t, sub: sub, params: params, after: strconv.FormatInt(o.After, 10)}
		if o.Latest {
			s.after = runtimev1.AfterLatest
			if rec, err := t.Get(ctx); err == nil { // so that a reconnection does not skip events in between
				s.after = strconv.FormatInt(rec.LastEvent, 10)
			}
		}
		for {
			progress, err := s.once(ctx, yield)
			switch {
			case errors.Is(err, errDone), ctx.Err() != nil:
				return
			case err != nil && (final(err) || !s.connected):
				yield(runtimev1.Event{}, err)
				return
			}
			if progress {
				s.pause = initialPause()
			}
			if !s.wait(ctx) {
				return
			}
		}
	}
}

// errDone ends a stream without an error.
var errDone = errors.New("done")

// final reports whether reconnecting would not help.
func final(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, ErrThreadDeleted) || errors.Is(err, errMalformed)
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

func initialPause() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 10 * time.Second}
}

type stream struct {
	thread *Thread
	sub    runtimev1.Subresource
	params map[string]string
	after  string
	pause  wait.Backoff
	// connected is true once a connection was established. Only then is a failure an interruption.
	connected bool
}

func (s *stream) wait(ctx context.Context) bool {
	if s.pause.Steps == 0 && s.pause.Duration == 0 {
		s.pause = initialPause()
	}
	timer := time.NewTimer(s.pause.Step())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once reads one connection until it ends.
func (s *stream) once(ctx context.Context, yield func(runtimev1.Event, error) bool) (progress bool, err error) {
	params := maps.Clone(s.params)
	params["after"] = s.after
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := s.thread.openStream(ctx, cancel, s.sub, params)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	s.connected = true
	err = readEvents(body, func(e runtimev1.Event) error {
		progress = true
		s.after = strconv.FormatInt(e.Seq, 10)
		delete(s.params, "tail") // a new connection continues after the last line
		if !yield(e, nil) {
			return errDone
		}
		return nil
	})
	return progress, err
}

// openStream begins a stream of server-sent events. cancel ends ctx, when the server does not begin to answer in time.
func (t *Thread) openStream(ctx context.Context, cancel context.CancelFunc, sub runtimev1.Subresource, params map[string]string) (io.ReadCloser, error) {
	// API servers do not time out a path below /watch/.
	through := *t.client
	through.rest = through.streams
	of := *t
	of.client = &through
	r, err := of.requestAt(http.MethodGet, "watch", sub)
	if err != nil {
		return nil, err
	}
	r.SetHeader("Accept", "text/event-stream")
	for name, v := range params {
		r.Param(name, v)
	}
	begun := func() bool { return true }
	if through.timeout > 0 {
		begun = time.AfterFunc(through.timeout, cancel).Stop
	}
	body, err := open(ctx, r)
	if !begun() && err != nil {
		return nil, fmt.Errorf("the server did not answer within %s: %w", through.timeout, err)
	}
	return body, err
}

// readEvents decodes each event of a stream, until the stream ends or the server says why it ends it.
func readEvents[T any](body io.Reader, each func(T) error) error {
	return readSSE(body, func(f frame) error {
		if f.event == runtimev1.StreamClosedEvent {
			return closedError(f.data)
		}
		var e T
		if err := json.Unmarshal(f.data, &e); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		return each(e)
	})
}

// closedError returns nil when the server's reason allows continuing with a new connection, else an error.
func closedError(data []byte) error {
	var c runtimev1.StreamClosed
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	switch c.Reason {
	case runtimev1.ClosedEndOfLog:
		return errDone
	case runtimev1.ClosedThreadDeleted:
		return ErrThreadDeleted
	}
	return io.EOF
}

var errMalformed = errors.New("the stream of events cannot be read")

// frame is one server-sent event.
type frame struct {
	event string
	data  []byte
}

// maxFrame bounds one event. A message is at most 1 MiB, and an observed value has several.
const maxFrame = 16 << 20

// readSSE calls fn for each event until the stream ends or fn returns an error.
func readSSE(r io.Reader, fn func(frame) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxFrame)
	var f frame
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if f.data != nil {
				if err := fn(f); err != nil {
					return err
				}
			}
			f = frame{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			f.event = string(value)
		case "data":
			if f.data != nil {
				f.data = append(f.data, '\n')
			}
			f.data = append(f.data, value...)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errMalformed
	}
	return lines.Err()
}
