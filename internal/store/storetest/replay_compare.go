package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// compare returns the first difference between the expected and the actual state.
func (r *replayed) compare(ctx context.Context, s store.Store) error {
	info, err := s.Thread(ctx, r.id)
	if err != nil {
		return err
	}
	const form = "version %d, %d messages, %d queued, title %q, mode %q, archived %v, terminated %v"
	is := fmt.Sprintf(form, info.Version, info.Messages, info.Queued, info.Title, info.Fields.AgentMode, info.ArchivedAt != 0, info.TerminatedAt != 0)
	must := fmt.Sprintf(form, r.version, len(r.messages), len(r.inbox), r.title, r.mode, r.archived, r.terminated)
	if is != must {
		return fmt.Errorf("it has %s; its log says %s", is, must)
	}
	if err := r.compareMessages(ctx, s); err != nil {
		return err
	}
	items, err := s.Inbox(ctx, r.id)
	if err != nil {
		return err
	}
	waiting, due := []int64{}, []int64{}
	for _, item := range items {
		waiting = append(waiting, item.Seq)
	}
	for _, m := range r.inbox {
		due = append(due, m.seq)
	}
	if !slices.Equal(waiting, due) {
		return fmt.Errorf("the inbox has %v, its log says %v", waiting, due)
	}
	for key := range 4 {
		name := fmt.Sprint("v", key)
		v, err := s.Value(ctx, r.id, name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if string(v) != r.values[name] {
			return fmt.Errorf("value %s is %s, its log says %s", name, v, r.values[name])
		}
	}
	return errors.Join(r.compareFiles(ctx, s), r.compareRuns(ctx, s), r.compareState(ctx, s))
}

func (r *replayed) compareMessages(ctx context.Context, s store.Store) error {
	page, err := s.Messages(ctx, r.id, store.MessageQuery{Order: "asc", Limit: 1_000_000, IncludeSilent: true})
	if err != nil {
		return err
	}
	if len(page.Messages) != len(r.messages) {
		return fmt.Errorf("%d messages, its log says %d", len(page.Messages), len(r.messages))
	}
	spoken := 0
	for i, m := range page.Messages {
		want := r.messages[i]
		if m.ID != want.id || m.Silent != want.silent || *m.Content != r.content[m.ID] || !reflect.DeepEqual(m.Metadata["by"], r.metadata[m.ID]) {
			return fmt.Errorf("message %d is %s (silent %v), its log says %s (silent %v), or it was changed", i, m.ID, m.Silent, want.id, want.silent)
		}
		if !m.Silent {
			spoken++
		}
	}
	heard, err := s.Messages(ctx, r.id, store.MessageQuery{Limit: 1})
	if err == nil && heard.Total != int64(spoken) {
		err = fmt.Errorf("%d messages are counted that are not silent, there are %d", heard.Total, spoken)
	}
	return err
}

func (r *replayed) compareFiles(ctx context.Context, s store.Store) error {
	files, err := s.Files(ctx, r.id, "/", true)
	if err != nil {
		return err
	}
	have := map[string]int64{}
	for _, f := range files {
		if have[f.Path] = f.Size; f.Dir {
			have[f.Path] = -1
		}
	}
	if !maps.Equal(have, r.files) {
		return fmt.Errorf("it has the files %v, its log says %v", have, r.files)
	}
	return nil
}

func (r *replayed) compareRuns(ctx context.Context, s store.Store) error {
	for id, want := range r.runs {
		run, err := s.Run(ctx, r.id, id)
		if err != nil {
			return err
		}
		if run.Status != want.Status || run.Steps != want.Steps {
			return fmt.Errorf("run %s is %s after %d steps, its log says %s after %d", id, run.Status, run.Steps, want.Status, want.Steps)
		}
	}
	return nil
}

func (r *replayed) compareState(ctx context.Context, s store.Store) error {
	page, err := s.State(ctx, r.id, store.StateQuery{})
	if err != nil {
		return err
	}
	have := map[string][]string{}
	for _, e := range page.Entries {
		list := []string{}
		if json.Unmarshal(e.Value, &list) != nil {
			list = []string{notArray}
		}
		have[e.Key] = list
	}
	if !reflect.DeepEqual(have, r.state) {
		return fmt.Errorf("its state is %v, its log says %v", have, r.state)
	}
	return nil
}
