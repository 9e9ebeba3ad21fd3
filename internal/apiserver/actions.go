package apiserver

import (
	"fmt"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/thread/life"
)

// actions maps each way to call a thread to its effect on the thread. A key is the verb and the subresource, with a
// slash at the end for a path below the subresource. Package life has the table of the actions that a thread allows
// in each state.
var actions = map[string]life.Action{
	"get ":                 life.Read,
	"patch ":               life.Arrange,
	"get messages":         life.Read,
	"create messages":      life.Say,
	"get messages/":        life.Read,
	"patch messages/":      life.Say,
	"delete messages/":     life.Remove,
	"get queue":            life.Read,
	"create queue":         life.Say,
	"create continue":      life.Say,
	"create import":        life.Say,
	"create truncate":      life.Remove,
	"get files":            life.Read,
	"get files/":           life.Read,
	"update files/":        life.Keep,
	"delete files/":        life.Remove,
	"get kv":               life.Read,
	"get kv/":              life.Read,
	"update kv/":           life.Keep,
	"delete kv/":           life.Remove,
	"get state":            life.Read,
	"create state":         life.Keep,
	"get state/":           life.Read,
	"update state/":        life.Keep,
	"delete state/":        life.Remove,
	"get env":              life.Read,
	"get env/":             life.Read,
	"update env/":          life.Keep,
	"delete env/":          life.Remove,
	"get events":           life.Read,
	"watch events":         life.Read,
	"create events":        life.Tell,
	"create notify":        life.Tell,
	"get logs":             life.Read,
	"watch logs":           life.Read,
	"get status":           life.Read,
	"update status":        life.Tell,
	"get relationships":    life.Read,
	"create relationships": life.Relate,
	"get code":             life.Work, // a WebSocket that runs code
	"watch code":           life.Work,
	"create code":          life.Work,
	"create tools/":        life.Work,
	"create skills":        life.Work,
	"get effects":          life.Read,
	"create effects":       life.Work,
	"delete effects/":      life.Remove,
	"get approvals":        life.Read,
	"create approvals/":    life.Work,
	"get endpoints":        life.Read,
	"create endpoints":     life.Work,
	"update endpoints":     life.Work,
	"patch endpoints":      life.Work,
	"delete endpoints":     life.Work,
	"get endpoints/":       life.Read,
	"create endpoints/":    life.Work,
	"update endpoints/":    life.Work,
	"patch endpoints/":     life.Work,
	"delete endpoints/":    life.Work,
	"get runs":             life.Read,
	"get runs/":            life.Read,
	"create runs/":         life.End,
	"create stop":          life.End,
	"create terminate":     life.End,
	"create destroy":       life.End,
	"create lease":         life.Hold,
	"update lease":         life.Hold,
	"delete lease":         life.Release,
	"get children":         life.Read,
	"get children/":        life.Read,
	"get parent":           life.Read,
	"get definitions/":     life.Read,
	"get usage":            life.Read,
	"get usage/":           life.Read,
	"get memory":           life.Read,
	"get export":           life.Read,
	"get execution":        life.Read,
}

// actionKey returns the key of a call in actions.
func actionKey(verb string, sub runtimev1.Subresource, nested bool) string {
	if nested {
		return verb + " " + string(sub) + "/"
	}
	return verb + " " + string(sub)
}

// admit refuses a call that the thread does not allow in its present state. A write that a terminated thread would
// refuse also fails when the thread is terminated before the write commits.
func admit(c *call.Call) error {
	key := actionKey(c.Verb, c.Subresource, len(c.Path) > 0)
	action, known := actions[key]
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
