package redact

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"k8s.io/utils/lru"

	"github.com/skein-dev/skein/internal/store"
)

// maxNamespaces limits how many threads' namespaces are cached.
const maxNamespaces = 65536

// Store wraps a store and redacts every text that is written. It changes ops in place, so that the caller sees what was
// stored. Lookups by a text (a path, a key, an id) redact that text in the same way, to match what was stored.
type Store struct {
	store.Store
	secrets *Registry
	spaces  *lru.Cache // thread id → namespace, which never changes

	mu    sync.Mutex
	tails map[string]map[string]*tail // thread id → message id → what is held back of its stream; guarded by mu
}

// tail is what is held back of a message's stream.
type tail struct{ text, reasoning *Stream }

var _ store.Store = (*Store)(nil)

// NewStore wraps a store.
func NewStore(inner store.Store, secrets *Registry) *Store {
	return &Store{Store: inner, secrets: secrets, spaces: lru.New(maxNamespaces), tails: map[string]map[string]*tail{}}
}

// Unwrap returns the wrapped store.
func (s *Store) Unwrap() store.Store { return s.Store }

// namespace returns the namespace of a thread. ok is false when it has no registered secrets, or the thread is not
// stored.
func (s *Store) namespace(ctx context.Context, threadID string) (namespace string, ok bool) {
	if s.secrets == nil || s.secrets.known.Load() == 0 {
		return "", false
	}
	if ns, known := s.spaces.Get(threadID); known {
		return ns.(string), s.secrets.HasSecrets(ns.(string))
	}
	t, err := s.Store.Thread(ctx, threadID)
	if err != nil {
		return "", false // the following operation will report this
	}
	s.spaces.Add(threadID, t.Namespace)
	return t.Namespace, s.secrets.HasSecrets(t.Namespace)
}

