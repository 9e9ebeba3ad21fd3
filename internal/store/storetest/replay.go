package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// replayed is the expected state of a thread according to its log.
type replayed struct {
	id         string
	messages   []modelMessage
	content    map[string]string // of messages
	metadata   map[string]any    // "by" of messages
	inbox      []modelMessage
	keys       map[string]bool
	values     map[string]string
	files      map[string]int64 // size; -1 for a folder
	runs       map[string]store.Run
	started    []string // runs in the order of their start
	state      map[string][]string
	title      string
	mode       string
	archived   bool
	terminated bool
	version    int64
	epoch      int64
}

// checkScript returns an error unless the threads hold exactly what their logs say, and the logs hold everything that
// was acknowledged: nothing lost, torn or repeated, and nothing by a holder that had lost the thread.
func checkScript(ctx context.Context, s store.Store, threads []string, acknowledged []string) error {
	logs := map[string][]store.Event{}
	steps := map[string]*step{}
	for _, id := range threads {
		events, err := allEvents(ctx, s, id)
		if err != nil {
			return err
		}
		logs[id] = events
		for _, e := range events {
			st, err := stepOf(e)
			if err != nil {
				return err
			}
			if st == nil {
				continue
			}
			if steps[st.Tag] != nil || st.Thread != id {
				return fmt.Errorf("step %s is in the logs of %s and of %s", st.Tag, id, st.Thread)
			}
			steps[st.Tag] = st
		}
	}
	for _, tag := range acknowledged {
		if steps[tag] == nil {
			return fmt.Errorf("the acknowledged step %s is lost", tag)
		}
	}
	for _, id := range threads {
		want, err := replay(id, logs[id], steps)
		if err != nil {
			return fmt.Errorf("thread %s: %w", id, err)
		}
		if err := want.compare(ctx, s); err != nil {
			return fmt.Errorf("thread %s: %w", id, err)
		}
	}
	return nil
}

func allEvents(ctx context.Context, s store.Store, id string) (all []store.Event, err error) {
	for after := int64(0); ; {
		events, err := s.Events(ctx, id, after, 0)
		if err != nil || len(events) == 0 {
			return all, err
		}
		all = append(all, events...)
		after = events[len(events)-1].Seq
	}
}

func stepOf(e store.Event) (*step, error) {
	if e.Type != scriptEvent {
		return nil, nil
	}
	var s step
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return nil, fmt.Errorf("entry %d of the log: %w", e.Seq, err)
	}
	return &s, nil
}

// replay processes the log: the thread's own steps, and what the steps of other threads put into the inbox.
func replay(id string, log []store.Event, steps map[string]*step) (*replayed, error) {
	r := &replayed{
		id: id, content: map[string]string{}, metadata: map[string]any{}, keys: map[string]bool{}, values: map[string]string{},
		files: map[string]int64{}, runs: map[string]store.Run{}, state: map[string][]string{},
	}
	queued := map[string]int64{} // message → sequence number of its item
	for _, e := range log {
		if e.Type == store.EventMessageQueued {
			queued[e.MessageID] = e.Seq
			from := steps[tagOf(e.MessageID)]
			if from == nil {
				return nil, fmt.Errorf("%s waits, but its step is in no log", e.MessageID)
			}
			if from.Thread != id {
				r.inbox = append(r.inbox, modelMessage{id: e.MessageID, seq: e.Seq})
				r.version++
			}
			continue
		}
		st, err := stepOf(e)
		if err != nil {
			return nil, err
		}
		if st == nil {
			continue
		}
		if st.Epoch != 0 && st.Epoch < r.epoch {
			return nil, fmt.Errorf("step %s wrote at epoch %d, after one of %d", st.Tag, st.Epoch, r.epoch)
		}
		r.epoch = max(r.epoch, st.Epoch)
		r.version++
		for _, a := range st.Do {
			if err := r.apply(a, queued); err != nil {
				return nil, fmt.Errorf("step %s, %s of %s: %w", st.Tag, a.Kind, a.ID, err)
			}
		}
	}
	return r, nil
}

// tagOf returns the step that queued a message.
func tagOf(messageID string) string {
	tag := strings.TrimPrefix(messageID, "q-")
	return tag[:strings.LastIndex(tag, "-")]
}

