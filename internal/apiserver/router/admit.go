package router

import (
	"fmt"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/thread/life"
)

// ActionKey returns the key of a call in the table of actions: the verb and the subresource, with a slash at the end
// for a path below the subresource.
func ActionKey(verb string, sub runtimev1.Subresource, nested bool) string {
	if nested {
		return verb + " " + string(sub) + "/"
	}
	return verb + " " + string(sub)
}

// admit refuses a call that the thread does not allow in its present state. A write that a terminated thread would
// refuse also fails when the thread is terminated before the write commits.
func (rt *Router) admit(c *call.Call) error {
	key := ActionKey(c.Verb, c.Subresource, len(c.Path) > 0)
	action, known := rt.Actions[key]
	if !known {
		return fmt.Errorf("the runtime API has no action for %q", key)
	}
	if err := life.Check(c.Row, action); err != nil {
		return err
	}
	if !life.Allows(life.Terminated, action) {
		c.Thread = c.Thread.WhileActive()
	}
	return nil
}
