package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Children implements engine.Children in memory. It creates a child's thread at once.
type Children struct {
	world *World
	// Creates counts calls of Create by their cause. Create changes it under mu.
	Creates map[string]int

	mu      sync.Mutex
	entries map[string][]*child // by parent id, oldest first
}

type child struct {
	cause string
	entry skeinv1.ChildStatus
}

// Create implements engine.Children.
func (c *Children) Create(ctx context.Context, parent *store.Thread, req engine.ChildRequest) (*skeinv1.ChildStatus, error) {
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
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(parent.ID+req.Cause)).String()
	reference := req.Subagent.Name + "-" + id[:8]
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
	made := &child{cause: req.Cause, entry: skeinv1.ChildStatus{
		Reference: reference, Name: req.Subagent.Name, Title: req.Title, Blocking: req.Subagent.Blocking, Resumable: req.Subagent.Resumable,
		ThreadName: reference, ThreadID: id, SpawnGroupID: req.RunID, Status: "pending", ParentCommunication: req.Subagent.ParentCommunication,
	}}
	c.entries[parent.ID] = append(c.entries[parent.ID], made)
	return &made.entry, nil
}

// List implements engine.Children. The entries have the statuses that the store has.
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
