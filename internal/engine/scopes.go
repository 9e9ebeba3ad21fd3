package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

// afterResponse is how long a run waits for the work that goes on after its response (SPEC STA-06).
const afterResponse = time.Minute

// scopes is the session of the run; nil while there has been no code.
func (r *run) scopes() *scopes.Session {
	if r.exec != nil {
		return r.exec.host.Session
	}
	return r.session
}

// saveScopes gives the operations that store session and thread state together with a step of the run. Call done
// once they are. None of the changes of a finished step is lost. Those of an unfinished one are lost with it when it is
// repeated, but for what calls at once, and code that waits for a prompt, had done when a step beside or within was saved
// (docs/adr/0035-what-code-waits-for.md).
func (r *run) saveScopes(final bool) (save *scopes.Save, ops []store.Op) {
	s := r.scopes()
	if s == nil {
		return nil, nil
	}
	save = s.Save(final)
	return save, save.Ops
}

// owesScopes tells whether there is something to save.
func (r *run) owesScopes() bool {
	save, _ := r.saveScopes(false)
	return save != nil && !save.Empty()
}

// stepScopes is saveScopes for a step that does not write the run's row otherwise.
func (r *run) stepScopes() (done func(), ops []store.Op) {
	save, ops := r.saveScopes(false)
	if save == nil || save.Empty() {
		return func() {}, nil
	}
	if save.State != nil {
		record := r.record
		record.SessionState = save.State
		r.sessionState = save.State // for an execution that takes the place of a lost one
		ops = append(ops, &store.PutRun{Run: record})
	}
	return save.Done, ops
}

// settleWork waits, once the answer is in the log, for the work that goes on after it: its changes of state are
// saved with the run's end. m is the answer when it is not in the log yet; the same comes back while it is not.
func (r *run) settleWork(ctx context.Context, m *store.Message) (*store.Message, error) {
	s := r.scopes()
	if s == nil || !s.Working() {
		return m, nil
	}
	if m != nil {
		saved, scoped := r.stepScopes()
		ops := append(r.destroyOps(), &store.AppendMessage{Message: m}, &store.PutRun{Run: r.record})
		if err := r.apply(ctx, "answer", append(ops, scoped...)...); err != nil {
			return m, err
		}
		saved()
		r.conv.add(*m)
		m = nil
	}
	wait, cancel := context.WithTimeoutCause(ctx, afterResponse, errSlowWork)
	defer cancel()
	err := s.Wait(wait)
	r.countHandlers()
	if errors.Is(err, errSlowWork) {
		r.lines.fail("", fmt.Sprintf("work after the answer takes longer than %s: the run ends without it", afterResponse))
		r.log.Info("work after the response takes too long: the run ends without it", "run", r.record.ID, "limit", afterResponse.String())
		return m, nil
	}
	return m, err
}

var errSlowWork = errors.New("work after the response takes too long")

// saveOutside stores the state that code changed outside of a run: an effect, a call from the API.
func (x *execution) saveOutside(ctx context.Context) error {
	if err := x.host.Session.Wait(ctx); err != nil {
		return err
	}
	save := x.host.Session.Save(true)
	if len(save.Ops) == 0 {
		return nil
	}
	if err := x.host.State.Apply(ctx, save.Ops...); err != nil {
		return err
	}
	save.Done()
	return nil
}
