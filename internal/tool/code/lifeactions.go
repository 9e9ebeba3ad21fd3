package code

import (
	"fmt"

	"github.com/skein-dev/skein/internal/thread/life"
)

// actions maps each method of `state` to its action on the thread, as the runtime API does for its calls. Package life
// has the table that says which action a thread takes in which state of its life.
var actions = map[string]life.Action{
	"getMessages": life.Read, "getMessage": life.Read,
	"injectMessage": life.Say, "queueMessage": life.Say, "sendMessage": life.Say, "updateMessage": life.Say,
	"deleteMessage": life.Remove,

	"readFile": life.Read, "readFileStream": life.Read, "statFile": life.Read, "readdirFile": life.Read, "getFileStats": life.Read,
	"grepFiles": life.Read, "findFiles": life.Read, "getFileThumbnail": life.Read,
	"writeFile": life.Keep, "mkdirFile": life.Keep,
	"unlinkFile": life.Remove, "rmdirFile": life.Remove,

	"getValue": life.Read, "setValue": life.Keep,

	"scheduleEffect": life.Work, "getScheduledEffects": life.Read, "removeScheduledEffect": life.Remove,

	"getChildThread": life.Read, "getParentThread": life.Read, "notifyParent": life.Notify, "setStatus": life.Notify,

	"loadModel": life.Read, "loadPrompt": life.Read, "loadAgent": life.Read,
	"getModelNames": life.Read, "getPromptNames": life.Read, "getAgentNames": life.Read,

	"queueTool": life.Work, "invokeTool": life.Work, "runCode": life.Work,
	"emit": life.Notify, "terminate": life.End,

	"env": life.Read, "envType": life.Read, "setEnv": life.Keep,

	"state.now": life.Read, "state.skip": life.Read, "state.of": life.Read, // the other thread's method has an action of its own
	"readFileStream.open": life.Read, "readFileStream.next": life.Read, "readFileStream.close": life.Read,
	"execution.stop": life.End, "execution.forceTurn": life.Work,

	// These concern a service of the namespace and the state of this session, not the thread.
	"kv.get": life.Read, "kv.set": life.Read, "kv.delete": life.Read, "kv.keys": life.Read,
	"session.set": life.Read, "session.delete": life.Read, "session.clear": life.Read,

	"thread.get": life.Read, "thread.has": life.Read, "thread.entries": life.Read, "thread.status": life.Read,
	"thread.set": life.Keep, "thread.push": life.Keep,
	"thread.delete": life.Remove, "thread.clear": life.Remove,
}

// admit refuses a method whose action the thread does not take in the state of its life.
func (s *State) admit(method string) error {
	action, known := actions[method]
	if !known {
		return fmt.Errorf("state.%s has no action", method)
	}
	if err := life.Check(s.host.Thread, action); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}
