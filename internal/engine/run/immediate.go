package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
)

// spawnImmediate adds the calls that start the agent's immediate subagents, before the first model step of the thread
// (SUB-07). A fork that has inherited such calls starts none. They are in the log like calls of the model, so that a crash neither loses nor repeats them, and a subagent that
// blocks makes the run wait. It reports whether there are any.
func (r *run) spawnImmediate(ctx context.Context) (spawned bool, err error) {
	if r.spawned || r.record.Steps > 0 || r.Frame != nil || !slices.ContainsFunc(r.Agent.Spec.Subagents, isImmediate) {
		return false, nil
	}
	r.spawned = true
	if begun, err := r.hasImmediate(ctx); begun || err != nil {
		return false, err
	}
	runs, err := r.service.opts.Store.Runs(ctx, r.Thread.ID, 2, 0)
	if err != nil || len(runs) > 1 {
		return false, err
	}
	x, err := r.code.Execution(ctx)
	if err != nil {
		return false, err
	}
	kinds, err := x.Host.Children.Kinds(ctx)
	if err != nil {
		return false, err
	}
	id := immediateID(r.Thread.ID)
	m := &store.Message{
		ID: id, RunID: r.record.ID, CreatedAt: r.service.now(), Role: store.RoleAssistant, Status: store.MessageCompleted,
		Metadata: map[string]any{transcript.MetadataQueuedTool: true, codeexec.MetadataImmediate: true}, Side: r.Mark(),
	}
	tx := r.newTransaction("spawn")
	for _, kind := range kinds {
		if !isImmediate(kind) {
			continue
		}
		arguments := map[string]any{"agent": kind.Name, "message": kind.Message}
		if kind.Arguments != nil {
			arguments["arguments"] = json.RawMessage(kind.Arguments.Raw)
		}
		encoded, err := json.Marshal(arguments)
		if err != nil {
			return false, fmt.Errorf("encode the arguments of the subagent %s: %w", kind.Name, err)
		}
		call := store.ToolCall{ID: id + "-" + kind.Name, Name: codeexec.SubagentCreate, Arguments: string(encoded)}
		m.ToolCalls = append(m.ToolCalls, call)
		tx.add(runlog.Event(r.record.ID, store.EventToolStarted, m.ID, toolEvent{Name: call.Name, ToolCallID: call.ID}))
	}
	if len(m.ToolCalls) == 0 {
		return false, nil
	}
	tx.ops = append([]store.Op{&store.AppendMessage{Message: m}}, tx.ops...)
	return true, tx.commit(ctx)
}

// hasImmediate reports whether the conversation has calls that started immediate subagents: those of the thread, or of one that it was
// forked from. A run that is taken up again in a fork answers to its input, and not to another result of them.
func (r *run) hasImmediate(ctx context.Context) (bool, error) {
	for i := range r.conv.Messages {
		if r.conv.Messages[i].Metadata[codeexec.MetadataImmediate] != nil {
			return true, nil
		}
	}
	if r.conv.IsWhole() {
		return false, nil
	}
	for origin := r.Thread.OriginID; origin != ""; {
		_, err := r.service.opts.Store.Message(ctx, r.Thread.ID, immediateID(origin))
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return err == nil, err
		}
		t, err := r.service.opts.Store.Thread(ctx, origin)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil // it was purged, so what it was forked from is unknown: better none than the same ones again
		}
		if err != nil {
			return false, err
		}
		origin = t.OriginID
	}
	return false, nil
}

// immediateID returns the id of the message with the calls that start the immediate subagents of a thread.
func immediateID(threadID string) string { return "immediate-" + threadID }

func isImmediate(kind skeinv1.AgentSubagent) bool { return kind.Immediate }
