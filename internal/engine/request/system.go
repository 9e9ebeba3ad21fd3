package request

import (
	"context"
	"encoding/json"
	"errors"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// System returns the system prompt of the next step: the current text of the side's prompt with the thread's arguments
// and variables, and the task that the thread is bound to (RUN-01). It contains values of secrets, so it goes to the model
// and nowhere else.
func (k *Maker) System(ctx context.Context, runID string) (string, error) {
	p := &k.role.Side().Prompt
	if p.Text == nil { // the side is a handler
		return "", nil
	}
	if err := definition.CheckArguments(&p.Spec, k.role.Arguments()); err != nil {
		return "", failure.New(skeinv1.ReasonInvalidArguments, "the arguments of this thread do not fit what the prompt %s requires: %v. Create a new thread with others", p.Name, err)
	}
	text := p.Text
	if k.asked {
		// The prompt, or one that it includes, may have been edited since the run began.
		switch fresh, err := k.opts.Definitions.PromptText(ctx, k.role.Agent.Namespace, p.Name); {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			k.opts.Log.Error(err, "cannot read the current text of a prompt; the run continues with the text that it had", "run", runID, "prompt", p.Name)
		default:
			text = fresh
		}
	}
	k.asked = true
	return renderPrompt(ctx, k.opts.Threads, text, k.role.Thread, k.role.Reader(), k.role.Arguments())
}

// renderPrompt returns the text of a prompt with arguments and with the variables of a thread as reader sees them. It adds
// the thread's task.
func renderPrompt(ctx context.Context, threads *thread.Service, text *prompt.Template, t *store.Thread, reader thread.EnvReader, arguments json.RawMessage) (string, error) {
	values := prompt.Values{Arguments: arguments}
	if text.UsesEnv() {
		lookup, err := threads.EnvLookup(ctx, t, reader)
		var unreadable *thread.EnvUnreadableError
		if errors.As(err, &unreadable) {
			return "", failure.New(skeinv1.ReasonEnvUnreadable, "%s", unreadable.Error())
		}
		if err != nil {
			return "", err
		}
		values.Env = lookup
	}
	out, err := text.Render(values)
	if err != nil {
		return "", failure.New(skeinv1.ReasonContextTooLarge, "%s", err.Error())
	}
	if t.TaskID != "" {
		out += "\n\nThis conversation belongs to the task " + t.TaskID + "."
	}
	return out, nil
}
