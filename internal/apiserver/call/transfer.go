package call

import (
	"io"
	"net/http"
	"time"
)

// PatientBody returns the request's body with a time limit for each read instead of one for the whole request.
func (c *Call) PatientBody(limit time.Duration) *PatientReader {
	return &PatientReader{r: c.Request.Body, control: http.NewResponseController(c.Response), limit: limit}
}

// PatientReader applies its time limit to each read, not to the whole body.
type PatientReader struct {
	r       io.Reader
	control *http.ResponseController
	limit   time.Duration
	Err     error // why reading ended, unless it reached the end
}

// Read implements io.Reader.
func (p *PatientReader) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(p.limit)) // not every transport supports deadlines; then there is no limit
	n, err := p.r.Read(b)
	switch {
	case err == io.EOF:
		_ = p.control.SetReadDeadline(time.Time{})
	case err != nil: // keep the deadline: otherwise the transport would wait for the rest of the body
		p.Err = err
	}
	return n, err
}

// PatientWriter returns a writer of the answer with a time limit for each write instead of one for the whole answer.
func (c *Call) PatientWriter(limit time.Duration) *PatientWriter {
	return &PatientWriter{ResponseWriter: c.Response, control: http.NewResponseController(c.Response), limit: limit}
}

// PatientWriter applies its time limit to each write, not to the whole answer.
type PatientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

// Write implements io.Writer.
func (p *PatientWriter) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.limit))
	n, err := p.ResponseWriter.Write(b)
	if err == nil {
		_ = p.control.SetWriteDeadline(time.Time{})
	}
	return n, err
}

// FlushError sends what has been written. A transport that cannot flush sends it later.
func (p *PatientWriter) FlushError() error { return p.control.Flush() }
