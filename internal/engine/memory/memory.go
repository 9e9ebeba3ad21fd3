// Package memory searches what agents with a memory have said before, by vectors of texts.
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// maxEmbeddedRunes is how many characters of a text are embedded: embedding models read some 8,000 tokens, and a character
// may be more than one token.
const maxEmbeddedRunes = 6000

// ErrNone reports that the agent of a thread has no memory.
var ErrNone = errors.New("the agent has no memory: set spec.memory.embeddingModelRef of the Agent")

// Embedded are the vectors of texts.
type Embedded struct {
	// Space identifies the embedding model. Only vectors of the same space can be compared.
	Space   string
	Vectors [][]float32
	Usage   store.RunUsage
}

// Embed returns the vectors of texts, made by the model of an agent's memory. It removes secrets of the namespace from the
// texts first. It returns ErrNone if the agent has no memory.
func Embed(ctx context.Context, models model.Factory, redact func(namespace, text string) string, a *definition.Agent, texts ...string) (*Embedded, error) {
	m := a.Memory
	if m == nil {
		return nil, ErrNone
	}
	client, err := models.Client(m.Config(a.Namespace))
	if err != nil {
		return nil, err
	}
	embedder, err := model.EmbedderOf(client, m.Name)
	if err != nil {
		return nil, err
	}
	said := make([]string, len(texts))
	for i, text := range texts {
		said[i] = clip.Runes(redact(a.Namespace, text), maxEmbeddedRunes)
	}
	asking, over := membudget.Part(ctx)
	defer over()
	res, err := embedder.Embed(asking, said)
	if err != nil {
		return nil, err
	}
	if len(res.Vectors) != len(texts) {
		return nil, fmt.Errorf("model %s returned %d vectors for %d texts", m.Name, len(res.Vectors), len(texts))
	}
	return &Embedded{Space: m.Name + "/" + m.Spec.Model, Vectors: res.Vectors, Usage: usage.Of(m, res.Usage)}, nil
}

// Definitions resolves agents.
type Definitions interface {
	Agent(ctx context.Context, namespace, name string) (*definition.Agent, error)
}

// Options of a Service.
type Options struct {
	Store       store.Store
	Definitions Definitions
	Models      model.Factory
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	Log    logr.Logger
}

// Service searches the memory of agents. It is safe for concurrent use.
type Service struct{ opts Options }

// New returns a service.
func New(o Options) *Service { return &Service{opts: o} }

// Search returns messages of the threads that have the agent and the user of t, or no user if t has none (RUN-08). The
// error is ErrNone if the agent has no memory, and a *definition.NotReadyError if it is not ready. The messages
// may have secrets, which the API removes from all that it answers.
func (s *Service) Search(ctx context.Context, t *store.Thread, q tool.MemoryQuery) ([]store.NearMessage, error) {
	a, err := s.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, err
	}
	found, usage, err := s.search(ctx, t, a, q)
	if err == nil {
		s.count(ctx, t, a, "", uuid.NewString(), usage)
	}
	return found, err
}

// count records what a search used. If that fails the search still succeeds, and its usage is lost.
func (s *Service) count(ctx context.Context, t *store.Thread, a *definition.Agent, runID, call string, usage store.RunUsage) {
	err := s.opts.Store.Apply(ctx, t.ID, nil, &store.AddTaskUsage{RunID: runID, Task: "search " + call, Agent: a.Name, Usage: usage})
	if err = store.IgnoreGone(err); err != nil {
		s.opts.Log.Error(err, "cannot record what a search of the memory used; the search still succeeds", "thread", t.ID, "run", runID)
	}
}

func (s *Service) search(ctx context.Context, t *store.Thread, a *definition.Agent, q tool.MemoryQuery) ([]store.NearMessage, store.RunUsage, error) {
	if strings.TrimSpace(q.Text) == "" {
		return nil, store.RunUsage{}, nil
	}
	v, err := Embed(ctx, s.opts.Models, s.opts.Redact, a, q.Text)
	if err != nil {
		return nil, store.RunUsage{}, err
	}
	found, err := s.opts.Store.Nearest(ctx, store.NearestQuery{
		Namespace: t.Namespace, Agent: a.Name, UserID: t.UserID, Space: v.Space, Vector: v.Vectors[0],
		Since: q.Since, Until: q.Until, Limit: q.Limit,
	})
	return found, v.Usage, err
}

// Of returns the memory of a thread's agent for the tools of the thread. runID is "" outside of a run.
func (s *Service) Of(t *store.Thread, a *definition.Agent, runID string) tool.Memory {
	return &memoryOf{service: s, thread: t, agent: a, runID: runID}
}

// memoryOf implements tool.Memory with the memory of an agent.
type memoryOf struct {
	service *Service
	thread  *store.Thread
	agent   *definition.Agent
	runID   string
}

// Search implements tool.Memory.
func (m *memoryOf) Search(ctx context.Context, call string, q tool.MemoryQuery) ([]store.NearMessage, error) {
	found, usage, err := m.service.search(ctx, m.thread, m.agent, q)
	if err != nil {
		return nil, err
	}
	m.service.count(ctx, m.thread, m.agent, m.runID, call, usage)
	secrets := func(text string) string { return m.service.opts.Redact(m.thread.Namespace, text) }
	found = slices.Clone(found)
	for i := range found {
		if c := found[i].Message.Content; c != nil {
			text := secrets(*c)
			found[i].Message.Content = &text
		}
	}
	return found, nil
}
