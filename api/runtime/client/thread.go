package client

import (
	"context"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Page selects a part of a list. The zero value is the first 100.
type Page struct {
	Limit  int // 100 when 0, 1000 at most
	Offset int
}

func (p Page) params() map[string]string {
	m := map[string]string{}
	if p.Limit != 0 {
		m["limit"] = strconv.Itoa(p.Limit)
	}
	if p.Offset != 0 {
		m["offset"] = strconv.Itoa(p.Offset)
	}
	return m
}

// Get gives what the data plane holds of the thread itself.
func (t *Thread) Get(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	return one[runtimev1.ThreadRecord](func(out any) error { return t.getAt(ctx, out, nil, "") })
}

// MessageOptions select a page of messages (SPEC MSG-02).
type MessageOptions struct {
	Page
	Order         string // "", "asc" or "desc": no order = the newest slice, oldest first
	IncludeSilent bool
	MaxDepth      int // 0 = the conversation's own messages
	AllDepths     bool
}

// Messages gives a page of the conversation, what waits in the queue last.
func (t *Thread) Messages(ctx context.Context, o MessageOptions) (*runtimev1.MessageList, error) {
	p := o.params()
	if o.Order != "" {
		p["order"] = o.Order
	}
	if o.IncludeSilent {
		p["includeSilent"] = "true"
	}
	if o.AllDepths {
		p["maxDepth"] = "-1"
	} else if o.MaxDepth != 0 {
		p["maxDepth"] = strconv.Itoa(o.MaxDepth)
	}
	return one[runtimev1.MessageList](func(out any) error { return t.getAt(ctx, out, p, runtimev1.SubresourceMessages) })
}

// Message gives one message; nil when there is none (SPEC MSG-03).
func (t *Thread) Message(ctx context.Context, id string) (*runtimev1.Message, error) {
	m, err := one[runtimev1.Message](func(out any) error { return t.getAt(ctx, out, nil, runtimev1.SubresourceMessages, id) })
	return m, t.absentBelow(ctx, err)
}

// absentBelow turns "no such thing in the thread" into nothing, and leaves "no such thread" an error.
func (t *Thread) absentBelow(ctx context.Context, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = t.Get(ctx)
	return err
}

// Inject appends a message and never starts execution (SPEC MSG-04).
func (t *Thread) Inject(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error) {
	return one[runtimev1.Message](func(out any) error {
		return t.send(ctx, http.MethodPost, m, out, runtimev1.SubresourceMessages)
	})
}

// Queue puts a message into the queue, durably, and starts execution (SPEC MSG-05).
func (t *Thread) Queue(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error) {
	return one[runtimev1.Message](func(out any) error {
		return t.send(ctx, http.MethodPost, m, out, runtimev1.SubresourceQueue)
	})
}

// Queued gives the messages that wait, in order.
func (t *Thread) Queued(ctx context.Context, p Page) (*runtimev1.MessageList, error) {
	return one[runtimev1.MessageList](func(out any) error { return t.getAt(ctx, out, p.params(), runtimev1.SubresourceQueue) })
}

// Runs gives a page of the thread's runs, newest first.
func (t *Thread) Runs(ctx context.Context, p Page) (*runtimev1.RunList, error) {
	return one[runtimev1.RunList](func(out any) error { return t.getAt(ctx, out, p.params(), runtimev1.SubresourceRuns) })
}

// Run gives one run; nil when there is none.
func (t *Thread) Run(ctx context.Context, id string) (*runtimev1.Run, error) {
	r, err := one[runtimev1.Run](func(out any) error { return t.getAt(ctx, out, nil, runtimev1.SubresourceRuns, id) })
	return r, t.absentBelow(ctx, err)
}

// Stop ends the run under way, not the thread.
func (t *Thread) Stop(ctx context.Context, message string) (*runtimev1.ThreadRecord, error) {
	return one[runtimev1.ThreadRecord](func(out any) error {
		return t.send(ctx, http.MethodPost, runtimev1.Stop{Message: message}, out, runtimev1.SubresourceStop)
	})
}

// Terminate ends the thread and its descendants for good; they can still be read (SPEC THR-05). Again is no error.
func (t *Thread) Terminate(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	return one[runtimev1.ThreadRecord](func(out any) error {
		return t.send(ctx, http.MethodPost, runtimev1.Stop{}, out, runtimev1.SubresourceTerminate)
	})
}

// RunCode runs code in the thread's sandbox, apart from the conversation (SPEC COD-01). How the code ended is in
// the result; an error means that it did not run. Ending ctx ends the code.
func (t *Thread) RunCode(ctx context.Context, req runtimev1.CodeRequest) (*runtimev1.CodeResult, error) {
	return one[runtimev1.CodeResult](func(out any) error {
		return t.send(ctx, http.MethodPost, req, out, runtimev1.SubresourceCode)
	})
}

// ScheduleEffect schedules an effect and gives its id (SPEC EFF-01).
func (t *Thread) ScheduleEffect(ctx context.Context, e runtimev1.NewEffect) (string, error) {
	var id runtimev1.EffectID
	err := t.send(ctx, http.MethodPost, e, &id, runtimev1.SubresourceEffects)
	return id.ID, err
}

// Effects gives the pending effects, all or those of one name.
func (t *Thread) Effects(ctx context.Context, name string, p Page) (*runtimev1.EffectList, error) {
	params := p.params()
	if name != "" {
		params["name"] = name
	}
	return one[runtimev1.EffectList](func(out any) error { return t.getAt(ctx, out, params, runtimev1.SubresourceEffects) })
}

// RemoveEffect cancels a pending effect; false when there is none of that id.
func (t *Thread) RemoveEffect(ctx context.Context, id string) (bool, error) {
	err := t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceEffects, id)
	if apierrors.IsNotFound(err) {
		return false, t.absentBelow(ctx, err)
	}
	return err == nil, err
}

// Children gives the registry of the thread, oldest first.
func (t *Thread) Children(ctx context.Context, p Page) (*runtimev1.ChildList, error) {
	return one[runtimev1.ChildList](func(out any) error { return t.getAt(ctx, out, p.params(), runtimev1.SubresourceChildren) })
}

// one makes a T, fills it in and gives it, nil on errors.
func one[T any](fill func(any) error) (*T, error) {
	v := new(T)
	if err := fill(v); err != nil {
		return nil, err
	}
	return v, nil
}
