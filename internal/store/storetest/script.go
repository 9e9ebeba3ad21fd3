package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// A script is random transactions over a few threads. Each step is plain data and is written to the thread's log, so
// the log alone says what the thread must hold: see replay.go. So the same script serves concurrent writers, holders
// that take the thread from each other, and processes that are killed.

const scriptEvent = "event:step"

// step is one transaction.
type step struct {
	Tag    string   `json:"tag"`    // unique
	Thread string   `json:"thread"` // the thread that it is applied to
	Epoch  int64    `json:"epoch,omitempty"`
	Do     []action `json:"do"`
}

// action is one op of a step. The kind decides which fields apply.
type action struct {
	Kind   string  `json:"kind"`
	ID     string  `json:"id,omitempty"` // of a message, run, key, path or other thread
	Text   string  `json:"text,omitempty"`
	To     string  `json:"to,omitempty"` // another thread, or the kind of state change
	Silent bool    `json:"silent,omitempty"`
	Size   int     `json:"size,omitempty"`
	Seqs   []int64 `json:"seqs,omitempty"`
}

// ops returns the ops of a step, its log entry last.
func (s *step) ops() []store.Op {
	var ops []store.Op
	for _, a := range s.Do {
		ops = append(ops, a.op())
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers cannot fail
	}
	return append(ops, &store.AppendEvent{Event: store.Event{Type: scriptEvent, Data: data}})
}

func (a action) message() *store.Message {
	m := message(a.content())
	m.ID, m.Silent = a.ID, a.Silent
	return m
}

func (a action) content() string { return a.ID + strings.Repeat("x", a.Size) }

func (a action) op() store.Op {
	switch a.Kind {
	case "append":
		return &store.AppendMessage{Message: a.message()}
	case "update":
		return &store.UpdateMessage{ID: a.ID, Content: &a.Text, Silent: &a.Silent, Metadata: map[string]any{"by": a.Text}}
	case "delete":
		return &store.DeleteMessage{ID: a.ID}
	case "enqueue":
		payload, err := json.Marshal(a.message())
		if err != nil {
			panic(err) // strings cannot fail
		}
		return &store.Enqueue{To: a.To, Item: store.InboxItem{Key: a.Text, Kind: store.InboxMessage, Payload: payload}}
	case "dequeue":
		return &store.Dequeue{Seqs: a.Seqs}
	case "run":
		return &store.PutRun{Run: store.Run{ID: a.ID, Agent: "a", Status: store.RunStatus(a.Text), Steps: a.Size}}
	case "value":
		op := &store.PutValue{Key: a.ID}
		if a.Text != "" {
			op.Value = json.RawMessage(a.Text)
		}
		return op
	case "file":
		return &store.PutFile{
			File:   store.File{Path: a.ID, MimeType: "text/plain", Digest: fmt.Sprintf("%064x", a.Size), Size: int64(a.Size)},
			Object: fmt.Sprint("objects/", a.Size), Uploaded: justNow,
		}
	case "remove":
		return &store.RemoveFile{Path: a.ID}
	case "title":
		return &store.UpdateThread{Title: &a.Text}
	case "archive":
		return &store.UpdateThread{Archived: &a.Silent}
	case "mode":
		return &store.UpdateThread{EditFields: func(f *store.Fields) error {
			f.AgentMode = a.Text
			return nil
		}}
	case "state":
		c := store.StateChange{Verb: store.StateVerb(a.To), Key: a.ID, Max: a.Size}
		if a.Text != "" {
			c.Value = json.RawMessage(a.Text)
		}
		return &store.MergeState{Changes: []store.StateChange{c}, Strict: true}
	case "truncate":
		return &store.Truncate{Index: int64(a.Size)}
	case "destroy":
		return &store.Destroy{Reason: store.DestroyedExplicit}
	case "terminate":
		return &store.Terminate{Reason: "Asked"}
	}
	panic("no such kind: " + a.Kind)
}

// chooser returns a number from 0 to n-1.
type chooser func(n int) int

// scriptWriter generates the steps of one writer.
type scriptWriter struct {
	name    string
	threads []string
	choose  chooser
	steps   int
	appends int
}

