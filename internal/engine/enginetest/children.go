package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Children implements ports.Children in memory. It creates a child's thread at once.
type Children struct {
	world *World
	// Creates counts calls of Create by their cause. Create changes it under mu.
	Creates map[string]int
	// Unmade leaves out the threads of new children, which are only declared.
	Unmade bool
	// Refuse returns an error for a child that is not to be created. It may be nil.
	Refuse func(req ports.ChildRequest) error

	mu      sync.Mutex
	entries map[string][]*child // by parent id, oldest first
}

type child struct {
	cause string
	entry skeinv1.ChildStatus
}

// Create implements ports.Children.
func (c *Children) Create(ctx context.Context, parent *store.Thread, req ports.ChildRequest) (*skeinv1.ChildStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Creates == nil {
		c.Creates = map[string]int{}
	}
	c.Creates[req.Cause]++
	for _, have := range c.entries[parent.ID] {
		if have.cause == req.Cause {
			return &have.entry, nil
		}
	}
	if c.Refuse != nil {
		if err := c.Refuse(req); err != nil {
			return nil, err
		}
	}
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(parent.ID+req.Cause)).String()
	reference := req.Subagent.Name + "-" + id[:8]
	if _, err := c.world.Store.ReserveChild(ctx, store.ChildTask{
		ID: id, ParentID: parent.ID, Reference: reference, Namespace: parent.Namespace, Kind: req.Subagent.Name, Agent: req.Subagent.AgentRef.Name,
	}, req.Limits); err != nil {
		return nil, err
	}
	made := &child{cause: req.Cause, entry: skeinv1.ChildStatus{
		Reference: reference, Name: req.Subagent.Name, Title: req.Title, Blocking: req.Subagent.Blocking, Resumable: req.Subagent.Resumable,
		ThreadName: reference, ThreadID: id, SpawnGroupID: req.RunID, Status: "pending", ParentCommunication: req.Subagent.ParentCommunication,
	}}
	if c.Unmade {
		c.entries[parent.ID] = append(c.entries[parent.ID], made)
		return &made.entry, nil
	}
	_, _, err := c.world.Threads.Create(ctx, thread.NewThread{
		Thread: store.Thread{
			ID: id, Namespace: parent.Namespace, Name: reference, Agent: req.Subagent.AgentRef.Name, Title: req.Title,
			Arguments: req.Arguments, ParentID: parent.ID, Reference: reference,
			Child: &store.Child{
				Name: req.Subagent.Name, Blocking: req.Subagent.Blocking, Resumable: req.Subagent.Resumable,
				ParentCommunication: string(req.Subagent.ParentCommunication), SpawnGroupID: req.RunID, ToolCallID: req.Cause,
			},
		},
		Message: req.Message, AttachFrom: parent.ID, Attachments: req.Attachments,
	})
	if err != nil {
		return nil, err
	}
	c.entries[parent.ID] = append(c.entries[parent.ID], made)
	return &made.entry, nil
}

// Delete deletes the declarations of a thread's children.
func (c *Children) Delete(parentID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, parentID)
}

// Exists implements ports.Children.
func (c *Children) Exists(_ context.Context, parent *store.Thread, reference string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.entries[parent.ID], func(e *child) bool { return e.entry.Reference == reference }), nil
}

// Resumable implements ports.Children.
func (c *Children) Resumable(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error) {
	entries, err := c.List(ctx, parent)
	return slices.DeleteFunc(entries, func(e skeinv1.ChildStatus) bool { return !e.Resumable || e.Status == tool.ChildTerminated }), err
}

// List implements ports.Children. The entries have the statuses that the store has.
func (c *Children) List(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error) {
	c.mu.Lock()
	entries := slices.Clone(c.entries[parent.ID])
	c.mu.Unlock()
	out := []skeinv1.ChildStatus{}
	for _, e := range entries {
		entry := e.entry
		t, err := c.world.Store.Thread(ctx, entry.ThreadID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if t.RegistryStatus != "" {
			entry.Status = t.RegistryStatus
		}
		out = append(out, entry)
	}
	return out, nil
}
