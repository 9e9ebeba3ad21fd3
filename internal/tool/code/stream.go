package code

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/thread"
)

// maxStreams is how many streams the code of one execution may have open at a time. Each one holds a file open.
const maxStreams = 32

// stream is a file that code reads in chunks. It ends with the invocation that opened it. mu serialises next and stop.
type stream struct {
	mu   sync.Mutex
	next func() (thread.FileChunk, error, bool)
	stop func()
}

// readFileStream reports whether the file exists (FIL-03). Each loop over the result opens a stream.
func readFileStream(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	chunks, err := c.host.State.ReadFileStream(ctx, path)
	return chunks != nil, err
}

// openStream is called as a method of the thread that has the file. The stream belongs to the caller.
func openStream(ctx context.Context, c *stateCall) (any, error) {
	path, err := c.text(0, "path")
	if err != nil {
		return nil, err
	}
	chunks, err := c.host.State.ReadFileStream(ctx, path)
	if err != nil {
		return nil, err
	}
	if chunks == nil {
		return nil, &sandbox.Error{Name: "NotFoundError", Message: fmt.Sprintf("the file %s is gone", path)}
	}
	s := &stream{}
	s.next, s.stop = iter.Pull2(chunks)
	owner := c.caller()
	owner.mu.Lock()
	defer owner.mu.Unlock()
	if len(owner.streams) >= maxStreams {
		s.stop()
		return nil, &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("%d files are being read as streams, as many as may be at once: finish reading some first", maxStreams)}
	}
	if owner.streams == nil {
		owner.streams = map[int64]*stream{}
	}
	owner.streamN++
	id := owner.streamN
	owner.streams[id] = s
	context.AfterFunc(ctx, func() { owner.closeStream(id) })
	return id, nil
}

func (s *State) closeStream(id int64) {
	s.mu.Lock()
	st := s.streams[id]
	delete(s.streams, id)
	s.mu.Unlock()
	if st != nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.stop()
	}
}

func (c *stateCall) streamID() int64 {
	id, _ := c.arg(0).(float64)
	return int64(id)
}

// nextChunk returns the next chunk of a stream; null after the last.
func nextChunk(_ context.Context, c *stateCall) (any, error) {
	c.mu.Lock()
	s := c.streams[c.streamID()]
	c.mu.Unlock()
	if s == nil {
		return nil, errors.New("the stream has ended")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	chunk, err, ok := s.next()
	if err != nil || !ok {
		return nil, err
	}
	data := append([]byte{}, chunk.Data...) // valid only until the next chunk is requested
	return map[string]any{"data": data, "index": chunk.Index, "totalChunks": chunk.TotalChunks, "isLast": chunk.IsLast}, nil
}

func closeStream(_ context.Context, c *stateCall) (any, error) {
	c.closeStream(c.streamID())
	return nil, nil
}
