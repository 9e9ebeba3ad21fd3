package mcptool

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Break ends the session with a server without telling its users.
func (s *Servers) Break(ctx context.Context, config *Server) error {
	v, err := s.of(config)
	if err != nil {
		return err
	}
	ended, err := v.connect(ctx)
	if err != nil {
		return err
	}
	_ = ended.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.session = &session{ClientSession: ended.ClientSession, cancel: func() {}}
	return nil
}

// Forget makes the server be forgotten, as when it was idle for a long time.
func (s *Servers) Forget(config *Server) error {
	v, err := s.of(config)
	if err == nil {
		v.forget()
	}
	return err
}

// Ask requests a server's tools, whether they are cached or not, and waits for the result.
func (s *Servers) Ask(config *Server) error {
	v, err := s.of(config)
	if err != nil {
		return err
	}
	v.mu.Lock()
	done := v.refresh()
	v.mu.Unlock()
	<-done
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// MaxNewest is of how many Tools the newest version is remembered.
const MaxNewest = maxNewest

// Remembered returns of how many Tools the newest version is remembered.
func (s *Servers) Remembered() int { return s.newest.Len() }

// Remote returns a tool of a server as it is offered, or why it is not.
func (s *Servers) Remote(config *Server, t *mcp.Tool) (Remote, string) {
	return (&server{owner: s, config: config}).remote(t)
}
