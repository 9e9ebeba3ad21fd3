package client

// Renew does the periodic renewal of lost lines.
func (l *Lines) Renew() { l.renew() }

// SetMost lowers the maximum number of lines.
func (l *Lines) SetMost(n int) { l.most = n }

// Names returns the names of the pools whose sandboxes have lines, one per line.
func (l *Lines) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, n := range l.lines {
		names = append(names, n.client.opts.ServerName)
	}
	return names
}
