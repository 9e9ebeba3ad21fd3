package client

// Renew is the beat on which lost lines are made anew.
func (l *Lines) Renew() { l.renew() }
