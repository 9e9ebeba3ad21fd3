package engine

// beginTurn updates the state that code sees of the run, before the calls of a step are made.
func (r *run) beginTurn() {
	if r.exec != nil && r.exec.Turn != nil {
		r.exec.Turn.Begin(r.record.Steps, r.Checkpoint.Turn.StepsB, r.conv.Messages)
	}
}

// decided takes over what code has requested for the turn, and reports whether there was any request. The next
// checkpoint of the run stores it.
func (r *run) decided() bool {
	if r.exec == nil || r.exec.Turn == nil {
		return false
	}
	asked, news := r.exec.Turn.Take()
	if !news {
		return false
	}
	r.Checkpoint.Turn.Ends, r.Checkpoint.Turn.Passes, r.Checkpoint.Turn.Again = asked.Ends, asked.Passes, asked.Again
	r.record.State = r.Checkpoint.Encode()
	return true
}

// takeDecisions takes over what hooks have requested for the turn. It reaches the log with the row of the run, which
// is written before the run acts on it. Until then the hooks are called again after a crash.
func (r *run) takeDecisions() { _ = r.decided() }
