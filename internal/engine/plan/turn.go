package plan

import "github.com/skein-dev/skein/internal/engine/runstate"

// ApplyTurn returns the decision d, replaced where code has ended or passed on the turn.
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
