package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/store"
)

func describeModel(e *env) {
	Describe("any sequence of operations", func() {
		It("leaves the state that a simple model predicts", Label("MSG-02", "MSG-05", "KVS-01"), func(ctx SpecContext) {
			round := 0
			rapid.Check(GinkgoT(), func(t *rapid.T) {
				round++
				m := &model{ctx: ctx, store: e.store, id: fmt.Sprint("model-", round), keys: map[string]bool{}, values: map[string]string{}}
				if _, _, err := e.store.CreateThread(ctx, store.Thread{ID: m.id, Namespace: "n", Agent: "a"}); err != nil {
					t.Fatal(err)
				}
				t.Repeat(map[string]func(*rapid.T){
					"append":  m.append,
					"delete":  m.delete,
					"enqueue": m.enqueue,
					"dequeue": m.dequeue,
					"value":   m.value,
					"fail":    m.fail,
					"":        m.check,
				})
			})
		})
	})
}

// model is the expected state of one thread.
type model struct {
	ctx   context.Context
	store store.Store
	id    string

	messages []modelMessage
	inbox    []modelMessage
	keys     map[string]bool
	values   map[string]string
	version  int64
	made     int
}

type modelMessage struct {
	id     string
	silent bool
	seq    int64
}

var someKey = rapid.SampledFrom([]string{"", "a", "b", "c"})

func (m *model) commit(t *rapid.T, changes bool, ops ...store.Op) {
	if err := m.store.Apply(m.ctx, m.id, nil, ops...); err != nil {
		t.Fatal(err)
	}
	if changes {
		m.version++
	}
}

func (m *model) newMessage(t *rapid.T) (modelMessage, *store.Message) {
	m.made++
	mm := modelMessage{id: fmt.Sprint("m", m.made), silent: rapid.Bool().Draw(t, "silent")}
	msg := message(mm.id)
	msg.ID, msg.Silent = mm.id, mm.silent
	return mm, msg
}

// append appends up to three messages in one commit. One of them may be a repeat.
func (m *model) append(t *rapid.T) {
	var ops []store.Op
	added := 0
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		if len(m.messages) > 0 && rapid.IntRange(0, 4).Draw(t, "repeat") == 0 {
			again := message("repeat")
			again.ID = rapid.SampledFrom(m.messages).Draw(t, "which").id
			ops = append(ops, &store.AppendMessage{Message: again})
			continue
		}
		mm, msg := m.newMessage(t)
		m.messages = append(m.messages, mm)
		ops = append(ops, &store.AppendMessage{Message: msg})
		added++
	}
	m.commit(t, added > 0, ops...)
}

func (m *model) delete(t *rapid.T) {
	if len(m.messages) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.messages)-1).Draw(t, "i")
	op := &store.DeleteMessage{ID: m.messages[i].id}
	m.messages = slices.Delete(m.messages, i, i+1)
	m.commit(t, true, op)
	if !op.Deleted {
		t.Fatal("it was not there")
	}
}

func (m *model) enqueue(t *rapid.T) {
	mm, msg := m.newMessage(t)
	payload, err := json.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	op := &store.Enqueue{Item: store.InboxItem{Key: someKey.Draw(t, "key"), Kind: store.InboxMessage, Payload: payload}}
	key := op.Item.Key
	used := m.keys[key]
	m.commit(t, !used, op)
	if op.Existed != used {
		t.Fatalf("key %q: existed %v, want %v", key, op.Existed, used)
	}
	if !used {
		mm.seq = op.Seq
		m.inbox = append(m.inbox, mm)
		m.keys[key] = key != ""
	}
}

