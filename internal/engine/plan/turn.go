package plan

import "github.com/skein-dev/skein/internal/engine/runstate"

// ApplyTurn returns what the run does next after code has decided about the turn. If d is to ask the model, ApplyTurn returns EndSession when
// code has ended the session, and EndTurn when code has passed the turn on. Otherwise it returns d.
func ApplyTurn(d Decision, t runstate.Turn) Decision {
	if d.Action != Ask {
		return d
	}
	switch {
	case t.Ends:
		return Decision{Action: EndSession, End: &Ending{}}
	case t.Passes:
		return Decision{Action: EndTurn, End: &Ending{}}
	}
	return d
}
