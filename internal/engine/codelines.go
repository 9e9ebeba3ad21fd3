package engine

import (
	"strings"

	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// newLines returns the lines that code of a thread logs.
func (e *Engine) newLines(t *store.Thread, st *thread.State, runID string) *codelog.Lines {
	return codelog.New(codelog.Options{
		Clock: e.opts.Clock, RunID: runID, Write: st.Apply,
		Redact: func(text string) string { return e.opts.Redact(t.Namespace, text) },
		Failed: func(err error) {
			e.log.V(1).Info("lines that code logged cannot be written", "namespace", t.Namespace, "name", t.Name, "run", runID, "error", err.Error())
		},
	})
}

// sourceKinds are what the folders of modules stand for.
var sourceKinds = map[string]string{"tools": "tool", "effects": "effect", "endpoints": "endpoint", "sides": "handler"}

// sourceOf names what a module is to people; "" for a module that is Skein's own.
func sourceOf(module string) string {
	folder, name, ok := strings.Cut(module, "/")
	if !ok {
		return ""
	}
	if folder+"/" == hookFolder {
		return "hook/" + strings.TrimPrefix(name, definition.SideB+"/")
	}
	if kind := sourceKinds[folder]; kind != "" {
		return kind + "/" + name
	}
	return ""
}
