package store

// MarkQueued makes a message show that it waits to be taken (MSG-05).
func (m *Message) MarkQueued() {
	m.Status = MessagePending
	marked := make(map[string]any, len(m.Metadata)+1)
	for k, v := range m.Metadata {
		marked[k] = v
	}
	marked["queued"] = true
	m.Metadata = marked
}
