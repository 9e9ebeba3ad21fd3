// Package managedfields leaves out the managed fields of what is watched, before it is decoded.
//
// They are more than half of what the API server sends of most objects, and clients go through the JSON of a watched object about ten
// times to decode it. Nothing here reads them: what else caches get of them is dropped after it was decoded (objects.Cached). See
// docs/adr/0065-finalizers-at-admission.md.
package managedfields

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/tidwall/gjson"
)

// LeaveOut returns a transport that removes the managed fields from the objects of watches in JSON. Other requests and their answers are as
// they are.
func LeaveOut(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || !isWatch(r) || !isJSON(resp) {
		return resp, err
	}
	resp.Body = &events{Closer: resp.Body, lines: bufio.NewReaderSize(resp.Body, 16<<10)}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func isWatch(r *http.Request) bool {
	w := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (w == "true" || w == "1")
}

func isJSON(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == "application/json" && resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == ""
}

// events reads the events of a watch, each of which is one line.
type events struct {
	io.Closer
	lines *bufio.Reader
	line  []byte // room for a line
	rest  []byte // what was not read of it yet
	err   error  // after it
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.line, e.err = appendLine(e.line[:0], e.lines)
		if e.rest = e.line; e.err == nil { // the line is whole
			e.rest = without(e.line)
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// appendLine appends the next line to a buffer, or what there is of it before an error.
func appendLine(to []byte, from *bufio.Reader) ([]byte, error) {
	for {
		part, err := from.ReadSlice('\n')
		to = append(to, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return to, err
		}
	}
}

// without returns an event whose object has no managed fields. It changes the event that it is given.
func without(event []byte) []byte {
	fields := gjson.GetBytes(event, "object.metadata.managedFields")
	if !fields.IsArray() || fields.Index == 0 {
		return event
	}
	tail := event[fields.Index+len(fields.Raw):]
	return append(append(event[:fields.Index], "[]"...), tail...)
}
