package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// listTool returns the tool that shows the registry of the thread's children (SUB-03).
func listTool(h *tool.Host) tool.Tool {
	return newTool("subagent_list", "Lists the subagents of this conversation and their status: those that have not finished first, then the newest. "+
		"A resumable one can be told more with subagent_message.",
		`{"type":"object","additionalProperties":false,"properties":{
			"status":{"type":"string","enum":["pending","running","completed","failed","terminated"],"description":"Only those of this status; running includes those with a status of their own"}}}`,
		func(ctx context.Context, _ tool.Call, a childListArgs) tool.Result {
			registry, err := h.Children.List(ctx)
			if err != nil {
				return failure(err)
			}
			return tool.SuccessJSON(listed(registry, a.Status))
		})
}

type childListArgs struct {
	Status string `json:"status"`
}

type childList struct {
	Subagents []childEntry `json:"subagents"`
	HasMore   bool         `json:"hasMore"`
}

type childEntry struct {
	Reference   string `json:"reference"`
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Status      string `json:"status"`
	Resumable   bool   `json:"resumable"`
	Blocking    bool   `json:"blocking"`
}

// listed returns the entries of a registry that have a status, or all for "", in the order and within the bounds of a
// Thread's status. The registry has the oldest first.
func listed(registry []skeinv1.ChildStatus, status string) childList {
	chosen := make([]*skeinv1.ChildStatus, 0, len(registry))
	for i := range slices.Backward(registry) {
		if status == "" || stateOf(registry[i].Status) == status {
			chosen = append(chosen, &registry[i])
		}
	}
	slices.SortStableFunc(chosen, func(a, b *skeinv1.ChildStatus) int { return cmp.Compare(finished(a.Status), finished(b.Status)) })
	list := childList{Subagents: []childEntry{}}
	left := skeinv1.MaxStatusChildrenBytes
	for _, c := range chosen {
		entry := childEntry{
			Reference: c.Reference, Name: c.Name, Title: cutText(c.Title), Description: cutText(c.Description),
			Status: c.Status, Resumable: c.Resumable, Blocking: c.Blocking,
		}
		size, _ := json.Marshal(entry) // strings and booleans only: cannot fail
		if left -= len(size); left < 0 || len(list.Subagents) == skeinv1.MaxStatusChildren {
			list.HasMore = true
			break
		}
		list.Subagents = append(list.Subagents, entry)
	}
	return list
}

// stateOf returns the state that a status stands for: a child that says something of itself is running.
func stateOf(status string) string {
	switch status {
	case tool.ChildPending, tool.ChildCompleted, tool.ChildFailed, tool.ChildTerminated:
		return status
	}
	return tool.ChildRunning
}

// finished returns 1 for the status of a child that has finished, and 0 for others.
func finished(status string) int {
	switch stateOf(status) {
	case tool.ChildPending, tool.ChildRunning:
		return 0
	}
	return 1
}

// cutText shortens a text to what an entry has of it.
func cutText(text string) string {
	if len(text) <= skeinv1.MaxStatusChildText {
		return text
	}
	return strings.ToValidUTF8(text[:skeinv1.MaxStatusChildText-len("…")], "") + "…"
}