// dequeue takes some inbox items into the conversation, as a run does.
func (m *model) dequeue(t *rapid.T) {
	n := rapid.IntRange(0, len(m.inbox)).Draw(t, "n")
	var ops []store.Op
	take := &store.Dequeue{}
	for _, mm := range m.inbox[:n] {
		msg := message(mm.id)
		msg.ID, msg.Silent = mm.id, mm.silent
		ops = append(ops, &store.AppendMessage{Message: msg})
		take.Seqs = append(take.Seqs, mm.seq)
	}
	m.messages = append(m.messages, m.inbox[:n]...)
	m.inbox = slices.Clone(m.inbox[n:])
	m.commit(t, n > 0, append(ops, take)...)
}

func (m *model) value(t *rapid.T) {
	key := someKey.Draw(t, "key")
	op := &store.PutValue{Key: key}
	_, had := m.values[key]
	if remove := rapid.Bool().Draw(t, "remove"); remove {
		delete(m.values, key)
		m.commit(t, had, op)
		return
	}
	v := fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "v"))
	op.Value = json.RawMessage(v)
	m.values[key] = v
	m.commit(t, true, op)
}

// fail tries a transaction whose last op is refused, so that nothing of it may stay.
func (m *model) fail(t *rapid.T) {
	_, msg := m.newMessage(t)
	err := m.store.Apply(m.ctx, m.id, nil, &store.AppendMessage{Message: msg}, &store.PutValue{Key: "a", Value: json.RawMessage(`"lost"`)},
		&store.RemoveFile{Path: "/none"})
	if !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
}

// check compares the store with the model, and reads a random page.
func (m *model) check(t *rapid.T) {
	info, err := m.store.Thread(m.ctx, m.id)
	if err != nil {
		t.Fatal(err)
	}
	if info.Version != m.version || info.Messages != int64(len(m.messages)) || info.Queued != int64(len(m.inbox)) {
		t.Fatalf("thread has version %d, %d messages, %d queued; want %d, %d, %d", info.Version, info.Messages, info.Queued,
			m.version, len(m.messages), len(m.inbox))
	}
	q := store.MessageQuery{
		Limit:         rapid.IntRange(1, 5).Draw(t, "limit"),
		Offset:        rapid.IntRange(0, 6).Draw(t, "offset"),
		Order:         rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(t, "order"),
		IncludeSilent: rapid.Bool().Draw(t, "includeSilent"),
		IncludeQueued: rapid.Bool().Draw(t, "includeQueued"),
	}
	page, err := m.store.Messages(m.ctx, m.id, q)
	if err != nil {
		t.Fatal(err)
	}
	want, total, more := m.page(q)
	got := []string{}
	for _, msg := range page.Messages {
		got = append(got, msg.ID)
	}
	if !slices.Equal(got, want) || page.Total != int64(total) || page.HasMore != more {
		t.Fatalf("%+v gives %v of %d, more %v; want %v of %d, more %v", q, got, page.Total, page.HasMore, want, total, more)
	}
	for _, key := range []string{"", "a", "b", "c"} {
		v, err := m.store.Value(m.ctx, m.id, key)
		if want, ok := m.values[key]; ok != (err == nil) || (ok && string(v) != want) || (!ok && !errors.Is(err, store.ErrNotFound)) {
			t.Fatalf("value %q is %s, %v; want %q, %v", key, v, err, want, ok)
		}
	}
}

// page computes a page in the simplest way.
func (m *model) page(q store.MessageQuery) (ids []string, total int, more bool) {
	all := []string{}
	for _, mm := range append(slices.Clone(m.messages), m.waiting(q)...) {
		if !mm.silent || q.IncludeSilent {
			all = append(all, mm.id)
		}
	}
	total = len(all)
	if q.Order != "asc" {
		slices.Reverse(all)
	}
	all = all[min(q.Offset, len(all)):]
	more = len(all) > q.Limit
	all = all[:min(q.Limit, len(all))]
	if q.Order == "" {
		slices.Reverse(all)
	}
	return all, total, more
}

func (m *model) waiting(q store.MessageQuery) []modelMessage {
	if q.IncludeQueued {
		return m.inbox
	}
	return nil
}
