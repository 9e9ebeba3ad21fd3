package client

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Info is the identity of a thread (THR-02) at the time of the request. It does not change.
type Info struct {
	record   runtimev1.ThreadRecord
	children []runtimev1.Child
}

// ThreadID returns the UUID of the thread.
func (i *Info) ThreadID() string { return i.record.ThreadID }

// AgentID returns the agent that runs the thread now.
func (i *Info) AgentID() string { return i.record.AgentID }

// UserID returns the user of the conversation, or nil when there is none.
func (i *Info) UserID() *string { return clone(i.record.UserID) }

// CreatedAt returns when the thread was created, in microseconds since 1970.
func (i *Info) CreatedAt() int64 { return i.record.CreatedAt }

// Arguments returns the arguments of the thread, a JSON object; {} when it has none.
func (i *Info) Arguments() json.RawMessage { return slices.Clone(i.record.Arguments) }

// Children returns the registry of resumable children, oldest first (SUB-01).
func (i *Info) Children() []runtimev1.Child { return slices.Clone(i.children) }

// Terminated returns when the thread was terminated, in microseconds since 1970, or nil while it is active (THR-05).
func (i *Info) Terminated() *int64 { return clone(i.record.Terminated) }

// Record returns the whole record of the thread.
func (i *Info) Record() runtimev1.ThreadRecord { return i.record }

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Info returns the thread's identity, or ErrNotFound when there is no such thread.
func (t *Thread) Info(ctx context.Context) (*Info, error) {
	rec, err := t.Get(ctx)
	if err != nil {
		return nil, err
	}
	i := &Info{record: *rec}
	for c, err := range t.AllChildren(ctx) {
		if err != nil {
			return nil, err
		}
		if c.Resumable {
			i.children = append(i.children, c)
		}
	}
	return i, nil
}

// AllChildren iterates over the whole registry, page by page, oldest first.
func (t *Thread) AllChildren(ctx context.Context) iter.Seq2[runtimev1.Child, error] {
	return pages(func(offset int) ([]runtimev1.Child, bool, error) {
		l, err := t.Children(ctx, Page{Limit: runtimev1.MaxPageSize, Offset: offset})
		if err != nil {
			return nil, false, err
		}
		return l.Children, l.HasMore, nil
	})
}

// AllMessages iterates over the conversation from its beginning, page by page. It ignores Order, Limit and Offset of
// o.
func (t *Thread) AllMessages(ctx context.Context, o MessageOptions) iter.Seq2[runtimev1.Message, error] {
	return pages(func(offset int) ([]runtimev1.Message, bool, error) {
		o.Order, o.Page = "asc", Page{Limit: runtimev1.MaxPageSize, Offset: offset}
		l, err := t.Messages(ctx, o)
		if err != nil {
			return nil, false, err
		}
		return l.Messages, l.HasMore, nil
	})
}

// pages iterates over a list that comes in pages. The last pair has the error, if there is one.
func pages[T any](get func(offset int) (page []T, more bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for offset := 0; ; {
			page, more, err := get(offset)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
			if offset += len(page); !more || len(page) == 0 {
				return
			}
		}
	}
}
