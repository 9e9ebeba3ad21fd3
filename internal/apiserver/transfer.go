package apiserver

import (
	"io"
	"net/http"
	"time"
)

// patientBody returns the request's body with a time limit for each read instead of one for the whole request.
func (c *call) patientBody(limit time.Duration) *patientReader {
	return &patientReader{r: c.r.Body, control: http.NewResponseController(c.w), limit: limit}
}

// patientReader applies its time limit to each read, not to the whole body.
type patientReader struct {
	r       io.Reader
	control *http.ResponseController
	limit   time.Duration
	err     error // why reading ended, unless it reached the end
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(p.limit)) // not every transport supports deadlines; then there is no limit
	n, err := p.r.Read(b)
	switch {
	case err == io.EOF:
		_ = p.control.SetReadDeadline(time.Time{})
	case err != nil: // keep the deadline: otherwise the transport would wait for the rest of the body
		p.err = err
	}
	return n, err
}

// patientWriter returns a writer of the answer with a time limit for each write instead of one for the whole answer.
func (c *call) patientWriter(limit time.Duration) *patientWriter {
	return &patientWriter{ResponseWriter: c.w, control: http.NewResponseController(c.w), limit: limit}
}

// patientWriter applies its time limit to each write, not to the whole answer.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

func (p *patientWriter) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.limit))
	n, err := p.ResponseWriter.Write(b)
	if err == nil {
		_ = p.control.SetWriteDeadline(time.Time{})
	}
	return n, err
}
