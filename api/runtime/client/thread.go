package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Page selects a part of a list. The zero value selects the first 100 items.
type Page struct {
	Limit  int // 0 means 100; the maximum is 1000
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

// Get returns the stored record of the thread.
func (t *Thread) Get(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	return readAs[runtimev1.ThreadRecord](ctx, t, nil, "")
}

// MessageOptions select a page of messages (MSG-02).
type MessageOptions struct {
	Page
	Order         string // "", "asc" or "desc"; "" means the newest slice, oldest first
	IncludeSilent bool
	MaxDepth      int // 0 means the conversation's own messages
	AllDepths     bool
}

// Messages returns a page of the conversation. Messages that wait in the queue come last.
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
	return readAs[runtimev1.MessageList](ctx, t, p, runtimev1.SubresourceMessages)
}

// Message returns one message, or nil when there is none (MSG-03).
func (t *Thread) Message(ctx context.Context, id string) (*runtimev1.Message, error) {
	m, err := readAs[runtimev1.Message](ctx, t, nil, runtimev1.SubresourceMessages, id)
	return m, t.absentBelow(ctx, err)
}

// absentBelow returns nil for an error about something missing within the thread. A missing thread stays an error.
func (t *Thread) absentBelow(ctx context.Context, err error) error {
	if !absent(err) {
		return err
	}
	_, err = t.Get(ctx)
	return err
}

// Inject appends a message and never starts execution (MSG-04).
func (t *Thread) Inject(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error) {
	return sendAs[runtimev1.Message](ctx, t, http.MethodPost, m, runtimev1.SubresourceMessages)
}

// Queue adds a message to the queue, durably, and starts execution (MSG-05).
func (t *Thread) Queue(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error) {
	return sendAs[runtimev1.Message](ctx, t, http.MethodPost, m, runtimev1.SubresourceQueue)
}

// Send queues a user's text.
func (t *Thread) Send(ctx context.Context, content string) (*runtimev1.Message, error) {
	return t.Queue(ctx, runtimev1.NewMessage{Content: content})
}

// Queued returns the waiting messages, in order.
func (t *Thread) Queued(ctx context.Context, p Page) (*runtimev1.MessageList, error) {
	return readAs[runtimev1.MessageList](ctx, t, p.params(), runtimev1.SubresourceQueue)
}

// Runs returns a page of the thread's runs, newest first.
func (t *Thread) Runs(ctx context.Context, p Page) (*runtimev1.RunList, error) {
	return readAs[runtimev1.RunList](ctx, t, p.params(), runtimev1.SubresourceRuns)
}

// Run returns one run, or nil when there is none.
func (t *Thread) Run(ctx context.Context, id string) (*runtimev1.Run, error) {
	r, err := readAs[runtimev1.Run](ctx, t, nil, runtimev1.SubresourceRuns, id)
	return r, t.absentBelow(ctx, err)
}

// Stop ends the current run, not the thread.
func (t *Thread) Stop(ctx context.Context, message string) (*runtimev1.ThreadRecord, error) {
	return sendAs[runtimev1.ThreadRecord](ctx, t, http.MethodPost, runtimev1.Stop{Message: message}, runtimev1.SubresourceStop)
}

// CancelRun ends one run, whether it runs or is parked, and returns it as it is then (RUN-10). Queued messages are
// still processed. A run that has ended already stays as it is. The error is one that IsNotFound when the thread has
// no such run.
func (t *Thread) CancelRun(ctx context.Context, id, message string) (*runtimev1.Run, error) {
	return sendAs[runtimev1.Run](ctx, t, http.MethodPost, runtimev1.Stop{Message: message}, runtimev1.SubresourceRuns, id, runtimev1.ActionCancel)
}

// Terminate ends the thread and its descendants for good. They can still be read (THR-05). Repeating it is no error.
func (t *Thread) Terminate(ctx context.Context) error {
	return t.send(ctx, http.MethodPost, runtimev1.Stop{}, nil, runtimev1.SubresourceTerminate)
}

// ScheduleEffect schedules an effect and returns its id (EFF-01). args must encode as a JSON object; nil means {}.
// The delay is counted in whole milliseconds, and 0 means now.
func (t *Thread) ScheduleEffect(ctx context.Context, name string, args any, delay time.Duration) (string, error) {
	e := runtimev1.NewEffect{Name: name, Delay: delay.Milliseconds()}
	if args != nil {
		var err error
		if e.Args, err = json.Marshal(args); err != nil {
			return "", fmt.Errorf("%w: the arguments cannot be written as JSON: %w", ErrInvalid, err)
		}
	}
	return t.Schedule(ctx, e)
}

// Schedule is ScheduleEffect with the types of the wire.
func (t *Thread) Schedule(ctx context.Context, e runtimev1.NewEffect) (string, error) {
	var id runtimev1.EffectID
	err := t.send(ctx, http.MethodPost, e, &id, runtimev1.SubresourceEffects)
	return id.ID, err
}

// Effects returns a page of the pending effects, all or those of one name.
func (t *Thread) Effects(ctx context.Context, name string, p Page) (*runtimev1.EffectList, error) {
	params := p.params()
	if name != "" {
		params["name"] = name
	}
	return readAs[runtimev1.EffectList](ctx, t, params, runtimev1.SubresourceEffects)
}

// ScheduledEffects returns all pending effects, or those of one name.
func (t *Thread) ScheduledEffects(ctx context.Context, name string) ([]runtimev1.Effect, error) {
	all := []runtimev1.Effect{}
	for e, err := range pages(func(offset int) ([]runtimev1.Effect, bool, error) {
		l, err := t.Effects(ctx, name, Page{Limit: runtimev1.MaxPageSize, Offset: offset})
		if err != nil {
			return nil, false, err
		}
		return l.Effects, l.HasMore, nil
	}) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// RemoveScheduledEffect cancels a pending effect. It returns false when there is none of that id.
func (t *Thread) RemoveScheduledEffect(ctx context.Context, id string) (bool, error) {
	err := t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceEffects, id)
	if absent(err) {
		return false, t.absentBelow(ctx, err)
	}
	return err == nil, err
}

// Children returns a page of the thread's registry, oldest first.
func (t *Thread) Children(ctx context.Context, p Page) (*runtimev1.ChildList, error) {
	return readAs[runtimev1.ChildList](ctx, t, p.params(), runtimev1.SubresourceChildren)
}