// next generates a step on one of the threads. dequeue chooses from what waits in the thread's inbox.
func (w *scriptWriter) next(waiting func(thread string) []store.InboxItem) *step {
	w.steps++
	s := &step{Tag: fmt.Sprintf("%s.%d", w.name, w.steps), Thread: w.threads[w.choose(len(w.threads))]}
	foreign := false
	for i := range 1 + w.choose(3) {
		a := w.action(s, i, waiting)
		if a.Kind == "enqueue" && a.To != "" {
			if foreign {
				continue // one at most, so that it changes the other thread once
			}
			foreign = true
		}
		s.Do = append(s.Do, a)
	}
	return s
}

// Paths of the script's files: some of them below one folder.
var scriptPaths = []string{"/a", "/b", "/d/x", "/d/y", "/d"}

func (w *scriptWriter) action(s *step, i int, waiting func(string) []store.InboxItem) action {
	switch k := w.choose(120); {
	case k < 30:
		w.appends++
		return action{Kind: "append", ID: w.message(w.appends), Silent: w.choose(4) == 0, Size: w.choose(3) * w.choose(1000)}
	case k < 40:
		return action{Kind: "update", ID: w.message(1 + w.choose(w.appends+1)), Text: fmt.Sprintf("%s/%d", s.Tag, i), Silent: w.choose(3) == 0}
	case k < 46:
		return action{Kind: "delete", ID: w.message(1 + w.choose(w.appends+1))}
	case k < 58:
		a := action{Kind: "enqueue", ID: fmt.Sprintf("q-%s-%d", s.Tag, i)}
		switch w.choose(3) {
		case 0:
			a.Text = fmt.Sprint("key-", w.choose(6))
		case 1:
			if to := w.threads[w.choose(len(w.threads))]; to != s.Thread {
				a.To = to
			}
		}
		return a
	case k < 66:
		a := action{Kind: "dequeue"}
		for _, item := range waiting(s.Thread) {
			if w.choose(2) == 0 {
				a.Seqs = append(a.Seqs, item.Seq)
			}
		}
		return a
	case k < 74:
		statuses := []store.RunStatus{store.RunRunning, store.RunWaiting, store.RunSucceeded, store.RunFailed}
		return action{Kind: "run", ID: fmt.Sprintf("sess-%s-%d", w.name, w.choose(3)), Text: string(statuses[w.choose(len(statuses))]), Size: w.choose(50)}
	case k < 84:
		a := action{Kind: "value", ID: fmt.Sprint("v", w.choose(4))}
		if w.choose(4) > 0 {
			a.Text = fmt.Sprintf("%q", s.Tag)
		}
		return a
	case k < 91:
		return action{Kind: "file", ID: scriptPaths[w.choose(len(scriptPaths))], Size: 1 + w.choose(1000)}
	case k < 95:
		return action{Kind: "remove", ID: scriptPaths[w.choose(len(scriptPaths))]}
	case k < 99:
		return action{Kind: "title", Text: s.Tag}
	case k < 109:
		return w.stateChange(s)
	case k < 112:
		return action{Kind: "archive", Silent: w.choose(2) == 0}
	case k < 115:
		return action{Kind: "mode", Text: s.Tag}
	case k < 118:
		return action{Kind: "truncate", Size: w.choose(w.appends + 1)}
	case k < 119:
		return action{Kind: "destroy"}
	}
	if w.choose(20) > 0 {
		return action{Kind: "archive"}
	}
	return action{Kind: "terminate"}
}

func (w *scriptWriter) stateChange(s *step) action {
	a := action{Kind: "state", ID: fmt.Sprint("s", w.choose(2))}
	switch w.choose(20) {
	case 0:
		return action{Kind: "state", To: string(store.StateClear)}
	case 1:
		a.To = string(store.StateDelete)
	case 2:
		a.To, a.Text = string(store.StateSet), []string{`[]`, `"text"`}[w.choose(2)]
	default:
		a.To, a.Text, a.Size = string(store.StatePush), fmt.Sprintf("%q", s.Tag), w.choose(3)
	}
	return a
}

// message returns the id of the writer's n-th message. The message may be in any thread, or in none.
func (w *scriptWriter) message(n int) string { return fmt.Sprintf("m-%s-%d", w.name, n) }
