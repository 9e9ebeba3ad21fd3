package related

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// maxReadBytes limits what a model reads of another thread at once.
const maxReadBytes = 48 << 10

// Reader is the thread that reads another one.
type Reader struct {
	Thread *store.Thread
	// State is the thread, within a run bound to the run's fence.
	State *thread.State
	// Rights of the agent that reads.
	Rights skeinv1.ReadThreads
}

// Request says what to read.
type Request struct {
	// Thread is a name, or any spelling of an id.
	Thread string
	// Goal says what the reader wants to know. It selects messages when not all of them fit.
	Goal string
	// From is the number of a message to read on from; nil reads what matters for the goal.
	From *int64
}

// Read returns the conversation of another thread of the namespace as Markdown, and records that the reader mentions it
// (REL-04). The error is a *thread.InvalidError if the reader may not read such a thread.
func (s *Service) Read(ctx context.Context, r Reader, req Request) (string, error) {
	if strings.TrimSpace(req.Goal) == "" {
		return "", invalid("goal", "say what you want to know from the other thread")
	}
	t, err := s.find(ctx, r, req.Thread)
	if err != nil {
		return "", err
	}
	e := &excerpt{
		store: s.store, thread: t, bytes: maxReadBytes, goal: req.Goal,
		redact: func(text string) string { return s.opts.Redact(t.Namespace, text) },
	}
	text := ""
	if req.From != nil {
		text, err = e.from(ctx, *req.From)
	} else {
		text, err = e.build(ctx)
	}
	if err != nil {
		return "", goneError(r, req.Thread, err)
	}
	if err := s.mention(ctx, r, t); err != nil {
		return "", goneError(r, req.Thread, err)
	}
	return cmp.Or(text, fmt.Sprintf("The thread %s has no messages yet.", t.Name)), nil
}

// mention records that the reader has read another thread. It is recorded once, with the place of the first time.
func (s *Service) mention(ctx context.Context, r Reader, t *store.Thread) error {
	now, err := s.store.Thread(ctx, r.Thread.ID)
	if err != nil {
		return err
	}
	_, _, err = r.State.Relate(ctx, store.Relationship{
		ThreadID: t.ID, Type: store.RelationMention, Role: store.RelationParent, MessageIndex: now.Messages - 1,
	})
	return err
}

// goneError explains that the other thread was removed while it was read.
func goneError(r Reader, name string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return unknownError(r, name)
	}
	return err
}

// unknownError is the same for threads that do not exist and for threads that the reader may not read, so that a model cannot
// probe names.
func unknownError(r Reader, name string) error {
	which := map[skeinv1.ReadThreads]string{
		skeinv1.ReadThreadsNone:      "this agent may read no other threads",
		skeinv1.ReadThreadsFamily:    "this agent may read the threads of this one's family: its parents and children",
		skeinv1.ReadThreadsSameUser:  "this agent may read threads of the same user, and those of this one's family",
		skeinv1.ReadThreadsNamespace: "this agent may read all threads of the namespace",
	}[rightsOf(r)]
	return invalid("thread", fmt.Sprintf("there is no thread %q that can be read here; %s (readThreads of the Agent says so)", name, which))
}

func rightsOf(r Reader) skeinv1.ReadThreads { return cmp.Or(r.Rights, skeinv1.ReadThreadsFamily) }

// mayRead reports whether the reader may read a thread. No reader may read threads that lost their object.
func mayRead(r Reader, t *store.Thread) bool {
	own := r.Thread
	if t.Namespace != own.Namespace || t.RetainedAt != 0 {
		return false
	}
	family := t.RootID == own.RootID
	switch rightsOf(r) {
	case skeinv1.ReadThreadsFamily:
		return family
	case skeinv1.ReadThreadsSameUser:
		return family || own.UserID != "" && t.UserID == own.UserID
	case skeinv1.ReadThreadsNamespace:
		return true
	}
	return false
}

// find returns the thread that a name or an id means. The name of an object comes before an id.
func (s *Service) find(ctx context.Context, r Reader, name string) (*store.Thread, error) {
	name = strings.TrimPrefix(strings.TrimSpace(name), "@")
	if name == "" {
		return nil, invalid("thread", "give the name or the id of a thread")
	}
	found, err := s.candidates(ctx, r.Thread.Namespace, name)
	if err != nil {
		return nil, err
	}
	var readable []store.Thread
	for i := range found {
		if found[i].ID == r.Thread.ID {
			return nil, invalid("thread", fmt.Sprintf("%q is this conversation itself: name another one", name))
		}
		if mayRead(r, &found[i]) {
			readable = append(readable, found[i])
		}
	}
	switch len(readable) {
	case 0:
		return nil, unknownError(r, name)
	case 1:
		return &readable[0], nil
	}
	return nil, invalid("thread", fmt.Sprintf("%q fits %d threads: give the whole id of one", name, len(readable)))
}

func (s *Service) candidates(ctx context.Context, namespace, name string) ([]store.Thread, error) {
	named, err := s.store.FindThreads(ctx, store.FindQuery{Namespace: namespace, Name: name, Present: true, Limit: 1})
	if err != nil || len(named) > 0 {
		return named, err
	}
	if id, ok := thread.ParseID(name); ok {
		t, err := s.store.Thread(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []store.Thread{*t}, nil
	}
	if short, ok := thread.ParseShortID(name); ok {
		return s.store.FindThreads(ctx, store.FindQuery{Namespace: namespace, ShortID: short})
	}
	return nil, nil
}
