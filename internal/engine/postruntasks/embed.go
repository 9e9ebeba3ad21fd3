package postruntasks

import (
	"context"
	"strings"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/memory"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/store"
)

const (
	pageSize = 200
	// maxPages is how many pages of messages are searched for the messages of a run.
	maxPages = 50
)

// hasMemory reports whether an agent has a memory, which needs vectors of what is said in its threads.
func hasMemory(_ *store.Thread, a *definition.Agent) bool { return a.Memory != nil }

// embed stores vectors of the user's last message and of the last answer of a run. A repeat changes nothing.
func (o *Options) embed(ctx context.Context, run postrun.Run) error {
	a, err := o.agent(ctx, &run)
	if err != nil || a == nil || a.Memory == nil {
		return err
	}
	said, err := o.lastExchange(ctx, &run)
	if err != nil || len(said) == 0 {
		return err
	}
	texts := make([]string, len(said))
	for i := range said {
		texts[i] = contentOf(&said[i])
	}
	v, err := memory.Embed(ctx, o.Models, o.Redact, a, texts...)
	if err != nil {
		return err
	}
	ops := []store.Op{&store.AddTaskUsage{RunID: run.Run.ID, Task: TaskEmbeddings, Agent: a.Name, Usage: v.Usage}}
	for i := range said {
		ops = append(ops, &store.PutEmbedding{MessageID: said[i].ID, Content: texts[i], Agent: a.Name, Space: v.Space, Vector: v.Vectors[i]})
	}
	return o.apply(ctx, run.Thread.ID, ops...)
}

// lastExchange returns the user's last message that a run took in and, if the run succeeded, its last answer. The last message
// of any other run is a note about its end. lastExchange searches from the newest message back, past those of later runs.
func (o *Options) lastExchange(ctx context.Context, run *postrun.Run) (said []store.Message, err error) {
	wanted := map[store.Role]bool{store.RoleUser: true, store.RoleAssistant: run.Run.Status == store.RunSucceeded}
	for page := range maxPages {
		list, err := o.Store.Messages(ctx, run.Thread.ID, store.MessageQuery{Order: "desc", Limit: pageSize, Offset: page * pageSize})
		if err != nil {
			return nil, err
		}
		for i := range list.Messages {
			m := &list.Messages[i]
			if m.CreatedAt < run.Run.StartedAt && m.RunID != "" && m.RunID != run.Run.ID {
				return said, nil // it is of an earlier run, so the rest are older than this run
			}
			if m.RunID == run.Run.ID && wanted[m.Role] && m.Status != store.MessageFailed && strings.TrimSpace(contentOf(m)) != "" {
				wanted[m.Role] = false
				said = append(said, *m)
			}
		}
		if !list.HasMore || (!wanted[store.RoleUser] && !wanted[store.RoleAssistant]) {
			break
		}
	}
	return said, nil
}
