package related

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Limits of a context handoff.
const (
	maxFiles   = 10
	maxGoal    = 16 << 10
	maxTitle   = 500
	maxComment = 4096
	// maxChain is how many threads may follow each other by handoffs that models asked for.
	maxChain = 20

	declareTimeout = 30 * time.Second
)

// Handoff asks for a new thread that goes on for a goal with the context of another thread (REL-03).
type Handoff struct {
	// Cause is derived from the call. The new thread's id derives from it, so that a repeat returns the same thread.
	Cause string
	Goal  string
	// Agent of the new thread; "" for that of the old one.
	Agent string
	// Files are paths of the old thread. The new one gets copies.
	Files []string
	// Comment is kept with the relationship.
	Comment string
	// Title of the new thread; "" for none.
	Title string
	// RunID is the run of the old thread that asks, if one does.
	RunID string
	// ByModel limits how many threads follow each other.
	ByModel bool
}

// Made is the new thread of a context handoff.
type Made struct {
	Thread *store.Thread
	// Name of its object.
	Name string
	// Existed reports that an earlier attempt made it.
	Existed bool
}

// ModelError reports that no model could write the summary. Nothing was made.
type ModelError struct {
	Message string
	Err     error
}

// Error implements error.
func (e *ModelError) Error() string { return e.Message }

// Unwrap returns the cause, or nil.
func (e *ModelError) Unwrap() error { return e.Err }

// HandOff makes the new thread. The old thread only gets a relationship. The error is a *thread.InvalidError for a request
// that cannot be met, and a *ModelError when the summary could not be written.
//
// The new thread is stored before its object exists, without one, as retained data is: with the relationship, its files
// and its first message. The object then adopts it. So what a model wrote stays out of etcd. A repeat after a crash finds
// what is stored, and asks no model again. When the object cannot be made now, Run makes it later.
func (s *Service) HandOff(ctx context.Context, threadID string, h Handoff) (*Made, error) {
	origin, err := s.store.Thread(ctx, threadID)
	if err != nil {
		return nil, err
	}
	made := &Made{Name: s.opts.Objects.Name(origin, h.Cause)}
	id := newID(origin.ID, h.Cause)
	if made.Thread, err = s.store.Thread(ctx, id); errors.Is(err, store.ErrNotFound) {
		made.Thread, err = s.prepare(ctx, origin, id, made.Name, h)
	} else {
		made.Existed = err == nil
	}
	if err != nil {
		return nil, err
	}
	if made.Thread.ObjectUID != "" {
		return made, nil
	}
	// The caller may have gone. What is stored gets its object all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), declareTimeout)
	defer cancel()
	s.fault("declare.before")
	refusal, err := s.declare(ctx, made.Thread, h.Cause)
	s.fault("declare.after")
	if err != nil {
		s.retry()
	}
	if err := errors.Join(refusal, err); err != nil {
		return nil, err
	}
	return made, nil
}

// declare creates the object of a new thread. When the cluster refuses the object, declare removes all that was stored for the thread,
// with its relationship. Otherwise Run would try once more, and the thread would run after all. refusal then says why. err means that the
// thread is still stored without an object.
func (s *Service) declare(ctx context.Context, t *store.Thread, cause string) (refusal, err error) {
	err = s.opts.Objects.Declare(ctx, t, cause)
	if !thread.IsInvalid(err) {
		return nil, err
	}
	purged := s.opts.Threads.PurgeRetained(ctx, t.Namespace, t.NamespaceUID, t.ID)
	if errors.Is(purged, store.ErrNotRetained) || errors.Is(purged, store.ErrNotFound) { // adopted, or purged by another replica
		purged = nil
	}
	return err, purged
}

// newID returns the id of the thread that a cause within a thread leads to.
func newID(origin, cause string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("skein handoff\x00"+origin+"\x00"+cause)).String()
}

