package streams

import (
	"context"
	"encoding/json"
	"slices"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// Bounds of a value. The messages of a value grow up to the first of each pair and then begin again with the second,
// so that not each new message moves the others.
const (
	mostMessages, fewerMessages         = 200, 100
	mostMessageBytes, fewerMessageBytes = 2 << 20, 1 << 20
	observedValues                      = 100
	observedValueBytes                  = 64 << 10
)

// Record returns the record of a thread that was read.
type Record func(ctx context.Context, row *store.Thread) (*runtimev1.ThreadRecord, error)

// valueReader reads what clients observe. Secrets are removed before values are compared, so that patches fit.
type valueReader struct {
	store   store.Store
	record  Record
	secrets *redact.Registry
}

func (r *valueReader) read(ctx context.Context, threadID string, parts []string, before *observe.Value) (*observe.Value, error) {
	row, err := r.store.Thread(ctx, threadID)
	if err != nil {
		return nil, err
	}
	if before != nil && before.Version == row.Version && before.Seq == row.LastSeq &&
		!slices.ContainsFunc(parts, func(p string) bool { _, ok := before.Parts[p]; return !ok }) {
		return before, nil
	}
	v := &observe.Value{Version: row.Version, Seq: row.LastSeq, Parts: map[string]observe.Part{}}
	for _, name := range parts {
		if v.Parts[name], err = r.part(ctx, row, name, before); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (r *valueReader) part(ctx context.Context, row *store.Thread, name string, before *observe.Value) (observe.Part, error) {
	switch name {
	case runtimev1.ObserveMessages:
		var shown observe.Part
		if before != nil {
			if shown = before.Parts[name]; shown.List && before.Seq == row.LastSeq {
				return shown, nil // whatever changes messages writes to the log
			}
		}
		return r.messages(ctx, row, shown.Items)
	case runtimev1.ObserveState:
		page, err := r.store.State(ctx, row.ID, store.StateQuery{})
		if err != nil {
			return observe.Part{}, err
		}
		return r.json(row, object(page.Entries))
	case runtimev1.ObserveValues:
		values, err := r.store.Values(ctx, row.ID, observedValues, observedValueBytes)
		if err != nil {
			return observe.Part{}, err
		}
		return r.json(row, object(values))
	}
	record, err := r.record(ctx, row)
	if err != nil {
		return observe.Part{}, err
	}
	return r.json(row, record)
}

func (r *valueReader) json(row *store.Thread, v any) (observe.Part, error) {
	body, err := r.encode(row, v)
	return observe.Part{JSON: body}, err
}

// encode returns JSON without secrets and without the newline at its end.
func (r *valueReader) encode(row *store.Thread, v any) (json.RawMessage, error) {
	body, err := call.Marshal(v)
	if err != nil {
		return nil, err
	}
	return r.secrets.JSON(row.Namespace, body[:len(body)-1]), nil
}

// object returns entries as an object, without values that were too large.
func object(entries []store.StateEntry) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(entries))
	for _, e := range entries {
		if e.Value != nil {
			out[e.Key] = e.Value
		}
	}
	return out
}

// messages reads the newest messages. They begin where those that are shown begin, unless they have become too many.
func (r *valueReader) messages(ctx context.Context, row *store.Thread, shown []observe.Item) (observe.Part, error) {
	page, err := r.store.Messages(ctx, row.ID, store.MessageQuery{Limit: mostMessages, MaxBytes: mostMessageBytes})
	if err != nil {
		return observe.Part{}, err
	}
	part := observe.Part{List: true, Items: make([]observe.Item, len(page.Messages))}
	for i := range page.Messages {
		body, err := r.encode(row, convert.Message(&page.Messages[i]))
		if err != nil {
			return observe.Part{}, err
		}
		part.Items[i] = observe.Item{ID: page.Messages[i].ID, JSON: body}
	}
	part.Items = window(part.Items, shown, !page.HasMore)
	return part, nil
}

// window returns the messages to show of the newest ones. all reports that there are no older ones.
func window(newest, shown []observe.Item, all bool) []observe.Item {
	if len(shown) > 0 {
		kept := map[string]bool{}
		for i := range shown {
			kept[shown[i].ID] = true
		}
		first := slices.IndexFunc(newest, func(m observe.Item) bool { return kept[m.ID] })
		// Messages that were shown may be before the page that was read.
		if first > 0 || first == 0 && (all || newest[0].ID == shown[0].ID) {
			if rest := newest[first:]; len(newestOf(rest, mostMessages, mostMessageBytes)) == len(rest) {
				return rest
			}
		}
	}
	return newestOf(newest, fewerMessages, fewerMessageBytes)
}

// newestOf returns the last items within bounds, and at least one.
func newestOf(items []observe.Item, most, bytes int) []observe.Item {
	first := len(items)
	for first > 0 && len(items)-first < most {
		if bytes -= len(items[first-1].JSON); bytes < 0 && first < len(items) {
			break
		}
		first--
	}
	return items[first:]
}
