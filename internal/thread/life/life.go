// Package life says what a thread takes in each state of its life. The rule is one table. Every door to a thread
// consults it: the runtime API, code in a sandbox, endpoints, and the calls of parents and children.
package life

import (
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// State is where a thread is in its life.
type State int

// The states of a thread's life.
const (
	// Active threads work.
	Active State = iota
	// Archived threads work too; lists leave them out.
	Archived
	// Destroyed threads have lost their conversation and begin a new one.
	Destroyed
	// Terminated threads have ended for good. Their data can be read and removed.
	Terminated
	// Retained threads have lost their Thread object. Their data can be read until a Thread adopts it.
	Retained

	states
)

// String returns the state's name.
func (s State) String() string {
	return [states]string{"active", "archived", "destroyed", "terminated", "retained"}[s]
}

// Of returns the state that a thread is in. The strictest one counts where several hold.
func Of(t *store.Thread) State {
	switch {
	case t.RetainedAt != 0:
		return Retained
	case t.TerminatedAt != 0, t.Deleting:
		return Terminated
	case t.DestroyedAt != 0:
		return Destroyed
	case t.ArchivedAt != 0:
		return Archived
	}
	return Active
}

// Action is a kind of call on a thread.
type Action string

// The actions.
const (
	// Read returns what is stored, or follows what happens.
	Read Action = "read"
	// Say adds a message, changes one, or lets waiting messages be taken.
	Say Action = "say"
	// Work runs something: code, a tool, an effect, a handler, a decision that a run waits for.
	Work Action = "work"
	// Keep stores a file, a value, an entry of state or a variable.
	Keep Action = "keep"
	// Notify sends something to others: an event, a notification, a status.
	Notify Action = "notify"
	// Relate links the thread to another.
	Relate Action = "relate"
	// Branch begins another thread with what this one has.
	Branch Action = "branch"
	// Arrange changes how people find the thread: its title, its tags, whether it is archived.
	Arrange Action = "arrange"
	// Remove takes away something that is stored.
	Remove Action = "remove"
	// End ends a run, the conversation or the thread.
	End Action = "end"
	// Acquire takes or extends the lease of an exclusive writer.
	Acquire Action = "acquire"
	// Release releases that lease.
	Release Action = "release"
)

// table has a row for each action and a column for each state.
var table = map[Action][states]bool{
	//        active archived destroyed terminated retained
	Read:    {true, true, true, true, true},
	Say:     {true, true, true, false, false},
	Work:    {true, true, true, false, false},
	Keep:    {true, true, true, false, false},
	Notify:  {true, true, true, false, false},
	Relate:  {true, true, true, false, false},
	Branch:  {true, true, true, true, false},
	Arrange: {true, true, true, true, false},
	Remove:  {true, true, true, true, false},
	End:     {true, true, true, true, false},
	Acquire: {true, true, true, true, false},
	Release: {true, true, true, true, true},
}

// Allows reports whether a thread in a state takes an action.
func Allows(s State, a Action) bool { return table[a][s] }

// Check returns nil when the thread takes the action. Otherwise it returns an error that wraps store.ErrTerminated
// or store.ErrRetained and says what the thread still does.
func Check(t *store.Thread, a Action) error {
	s := Of(t)
	row, known := table[a]
	switch {
	case !known:
		return fmt.Errorf("the table of lifecycle states has no row for the action %q", a)
	case row[s]:
		return nil
	case s == Retained:
		return fmt.Errorf("%w: a Thread whose spec.threadID is its id adopts it", store.ErrRetained)
	}
	return fmt.Errorf("%w: it can still be read; start a new thread to go on", store.ErrTerminated)
}