func (r *replayed) apply(a action, queued map[string]int64) error {
	at := slices.IndexFunc(r.messages, func(m modelMessage) bool { return m.id == a.ID })
	switch a.Kind {
	case "append":
		if at < 0 {
			r.messages = append(r.messages, modelMessage{id: a.ID, silent: a.Silent})
			r.content[a.ID], r.metadata[a.ID] = a.content(), nil
		}
	case "update":
		if at < 0 {
			return errors.New("it changed what is not there")
		}
		r.messages[at].silent, r.content[a.ID], r.metadata[a.ID] = a.Silent, a.Text, a.Text
	case "delete":
		if at >= 0 {
			r.messages = slices.Delete(r.messages, at, at+1)
		}
	case "enqueue":
		return r.enqueue(a, queued)
	case "dequeue":
		r.inbox = slices.DeleteFunc(r.inbox, func(m modelMessage) bool { return slices.Contains(a.Seqs, m.seq) })
	case "run":
		if _, known := r.runs[a.ID]; !known {
			r.started = append(r.started, a.ID)
		}
		r.runs[a.ID] = store.Run{Status: store.RunStatus(a.Text), Steps: a.Size}
	case "value":
		if r.values[a.ID] = a.Text; a.Text == "" {
			delete(r.values, a.ID)
		}
	case "file":
		return r.put(a.ID, int64(a.Size))
	case "remove":
		return r.remove(a.ID)
	case "title":
		r.title = a.Text
	case "archive":
		r.archived = a.Silent
	case "mode":
		r.mode = a.Text
	case "state":
		return r.merge(a)
	case "truncate":
		return r.truncate(a.Size)
	case "destroy":
		r.destroy()
	case "terminate":
		if !r.terminated {
			r.terminated, r.inbox = true, nil
		}
	}
	return nil
}

func (r *replayed) enqueue(a action, queued map[string]int64) error {
	if a.To != "" {
		return nil // in the other thread's log
	}
	if a.Text != "" && r.keys[a.Text] {
		return nil // a repeat, which a terminated thread takes too
	}
	if r.terminated {
		return errors.New("the thread was terminated")
	}
	r.keys[a.Text] = true
	seq, ok := queued[a.ID]
	if !ok {
		return errors.New("it was not logged")
	}
	r.inbox = append(r.inbox, modelMessage{id: a.ID, seq: seq})
	return nil
}

func (r *replayed) put(p string, size int64) error {
	if r.files[p] == -1 {
		return errors.New("a folder is there")
	}
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if r.files[dir] > 0 {
			return errors.New("a file is above it")
		}
		r.files[dir] = -1
	}
	r.files[p] = size
	return nil
}

func (r *replayed) remove(p string) error {
	if _, ok := r.files[p]; !ok {
		return errors.New("nothing is there")
	}
	for other := range r.files {
		if strings.HasPrefix(other, p+"/") {
			return errors.New("the folder is not empty")
		}
	}
	delete(r.files, p)
	return nil
}

// notArray stands for a value of the state that is not an array.
const notArray = "text"

func (r *replayed) merge(a action) error {
	switch store.StateVerb(a.To) {
	case store.StateClear:
		clear(r.state)
	case store.StateDelete:
		delete(r.state, a.ID)
	case store.StateSet:
		if r.state[a.ID] = []string{}; a.Text != `[]` {
			r.state[a.ID] = []string{notArray}
		}
	case store.StatePush:
		if slices.Equal(r.state[a.ID], []string{notArray}) {
			return errors.New("it is not an array")
		}
		r.state[a.ID] = append(slices.Clone(r.state[a.ID]), strings.Trim(a.Text, `"`))
		if n := len(r.state[a.ID]); a.Size > 0 && n > a.Size {
			r.state[a.ID] = r.state[a.ID][n-a.Size:]
		}
	}
	return nil
}

func (r *replayed) truncate(last int) error {
	for _, id := range r.started {
		if !r.runs[id].Status.Ended() {
			return fmt.Errorf("run %s is under way", id)
		}
	}
	if last >= len(r.messages) {
		return errors.New("there is no such message")
	}
	r.messages = r.messages[:last+1]
	return nil
}

func (r *replayed) destroy() {
	r.messages, r.inbox = nil, nil
	clear(r.state)
	if len(r.started) > 0 {
		newest := r.started[len(r.started)-1]
		if run := r.runs[newest]; !run.Status.Ended() {
			run.Status = store.RunStopped
			r.runs[newest] = run
		}
	}
}
