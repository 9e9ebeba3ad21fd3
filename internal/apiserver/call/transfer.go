package call

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// PatientBody returns the request's body with a time limit for each read instead of one for the whole request.
func (c *Call) PatientBody(limit time.Duration) *PatientReader {
	return &PatientReader{r: c.Request.Body, control: http.NewResponseController(c.Response), limit: limit, now: time.Now}
}

// PatientReader applies its time limit to each read, not to the whole body, and refuses bodies that come slower than lowestRate.
type PatientReader struct {
	r       io.Reader
	control *http.ResponseController
	limit   time.Duration
	Err     error // why reading ended, unless it reached the end

	now   func() time.Time
	began time.Time
	read  int64
}

const (
	// slowStart is how long a body may take before its rate counts.
	slowStart = 30 * time.Second
	// lowestRate is how many bytes of a body must come in a second from then on, on average. Otherwise a few clients could keep
	// what holds their bodies for as long as they like.
	lowestRate = 1 << 10
)

// errSlow means that a body comes more slowly than lowestRate.
var errSlow = fmt.Errorf("the body came more slowly than %d bytes a second", lowestRate)

// Read implements io.Reader.
func (p *PatientReader) Read(b []byte) (int, error) {
	now := p.now()
	if p.began.IsZero() {
		p.began = now
	}
	if late := now.Sub(p.began) - slowStart; late > 0 && p.read < int64(late.Seconds())*lowestRate {
		p.Err = errSlow
		return 0, errSlow
	}
	_ = p.control.SetReadDeadline(now.Add(p.limit)) // not every transport supports deadlines; then there is no limit
	n, err := p.r.Read(b)
	p.read += int64(n)
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