// prepare checks the handoff, has a model write the summary, and stores the new thread.
func (s *Service) prepare(ctx context.Context, origin *store.Thread, id, name string, h Handoff) (*store.Thread, error) {
	if err := h.check(origin); err != nil {
		return nil, err
	}
	if h.ByModel {
		if err := s.checkChain(ctx, origin.ID); err != nil {
			return nil, err
		}
	}
	agent, err := s.target(ctx, origin, h.Agent)
	if err != nil {
		return nil, err
	}
	if err := s.checkFiles(ctx, origin.ID, h.Files); err != nil {
		return nil, err
	}
	summary, err := s.summary(ctx, origin, agent, &h)
	if err != nil {
		return nil, err
	}
	n := thread.NewThread{
		Thread: store.Thread{
			ID: id, Namespace: origin.Namespace, NamespaceUID: origin.NamespaceUID, Name: name, Agent: agent.Name, UserID: origin.UserID, TaskID: origin.TaskID, Title: h.Title,
		},
		Message: firstMessage(origin, &h, summary), AttachFrom: origin.ID, Attachments: h.Files,
		FirstItems: s.opts.FirstItems(ctx, origin.Namespace, agent.Name), WithoutObject: true,
	}
	for {
		now, err := s.store.Thread(ctx, origin.ID)
		if err != nil {
			return nil, err
		}
		n.Related = &store.Relationship{
			ThreadID: origin.ID, Type: store.RelationHandoff, Role: store.RelationChild, MessageIndex: now.Messages - 1, Comment: h.Comment,
		}
		s.fault("context.before")
		t, _, err := s.opts.Threads.Create(ctx, n)
		s.fault("context.after")
		if errors.Is(err, store.ErrForkPoint) && ctx.Err() == nil {
			continue // messages were truncated meanwhile
		}
		return t, err
	}
}

// check refuses what cannot be handed off.
func (h *Handoff) check(origin *store.Thread) error {
	h.Goal = strings.TrimSpace(h.Goal)
	switch {
	case h.Goal == "":
		return invalid("goal", "say what the new thread is to do")
	case len(h.Goal) > maxGoal:
		return invalid("goal", fmt.Sprintf("it has %d bytes, more than %d: say it in short, and put the rest into a file", len(h.Goal), maxGoal))
	case len([]rune(h.Title)) > maxTitle:
		return invalid("title", fmt.Sprintf("it has %d characters, more than %d", len([]rune(h.Title)), maxTitle))
	case len(h.Comment) > maxComment:
		return invalid("comment", fmt.Sprintf("it has %d bytes, more than %d", len(h.Comment), maxComment))
	case len(h.Files) > maxFiles:
		return invalid("files", fmt.Sprintf("%d files are too many: name at most %d", len(h.Files), maxFiles))
	case origin.Messages == 0:
		return invalid("goal", fmt.Sprintf("the thread %s has no messages to hand off: create a Thread for the goal instead", origin.Name))
	}
	slices.Sort(h.Files)
	h.Files = slices.Compact(h.Files)
	return nil
}

// checkChain limits how many threads follow each other, since models could go on for ever.
func (s *Service) checkChain(ctx context.Context, id string) error {
	for n := 1; ; n++ {
		parents, err := s.store.ParentRelationships(ctx, []string{id})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(parents[id], func(r store.Relationship) bool { return r.Type == store.RelationHandoff })
		switch {
		case i < 0:
			return nil
		case n >= maxChain:
			return fmt.Errorf("this conversation is the result of %d handoffs, one after the other, which is the limit: continue it yourself", n)
		}
		id = parents[id][i].ThreadID
	}
}

// target resolves the agent of the new thread.
func (s *Service) target(ctx context.Context, origin *store.Thread, name string) (*definition.Agent, error) {
	name = cmp.Or(name, origin.Agent)
	agent, err := s.opts.Definitions.Agent(ctx, origin.Namespace, name)
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return nil, invalid("agent", fmt.Sprintf("the agent %s cannot take the thread: %s", name, notReady.Message))
	}
	if err != nil {
		return nil, err
	}
	if err := s.opts.Accepts(agent); err != nil {
		return nil, invalid("agent", fmt.Sprintf("the agent %s requires arguments, which a handoff does not give: %v", name, err))
	}
	return agent, nil
}

// checkFiles refuses files that do not exist, before a model is asked.
func (s *Service) checkFiles(ctx context.Context, id string, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	st, err := s.opts.Threads.Open(ctx, id)
	if err != nil {
		return err
	}
	for _, path := range paths {
		rec, err := st.StatFile(ctx, path)
		switch {
		case err != nil:
			return err
		case rec == nil:
			return invalid("files", fmt.Sprintf("there is no file %s: name a file of the thread, or leave it out", path))
		case rec.IsDirectory:
			return invalid("files", fmt.Sprintf("%s is a folder: name files", path))
		}
	}
	return nil
}

// firstMessage returns what the new thread starts with.
func firstMessage(origin *store.Thread, h *Handoff, summary string) string {
	return fmt.Sprintf("%s\n\n---\nThis thread goes on from the thread %s (T-%s). A model has written this summary of what matters there for the goal above:\n\n%s",
		h.Goal, origin.Name, origin.ID, summary)
}
