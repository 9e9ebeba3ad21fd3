package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// askAll adds the calls that wait for approval to those that the person is asked about.
func (c *chat) askAll(ctx context.Context) {
	list, err := waitingCalls(ctx, c.t, runtimev1.MaxPageSize)
	if err != nil {
		c.report(err)
		return
	}
	for _, a := range list.Approvals {
		asked := slices.ContainsFunc(c.asking, func(b runtimev1.Approval) bool { return b.ToolCallID == a.ToolCallID })
		if a.Decision != nil || asked {
			continue
		}
		c.asking = append(c.asking, a)
		if len(c.asking) == 1 {
			c.question()
		}
	}
}

func (c *chat) question() {
	a := c.asking[0]
	fmt.Fprintf(c.ErrOut, "Approve %s(%s)? Answer y, or n with a reason for the model.\n", safe(a.Name), shorten(safe(plainJSON(a.Arguments))))
}

// decided drops a question that has been answered.
func (c *chat) decided(e *runtimev1.Event) {
	var call struct{ ToolCallID string }
	if len(c.asking) == 0 || json.Unmarshal(e.Data, &call) != nil {
		return
	}
	first := c.asking[0].ToolCallID
	kept := c.asking[:0]
	for _, a := range c.asking {
		if a.ToolCallID != call.ToolCallID {
			kept = append(kept, a)
		}
	}
	c.asking = kept
	if len(kept) > 0 && kept[0].ToolCallID != first {
		c.question()
	}
}

// decideOn takes a line as the answer to the question. A script whose line is no answer ends, since its message is not sent.
func (c *chat) decideOn(ctx context.Context, line string) (quit bool, err error) {
	word, reason, _ := strings.Cut(line, " ")
	id := c.asking[0].ToolCallID
	switch strings.ToLower(word) {
	case "y", "yes":
		_, err = c.t.Approve(ctx, id, strings.TrimSpace(reason), nil)
	case "n", "no":
		_, err = c.t.Refuse(ctx, id, strings.TrimSpace(reason))
	default:
		if !c.in.terminal {
			return true, fmt.Errorf("a call of %s waits for approval, and %q is no answer to that: send y, or n with a reason, before the message", safe(c.asking[0].Name), shorten(safe(line)))
		}
		c.question()
		return false, nil
	}
	if err != nil {
		c.report(err)
		return false, nil
	}
	c.asking = c.asking[1:] // the event of the decision may come later
	if len(c.asking) > 0 {
		c.question()
	}
	return false, nil
}
