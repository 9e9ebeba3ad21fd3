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
