package mcptool

import "context"

// Break has a session with a server kept that has ended, which nobody has noticed.
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

// Forget has a server forgotten, as when nobody has used it for long.
func (s *Servers) Forget(config *Server) error {
	v, err := s.of(config)
	if err == nil {
		v.forget()
	}
	return err
}

// Ask has a server asked for its tools, whether a list is there or not, and waits for the outcome.
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
