package client

import (
	"context"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// ChildThread returns the thread of a child by its reference in the registry, or nil when there is none (SUB-05).
func (t *Thread) ChildThread(ctx context.Context, reference string) (ThreadState, error) {
	c, err := t.Child(ctx, reference)
	if err != nil || c == nil {
		return nil, err
	}
	name := c.ThreadID // the id stays the same even if another object takes the name
	if name == "" {
		name = c.ThreadName
	}
	return t.client.Thread(t.namespace, name), nil
}

// Child returns one entry of the registry, or nil when there is none (SUB-01).
func (t *Thread) Child(ctx context.Context, reference string) (*runtimev1.Child, error) {
	c, err := readAs[runtimev1.Child](ctx, t, nil, runtimev1.SubresourceChildren, reference)
	return c, t.absentBelow(ctx, err)
}

// ParentThread returns the parent of this thread, or nil when it has none (SUB-05).
func (t *Thread) ParentThread(ctx context.Context) (ThreadState, error) {
	var rec *runtimev1.ThreadRecord
	if err := t.getAt(ctx, &rec, nil, runtimev1.SubresourceParent); err != nil || rec == nil {
		return nil, err
	}
	return t.client.Thread(rec.Namespace, rec.ThreadID), nil
}

// NotifyParent queues a silent message on the parent, with metadata.subagent_id, which starts the parent (SUB-05). It
// returns ErrInvalid when the thread has no parent, and ErrTerminated when it or its parent is terminated.
func (t *Thread) NotifyParent(ctx context.Context, content string) error {
	return t.send(ctx, http.MethodPost, runtimev1.Notification{Content: content}, nil, runtimev1.SubresourceNotify)
}

// SetStatus sets the thread's status in its parent's registry, at most 200 bytes (SUB-05). It returns ErrInvalid when
// the thread has no parent, and ErrTerminated when it is terminated.
func (t *Thread) SetStatus(ctx context.Context, status string) error {
	return t.send(ctx, http.MethodPut, runtimev1.RegistryStatus{Status: status}, nil, runtimev1.SubresourceStatus)
}

// Status returns the thread's status in its parent's registry, or "" when it has no parent.
func (t *Thread) Status(ctx context.Context) (string, error) {
	var s runtimev1.RegistryStatus
	err := t.getAt(ctx, &s, nil, runtimev1.SubresourceStatus)
	return s.Status, err
}