// CreateThread implements store.Store.
func (s *Store) CreateThread(ctx context.Context, t store.Thread, ops ...store.Op) (*store.Thread, bool, error) {
	if s.secrets.HasSecrets(t.Namespace) {
		s.secrets.Value(t.Namespace, &t)
		for _, op := range ops {
			s.op(t.Namespace, t.ID, op)
		}
	}
	return s.Store.CreateThread(ctx, t, ops...)
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error {
	if ns, ok := s.namespace(ctx, threadID); ok {
		for _, op := range ops {
			s.op(ns, threadID, op)
		}
	}
	return s.Store.Apply(ctx, threadID, fence, ops...)
}

// op redacts one operation.
func (s *Store) op(namespace, threadID string, op store.Op) {
	switch op := op.(type) {
	case *store.Enqueue:
		s.item(namespace, &op.Item)
		return
	case *store.AppendEvent:
		switch op.Event.Type {
		case store.EventToolStarted, store.EventToolEnded, store.EventTurnEnded: // names and ids
		case store.EventDelta:
			s.delta(namespace, threadID, &op.Event)
		default:
			op.Event.Type = s.secrets.Text(namespace, op.Event.Type) // the type of a custom event contains its name
			op.Event.Data = s.secrets.JSON(namespace, op.Event.Data)
		}
		return
	case *store.ImportConversation:
		s.importConversation(namespace, threadID, op)
		return
	case *store.Once:
		if result := op.Result; result != nil {
			op.Result = func() (json.RawMessage, error) {
				data, err := result()
				return s.secrets.JSON(namespace, data), err
			}
		}
	case *store.AppendMessage:
		s.forget(threadID, op.Message.ID)
	case *store.PutRun:
		if op.Run.Status.Ended() {
			s.forget(threadID, "")
		}
	}
	s.secrets.Value(namespace, op)
}

// item redacts an inbox item. Of a known payload it redacts only the texts.
func (s *Store) item(namespace string, item *store.InboxItem) {
	item.Key = s.secrets.Text(namespace, item.Key)
	var payload any
	switch item.Kind {
	case store.InboxMessage:
		payload = &store.Message{}
	case store.InboxChildResult:
		payload = &store.ChildResult{}
	case store.InboxTool:
		payload = &store.QueuedTool{}
	default:
		item.Payload = s.secrets.JSON(namespace, item.Payload)
		return
	}
	if json.Unmarshal(item.Payload, payload) != nil {
		item.Payload = s.secrets.JSON(namespace, item.Payload)
		return
	}
	s.secrets.Value(namespace, payload)
	if data, err := json.Marshal(payload); err == nil {
		item.Payload = data
	}
}

// delta holds back the end of a piece until the next piece arrives. The message itself will have everything.
func (s *Store) delta(namespace, threadID string, e *store.Event) {
	var piece struct {
		Text      string `json:"text,omitempty"`
		Reasoning string `json:"reasoning,omitempty"`
		Reset     bool   `json:"reset,omitempty"`
	}
	if json.Unmarshal(e.Data, &piece) != nil {
		e.Data = s.secrets.JSON(namespace, e.Data)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tails[threadID] == nil {
		s.tails[threadID] = map[string]*tail{}
	}
	t := s.tails[threadID][e.MessageID]
	if t == nil || piece.Reset {
		t = &tail{s.secrets.Open(namespace), s.secrets.Open(namespace)}
		s.tails[threadID][e.MessageID] = t
	}
	piece.Text, piece.Reasoning = t.text.Next(piece.Text), t.reasoning.Next(piece.Reasoning)
	if data, err := json.Marshal(piece); err == nil {
		e.Data = data
	}
}

// forget drops what is held back of a message, or of all messages of a thread.
func (s *Store) forget(threadID, messageID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if messageID == "" {
		delete(s.tails, threadID)
		return
	}
	if of := s.tails[threadID]; of != nil {
		if delete(of, messageID); len(of) == 0 {
			delete(s.tails, threadID)
		}
	}
}

// RecordFiring implements store.Store.
func (s *Store) RecordFiring(ctx context.Context, f store.Firing) (bool, error) {
	s.secrets.Value(f.Namespace, &f)
	return s.Store.RecordFiring(ctx, f)
}

// RecordDue implements store.Store.
func (s *Store) RecordDue(ctx context.Context, d store.DueRecord) error {
	d.Firings = slices.Clone(d.Firings)
	for i := range d.Firings {
		s.secrets.Value(d.Firings[i].Namespace, &d.Firings[i])
	}
	return s.Store.RecordDue(ctx, d)
}

// WaitFiring implements store.Store.
func (s *Store) WaitFiring(ctx context.Context, claim store.FiringClaim, namespace, waiting string) error {
	s.secrets.Value(namespace, &waiting)
	return s.Store.WaitFiring(ctx, claim, namespace, waiting)
}

// WaitRunning implements store.Store.
func (s *Store) WaitRunning(ctx context.Context, key store.FiringKey, namespace, waiting string) error {
	s.secrets.Value(namespace, &waiting)
	return s.Store.WaitRunning(ctx, key, namespace, waiting)
}

// FinishFiring implements store.Store.
func (s *Store) FinishFiring(ctx context.Context, end store.FiringEnd) error {
	s.secrets.Value(end.Namespace, &end)
	return s.Store.FinishFiring(ctx, end)
}

// EndRunning implements store.Store.
func (s *Store) EndRunning(ctx context.Context, end store.FiringEnd) error {
	s.secrets.Value(end.Namespace, &end)
	return s.Store.EndRunning(ctx, end)
}

// MissFiring implements store.Store.
func (s *Store) MissFiring(ctx context.Context, end store.FiringEnd) (record store.EffectSkip, begins bool, err error) {
	s.secrets.Value(end.Namespace, &end)
	return s.Store.MissFiring(ctx, end)
}

// PutEffectArgs implements store.Store.
func (s *Store) PutEffectArgs(ctx context.Context, a store.EffectArgs) error {
	if s.secrets.HasSecrets(a.Namespace) {
		a.Args = s.secrets.JSON(a.Namespace, a.Args) // the id stays, because it is looked up
	}
	return s.Store.PutEffectArgs(ctx, a)
}

// ReserveChild implements store.Store.
func (s *Store) ReserveChild(ctx context.Context, t store.ChildTask, limits []store.ChildLimit) (string, error) {
	if s.secrets.HasSecrets(t.Namespace) {
		t.Task = s.secrets.JSON(t.Namespace, t.Task) // the rest is looked up
	}
	return s.Store.ReserveChild(ctx, t, limits)
}

// Recorded implements store.Store.
func (s *Store) Recorded(ctx context.Context, threadID, key string) (string, json.RawMessage, error) {
	return s.Store.Recorded(ctx, threadID, s.stored(ctx, threadID, key))
}

// InboxItem implements store.Store.
func (s *Store) InboxItem(ctx context.Context, threadID, key string) (*store.InboxItem, error) {
	return s.Store.InboxItem(ctx, threadID, s.stored(ctx, threadID, key))
}

// Message implements store.Store.
func (s *Store) Message(ctx context.Context, threadID, messageID string) (*store.Message, error) {
	return s.Store.Message(ctx, threadID, s.stored(ctx, threadID, messageID))
}

// Value implements store.Store.
func (s *Store) Value(ctx context.Context, threadID, key string) ([]byte, error) {
	return s.Store.Value(ctx, threadID, s.stored(ctx, threadID, key))
}

// File implements store.Store.
func (s *Store) File(ctx context.Context, threadID, path string) (*store.File, error) {
	return s.Store.File(ctx, threadID, s.stored(ctx, threadID, path))
}

// Files implements store.Store. Secrets are replaced in stored paths, so Files replaces those of prefix before it looks for it.
func (s *Store) Files(ctx context.Context, threadID, prefix string, recursive bool) ([]store.File, error) {
	return s.Store.Files(ctx, threadID, s.stored(ctx, threadID, prefix), recursive)
}

// FilesPage implements store.Store.
func (s *Store) FilesPage(ctx context.Context, threadID string, q store.FileQuery) ([]store.File, bool, error) {
	q.Folder, q.After = s.stored(ctx, threadID, q.Folder), s.stored(ctx, threadID, q.After)
	return s.Store.FilesPage(ctx, threadID, q)
}

// stored returns a text in the form in which it was stored.
func (s *Store) stored(ctx context.Context, threadID, text string) string {
	if ns, ok := s.namespace(ctx, threadID); ok {
		return s.secrets.Text(ns, text)
	}
	return text
}
