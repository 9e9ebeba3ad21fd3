package executions

import (
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// lines returns the Lines that write what code of a thread logs. runID is "" outside of a run.
func (s *Service) lines(t *store.Thread, st *thread.State, runID string) *codelog.Lines {
	return codelog.New(codelog.Options{
		Clock: s.opts.Clock, RunID: runID, Write: st.Apply,
		Redact: func(text string) string { return s.opts.Redact(t.Namespace, text) },
		Failed: func(err error) {
			s.opts.Log.V(1).Info("cannot write the lines that code logged; they are lost", "namespace", t.Namespace, "name", t.Name, "run", runID, "error", err.Error())
		},
	})
}
