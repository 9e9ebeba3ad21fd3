package client

// Renew is the beat on which lost lines are made anew.
func (l *Lines) Renew() { l.renew() }

// SetMost bounds the lines to fewer.
func (l *Lines) SetMost(n int) { l.most = n }

// Names of the pools whose sandboxes have lines, each as often as it has one.
func (l *Lines) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, n := range l.lines {
		names = append(names, n.client.opts.ServerName)
	}
	return names
}
