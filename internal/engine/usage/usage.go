// Package usage counts what calls of models use: those of a run, and those outside of runs.
package usage

import (
	"encoding/json"
	"slices"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// Run is the content of Run.Usage: what the model calls of a run used, and which Models answered.
type Run struct {
	model.Usage
	Models []string `json:"models,omitempty"`
}

// Count adds what a call of a model used. used may be nil.
func (u *Run) Count(used *model.Usage) {
	if used != nil {
		u.Usage = u.Add(*used)
	}
}

// CountModel records that a Model has answered in the run.
func (u *Run) CountModel(name string) {
	if !slices.Contains(u.Models, name) {
		u.Models = append(u.Models, name)
		slices.Sort(u.Models)
	}
}

// Encode returns the usage for Run.Usage.
func (u *Run) Encode() json.RawMessage {
	raw, _ := json.Marshal(u) // numbers and names only: cannot fail
	return raw
}

// Of returns what one call of a model used, as the store counts it. u may be nil.
func Of(m *definition.Model, u *model.Usage) store.RunUsage {
	out := store.RunUsage{Models: []string{m.Name}}
	if u == nil {
		return out
	}
	cost := u.Cost
	if cost == 0 {
		cost, _ = model.Price(m.Spec.Pricing, *u) // the check of the Model reports prices that cannot be read
	}
	out.InputTokens, out.OutputTokens, out.CachedTokens, out.ReasoningTokens = u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens
	out.Cost = float64(cost) / 1e9
	return out
}
