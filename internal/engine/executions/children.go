package executions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// childrenOf implements the operations on the children of a thread for tools (SUB-03).
type childrenOf struct {
	service *Service
	thread  *store.Thread
	state   *thread.State
	agent   *definition.Agent // may be nil
	side    func() *definition.Side
	runID   string
}

// Kinds returns the subagents that the agent declares, without the optional ones that no variable of the thread switches on (SUB-07).
func (c *childrenOf) Kinds(ctx context.Context) ([]skeinv1.AgentSubagent, error) {
	if c.agent == nil {
		return nil, nil
	}
	var kinds []skeinv1.AgentSubagent
	for _, kind := range c.agent.Spec.Subagents {
		if kind.Optional != "" {
			if on, err := isSwitchedOn(ctx, c.state, kind.Optional); err != nil {
				return nil, err
			} else if !on {
				continue
			}
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

func (c *childrenOf) Living(ctx context.Context) (map[string]int, error) {
	return c.service.opts.Store.LivingChildren(ctx, c.thread.Namespace, c.thread.ID)
}

func (c *childrenOf) List(ctx context.Context) ([]skeinv1.ChildStatus, error) {
	return c.service.opts.Children.List(ctx, c.thread)
}

func (c *childrenOf) Resumable(ctx context.Context) ([]skeinv1.ChildStatus, error) {
	return c.service.opts.Children.Resumable(ctx, c.thread)
}

func (c *childrenOf) Create(ctx context.Context, req tool.ChildRequest) (*skeinv1.ChildStatus, error) {
	if limits := c.service.opts.Limits; c.thread.Depth+1 > limits.Depth {
		return nil, fmt.Errorf("subagents may nest %d levels deep, and this conversation is at level %d: do this task yourself", limits.Depth, c.thread.Depth)
	}
	for _, path := range req.Attachments {
		rec, err := c.state.StatFile(ctx, path)
		if err != nil {
			return nil, err
		}
		if rec == nil || rec.IsDirectory {
			return nil, fmt.Errorf("there is no file %s to hand over: write it first, or leave it out", path)
		}
	}
	if string(req.Arguments) == "null" {
		req.Arguments = nil
	}
	limits, err := c.limits(ctx, req)
	if err != nil {
		return nil, err
	}
	child, err := c.declare(ctx, ports.ChildRequest{
		Cause: req.Cause, RunID: c.runID, Subagent: req.Kind, Title: req.Title, Message: req.Message,
		Arguments: req.Arguments, Attachments: req.Attachments, Limits: limits,
	})
	if err != nil {
		return child, err
	}
	// The new thread writes this message too. Written here, it precedes the result of the call that created the
	// child.
	ops := []store.Op{thread.ChildStatusMessage(&store.Thread{
		ParentID: c.thread.ID, Reference: child.Reference, Child: &store.Child{Name: req.Kind.Name},
	}, thread.ChildCreated, "")}
	if c.agent != nil && c.side().Hooks[skeinv1.HookAfterSubagentCreated] != nil {
		entry, err := json.Marshal(child)
		if err != nil {
			return child, err
		}
		ops = append(ops, c.service.opts.Hooks.Queue(ctx, c.side(), c.runID, child.Reference, store.HookCall{
			Hook: string(skeinv1.HookAfterSubagentCreated), Subagent: entry,
		})...)
	}
	return child, c.announce(ctx, child.Reference, ops)
}

// firstPause and longestPause bound the pauses between attempts to announce a child. Together they last about six seconds.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 3200 * time.Millisecond
)

// announce records the creation of a child, and queues its hook. It retries while the store is unavailable: the child exists, and a model
// that reads an error would create another one.
func (c *childrenOf) announce(ctx context.Context, reference string, ops []store.Op) error {
	for pause := firstPause; ; pause *= 2 {
		err := c.state.Apply(ctx, ops...)
		switch {
		case !errors.Is(err, store.ErrUnavailable):
			return err
		case pause > longestPause && len(ops) == 1:
			return nil // the child writes the message too
		case pause > longestPause:
			return fmt.Errorf("the subagent %s exists and works, but its hook is not called because the store was away: do not start it again", reference)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (c *childrenOf) Message(ctx context.Context, req tool.ChildMessage) (*skeinv1.ChildStatus, error) {
	child, err := c.find(ctx, req.Reference)
	if err != nil {
		return nil, err
	}
	if child.TerminatedAt != 0 {
		return nil, c.ended(req.Reference)
	}
	st, err := c.service.opts.Threads.Open(ctx, child.ID)
	if err != nil {
		return nil, err
	}
	attachments, err := st.CopyFilesFrom(ctx, c.state, req.Attachments)
	if err != nil {
		return nil, err
	}
	m := thread.NewMessage{Content: &req.Message, Attachments: attachments, FromSystem: true, Unpark: true, IdempotencyKey: "parent:" + req.Cause}
	if child.Child.Blocking {
		m.Metadata = map[string]any{runlog.MetadataReplyTo: req.Cause}
	}
	if _, err := st.Queue(ctx, m); err != nil {
		return nil, err
	}
	return &skeinv1.ChildStatus{
		Reference: child.Reference, Name: child.Child.Name, ThreadName: child.Name, ThreadID: child.ID,
		Blocking: child.Child.Blocking, Resumable: child.Child.Resumable, Status: tool.ChildRunning,
	}, nil
}

// find returns the child of the thread with a reference.
func (c *childrenOf) find(ctx context.Context, reference string) (*store.Thread, error) {
	child, err := c.service.opts.Store.Child(ctx, c.thread.ID, reference)
	if err == nil && child.Child != nil {
		return child, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	registry, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, entry := range registry {
		if entry.Reference == reference && entry.Status == tool.ChildTerminated {
			return nil, c.ended(reference)
		}
		if entry.Reference == reference {
			return nil, fmt.Errorf("the subagent %s is still being set up: try again in a moment", reference)
		}
	}
	return nil, fmt.Errorf("this conversation has no subagent %q: use a reference of subagent_list", reference)
}

// ended returns the error of a message to a child that takes none any more.
func (c *childrenOf) ended(reference string) error {
	if c.agent == nil || len(c.agent.Spec.Subagents) == 0 {
		return fmt.Errorf("the subagent %s has ended, and reads no more messages", reference)
	}
	return fmt.Errorf("the subagent %s has ended: start another with subagent_create", reference)
}

// lifecycleOf implements the operations on the life of a thread for tools.
type lifecycleOf struct {
	service *Service
	thread  *store.Thread
	state   *thread.State
}

func (l *lifecycleOf) Terminate(ctx context.Context) error {
	return l.service.opts.Terminate(ctx, l.thread.ID, skeinv1.ReasonTerminatedByRequest)
}

// statusNotification is the status kind of messages that a child sends with notifyParent.
const statusNotification = "notification"

func (l *lifecycleOf) NotifyParent(ctx context.Context, key, content string) error {
	if l.thread.ParentID == "" { // it may have become a child since it was read
		t, err := l.service.opts.Store.Thread(ctx, l.thread.ID)
		if err != nil {
			return err
		}
		if t.ParentID == "" {
			return errors.New("this thread has no parent: notifyParent is for subagents")
		}
		l.thread = t
	}
	m := store.Message{
		ID: "queued-" + key, Role: store.RoleUser, CreatedAt: l.service.opts.Now(), Silent: true, Content: &content, Name: l.name(),
		Metadata: map[string]any{thread.MetadataSubagent: l.thread.Reference, thread.MetadataStatusKind: statusNotification},
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	// The transaction contains nothing else, since the child's own rows do not change. The fence is checked all the
	// same.
	err = l.state.Apply(ctx, &store.Enqueue{
		To: l.thread.ParentID, Bounded: true,
		Item: store.InboxItem{Key: "notify:" + key, Kind: store.InboxMessage, Payload: payload, CreatedAt: m.CreatedAt},
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRetained) { // this thread was left when its parent was deleted
		return ErrParentTerminated
	}
	return err
}

func (l *lifecycleOf) name() string {
	if l.thread.Child == nil {
		return ""
	}
	return l.thread.Child.Name
}

// maxStatus bounds the status of a child, in bytes, because custom resources contain it.
const maxStatus = 200

func (l *lifecycleOf) SetStatus(ctx context.Context, status string) error {
	if err := checkStatus(status); err != nil {
		return err
	}
	return l.state.Apply(ctx, &store.UpdateThread{RegistryStatus: &status})
}

func checkStatus(status string) error {
	switch {
	case len(status) > maxStatus:
		return &thread.InvalidError{Field: "status", Message: fmt.Sprintf("a status has at most %d bytes, this one has %d: shorten it", maxStatus, len(status))}
	case status == "" || !utf8.ValidString(status) || strings.ContainsRune(status, 0):
		return &thread.InvalidError{Field: "status", Message: "give UTF-8 text without NUL that is not empty"}
	}
	return nil
}

// isSwitchedOn reports whether the variable that a kind of subagent depends on has a value that stands for yes.
func isSwitchedOn(ctx context.Context, st *thread.State, name string) (bool, error) {
	v, err := st.EnvValue(ctx, name)
	if errors.Is(err, thread.ErrEnvUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(v.Value)) {
	case "true", "yes", "on", "1":
		return true, nil
	}
	return false, nil
}
