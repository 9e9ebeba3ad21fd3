package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// NewThread describes a thread to create. ID, Namespace and Agent are required. The store sets the counters, RootID and
// Depth.
type NewThread struct {
	store.Thread
	// Message is queued once, as the first user message.
	Message string
	// AttachFrom is the thread that has the files in Attachments, usually the parent.
	AttachFrom string
	// Attachments are copied into the new thread and attached to Message (FIL-07).
	Attachments []string
	// MaxFileBytes and MaxFiles set its file quota; nil means the manager's limit applies (FIL-08).
	MaxFileBytes, MaxFiles *int64
	// Env is spec.env of its object.
	Env []SpecEnv
	// FirstItems are put into its inbox before anything else: the hooks to call about the new thread (HOK-01).
	FirstItems []store.InboxItem
	// Related is a relationship that the thread is created with (REL-03); nil for none.
	Related *store.Relationship
	// WithoutObject creates the thread before its object, which adopts it. Until then it is as a retained thread.
	WithoutObject bool

	// Telemetry is where the thread comes from: its first run is in that trace.
	Telemetry telemetry.Origin

	fork *store.Fork // set by Fork
}

// FirstMessageKey is the inbox key of a thread's first message, so that it is queued once.
const FirstMessageKey = "skein:first-message"

// Create is the only code path for new threads, whatever their origin (THR-03). It is idempotent by ID: when the thread
// already exists, it changes nothing and returns created false.
func (s *Service) Create(ctx context.Context, n NewThread) (t *store.Thread, created bool, err error) {
	if t, err = s.store.Thread(ctx, n.ID); err == nil {
		return t, false, nil
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, false, err
	}
	if err := n.validate(); err != nil {
		return nil, false, err
	}
	var ops []store.Op
	if n.fork != nil {
		ops = append(ops, n.fork)
	}
	if n.MaxFileBytes != nil || n.MaxFiles != nil {
		ops = append(ops, &store.SetFileQuota{Bytes: n.MaxFileBytes, Files: n.MaxFiles})
	}
	attached, err := s.firstAttachments(ctx, n)
	if err != nil {
		return nil, false, err
	}
	for _, a := range attached {
		ops = append(ops, &store.PutFile{File: a.file, Quota: s.quota})
	}
	env, err := s.firstEnv(ctx, &n)
	if err != nil {
		return nil, false, err
	}
	if env != nil {
		ops = append(ops, env)
	}
	for _, item := range n.FirstItems {
		ops = append(ops, &store.Enqueue{Item: item, IgnoreTerminated: true})
	}
	if n.Message != "" || len(attached) > 0 {
		m, err := s.build(n.ID, NewMessage{Content: &n.Message, Attachments: attachmentsOf(attached), FromSystem: true}, queuedPrefix)
		if err != nil {
			return nil, false, err
		}
		op, err := enqueueOp(m, FirstMessageKey, 0)
		if err != nil {
			return nil, false, err
		}
		ops = append(ops, op)
	}
	if status := ChildStatusMessage(&n.Thread, ChildCreated, ""); status != nil {
		ops = append(ops, status)
	}
	if n.Related != nil {
		ops = append(ops, &store.PutRelationship{R: *n.Related})
	}
	if n.WithoutObject {
		ops = append(ops, &store.Retain{NamespaceUID: n.NamespaceUID})
	}
	t, created, err = s.store.CreateThread(n.Telemetry.With(ctx), n.Thread, ops...)
	if errors.Is(err, store.ErrNoContents) { // an attachment was replaced or removed in the meantime
		return nil, false, fmt.Errorf("%w: a file of thread %s has changed while it was copied: %w", store.ErrUnavailable, n.AttachFrom, err)
	}
	return t, created, err
}

func (n NewThread) validate() error {
	switch {
	case n.ID == "":
		return invalid("id", "a thread needs an id: give the UID of its object")
	case n.Namespace == "":
		return invalid("namespace", "a thread needs a namespace")
	case n.Agent == "":
		return invalid("agent", "a thread needs an agent: name the one that runs it")
	case len(n.Attachments) > 0 && n.AttachFrom == "":
		return invalid("attachments", "name the thread that the files are in")
	}
	if len(n.Arguments) > 0 {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(n.Arguments, &object); err != nil || object == nil {
			return invalid("arguments", "give a JSON object, or leave them out")
		}
	}
	return nil
}

// firstAttachments plans the copies of the files that a new thread starts with.
func (s *Service) firstAttachments(ctx context.Context, n NewThread) ([]fileCopy, error) {
	if len(n.Attachments) == 0 {
		return nil, nil
	}
	src, err := s.Open(ctx, n.AttachFrom)
	if err != nil {
		return nil, fmt.Errorf("open thread %s to copy attachments from: %w", n.AttachFrom, err)
	}
	if from, err := src.Info(ctx); err != nil {
		return nil, fmt.Errorf("open thread %s to copy attachments from: %w", n.AttachFrom, err)
	} else if from.Namespace != n.Namespace {
		return nil, fmt.Errorf("open thread %s to copy attachments from in namespace %s: %w", n.AttachFrom, n.Namespace, store.ErrNotFound)
	}
	return planCopies(ctx, src, n.Attachments, func(string) (*store.File, error) { return nil, nil })
}

// Terminate ends the thread softly (THR-05): the inbox is dropped, new work is refused, reads still work. Repeating it
// is no error. reason is one of api/v1alpha1/conditions.go.
func (st *State) Terminate(ctx context.Context, reason string) error {
	return st.Apply(ctx, &store.Terminate{Reason: reason})
}

// Purge removes everything that is stored of a thread, and the contents of files that no other thread has. A thread
// that does not exist is no error.
func (s *Service) Purge(ctx context.Context, id string) error {
	freed, err := s.store.PurgeThread(ctx, id)
	if err != nil {
		return err
	}
	metrics.Purges.Inc()
	s.blobs.remove(ctx, freed...)
	return nil
}

// Emit writes a custom event to the thread's log, from which every connected client gets it (EVT-01).
func (st *State) Emit(ctx context.Context, event string, data json.RawMessage) error {
	if err := checkEventName(event); err != nil {
		return err
	}
	if err := st.svc.checkJSON("data", data, st.svc.limits.valueBytes); err != nil {
		return err
	}
	return st.Apply(ctx, &store.AppendEvent{Event: store.Event{Type: customEventPrefix + event, Data: data}})
}
