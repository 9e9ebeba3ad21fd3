package client

// Renew does the periodic renewal of lost connections.
func (cs *Connections) Renew() { cs.renew() }

// SetMost lowers the maximum number of connections.
func (cs *Connections) SetMost(n int) { cs.most = n }

// Names returns the names of the pools whose sandboxes have connections, one per connection.
func (cs *Connections) Names() []string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var names []string
	for _, n := range cs.byName {
		names = append(names, n.client.opts.ServerName)
	}
	return names
}
