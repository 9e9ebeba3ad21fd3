package store

// MarkQueued marks a message as waiting in the inbox (MSG-05). It copies the metadata instead of changing it.
func (m *Message) MarkQueued() {
	m.Status = MessagePending
	marked := make(map[string]any, len(m.Metadata)+1)
	for k, v := range m.Metadata {
		marked[k] = v
	}
	marked["queued"] = true
	m.Metadata = marked
}
