package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// Registry statuses of a child (SUB-05). A child may also set other statuses itself.
const (
	ChildPending    = "pending" // its thread has not run yet
	ChildRunning    = "running"
	ChildCompleted  = "completed"
	ChildFailed     = "failed"
	ChildTerminated = "terminated"
)

// ChildEnded reports whether a registry status is final.
func ChildEnded(status string) bool {
	return status == ChildCompleted || status == ChildFailed || status == ChildTerminated
}

// Children implements ports.Children: each child is a Subagent object (SUB-01).
type Children struct {
	client client.Client
	live   client.Reader
	store  ChildStore
}

// ChildStore is the part of the store that Children needs.
type ChildStore interface {
	ReserveChild(ctx context.Context, t store.ChildTask, limits []store.ChildLimit) (digest string, err error)
	ReleaseChild(ctx context.Context, parentID, reference string) error
}

// ChildTask is what a parent gave to a child, as the store keeps it.
type ChildTask struct {
	Message     string          `json:"message,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
	Attachments []string        `json:"attachments,omitempty"`
	// Telemetry is the call of the parent that made the child, in its trace.
	Telemetry telemetry.Origin `json:"telemetry,omitzero"`
}

var _ ports.Children = (*Children)(nil)

// NewChildren returns the port. The client must read its own writes, so that List includes what Create made.
// live reads from the API server, past any cache.
func NewChildren(c client.Client, live client.Reader, st ChildStore) *Children {
	return &Children{client: c, live: live, store: st}
}

// Create implements ports.Children. What a model or code gave to the child stays out of etcd (K8S-07): the store has it
// before the object refers to it.
func (c *Children) Create(ctx context.Context, parent *store.Thread, req ports.ChildRequest) (*skeinv1.ChildStatus, error) {
	s := &skeinv1.Subagent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       parent.Namespace,
			Name:            objects.DerivedName(parent.Name+"-"+req.Subagent.Name, parent.ID, req.Cause),
			Labels:          objects.RuntimeLabels(parent),
			Annotations:     map[string]string{skeinv1.AnnotationIdempotencyKey: req.Cause},
			OwnerReferences: []metav1.OwnerReference{objects.ThreadOwner(parent.Name, parent.OwnerUID())},
		},
		Spec: skeinv1.SubagentSpec{
			ParentRef:           skeinv1.LocalRef{Name: parent.Name},
			AgentRef:            req.Subagent.AgentRef,
			Name:                req.Subagent.Name,
			Title:               req.Title,
			Description:         req.Subagent.Description,
			TaskRef:             objects.Hash([]byte(parent.ID), []byte(req.Cause)),
			Blocking:            req.Subagent.Blocking,
			Resumable:           req.Subagent.Resumable,
			ParentCommunication: req.Subagent.ParentCommunication,
			SpawnGroupID:        req.RunID,
			ToolCallID:          req.Cause,
			TTLAfterFinished:    req.Subagent.TTLAfterFinished,
			Retain:              req.Subagent.Retain,
		},
	}
	task, err := json.Marshal(ChildTask{Message: req.Message, Arguments: req.Arguments, Attachments: req.Attachments, Telemetry: telemetry.OriginOf(ctx)})
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	if s.Spec.TaskDigest, err = c.store.ReserveChild(ctx, store.ChildTask{
		ID: s.Spec.TaskRef, ParentID: parent.ID, Reference: s.Name, Namespace: parent.Namespace, Kind: req.Subagent.Name,
		Agent: req.Subagent.AgentRef.Name, Task: task,
	}, req.Limits); err != nil {
		return nil, err
	}
	var have skeinv1.Subagent
	found, err := MakeOnce(ctx, c.client, c.live, s, &have)
	switch {
	case err == nil:
		return ptr.To(Entry(s)), nil
	case found && sameCause(&have, s) && have.Spec.ParentRef == s.Spec.ParentRef:
		return ptr.To(Entry(&have)), nil // an earlier attempt of the same call made it
	case !found && !IsRefused(err):
		return nil, fmt.Errorf("create Subagent %q: %w", s.Name, err)
	}
	if err := c.store.ReleaseChild(ctx, parent.ID, s.Name); err != nil {
		return nil, err
	}
	if IsRefused(err) {
		return nil, fmt.Errorf("the cluster refuses the subagent: %w", err)
	}
	return nil, fmt.Errorf("a Subagent %q exists already and was not made by this call: delete or rename it", s.Name)
}

// Exists implements ports.Children. A Subagent whose child was deleted exists no more. One whose child was refused does: its controller
// tells the parent why, after it has recorded the refusal.
func (c *Children) Exists(ctx context.Context, parent *store.Thread, reference string) (bool, error) {
	var s skeinv1.Subagent
	err := c.live.Get(ctx, client.ObjectKey{Namespace: parent.Namespace, Name: reference}, &s)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Subagent %q: %w", reference, err)
	}
	ended := meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionTerminated)
	gone := ended != nil && ended.Status == metav1.ConditionTrue && ended.Reason != skeinv1.ReasonChildRefused
	return s.DeletionTimestamp.IsZero() && !gone, nil
}

// List implements ports.Children.
func (c *Children) List(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error) {
	return c.list(ctx, parent, objects.IndexThread)
}

// Resumable implements ports.Children.
func (c *Children) Resumable(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error) {
	return c.list(ctx, parent, objects.IndexResumable)
}

func (c *Children) list(ctx context.Context, parent *store.Thread, index string) ([]skeinv1.ChildStatus, error) {
	var list skeinv1.SubagentList
	if err := c.client.List(ctx, &list, client.InNamespace(parent.Namespace), client.MatchingFields{index: parent.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Subagents of Thread %q: %w", parent.Name, err)
	}
	// Others of its name may have left children behind, and may come to have new ones.
	return Entries(slices.DeleteFunc(list.Items, func(s skeinv1.Subagent) bool { return !objects.ControlledBy(&s, parent.OwnerUID()) })), nil
}

// Entry returns the entry of the child with a reference in a thread's registry, or store.ErrNotFound.
func (c *Children) Entry(ctx context.Context, parent *store.Thread, reference string) (*skeinv1.ChildStatus, error) {
	var s skeinv1.Subagent
	err := c.client.Get(ctx, client.ObjectKey{Namespace: parent.Namespace, Name: reference}, &s)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read Subagent %q: %w", reference, err)
	}
	if err != nil || s.Spec.ParentRef.Name != parent.Name || !objects.ControlledBy(&s, parent.OwnerUID()) || !s.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("child %s of thread %s: %w", reference, parent.ID, store.ErrNotFound)
	}
	return ptr.To(Entry(&s)), nil
}

// Entries returns the registry of a thread, built from its Subagents, oldest first. It omits Subagents that are being
// deleted.
func Entries(subagents []skeinv1.Subagent) []skeinv1.ChildStatus {
	entries := make([]skeinv1.ChildStatus, 0, len(subagents))
	for i := range subagents {
		if s := &subagents[i]; s.DeletionTimestamp.IsZero() {
			entries = append(entries, Entry(s))
		}
	}
	slices.SortFunc(entries, func(a, b skeinv1.ChildStatus) int {
		if a.CreatedAt != b.CreatedAt {
			return int(min(max(a.CreatedAt-b.CreatedAt, -1), 1))
		}
		if a.Reference < b.Reference {
			return -1
		}
		return 1
	})
	return entries
}

// Entry returns the registry entry of a Subagent: the one in its status, or one built from its spec while the status
// has none.
func Entry(s *skeinv1.Subagent) skeinv1.ChildStatus {
	if s.Status.Entry != nil {
		return *s.Status.Entry
	}
	return skeinv1.ChildStatus{
		Reference:           s.Name,
		Name:                s.Spec.Name,
		Title:               s.Spec.Title,
		Description:         s.Spec.Description,
		Resumable:           s.Spec.Resumable,
		Blocking:            s.Spec.Blocking,
		ThreadName:          ChildThreadName(s),
		SpawnGroupID:        s.Spec.SpawnGroupID,
		CreatedAt:           s.CreationTimestamp.UnixMicro(),
		Status:              ChildPending,
		ParentCommunication: s.Spec.ParentCommunication,
	}
}

// ChildThreadName returns the name of the Thread that a Subagent owns.
func ChildThreadName(s *skeinv1.Subagent) string {
	if s.Spec.ThreadRef != nil {
		return s.Spec.ThreadRef.Name
	}
	return s.Name
}
