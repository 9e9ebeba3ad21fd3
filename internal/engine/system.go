package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// system gives the system prompt of the next step: the text of the side's prompt, as it is now, with the thread's
// arguments and variables in it, and the task that the thread is bound to (RUN-01). Values of secrets are in it:
// it goes to the model and nowhere else.
func (r *run) system(ctx context.Context) (string, error) {
	p := &r.side().Prompt
	if p.Text == nil { // the side is a handler
		return "", nil
	}
	if err := CheckArguments(&p.Spec, r.arguments()); err != nil {
		return "", failf(skeinv1.ReasonInvalidArguments, "the arguments of this thread do not fit what the prompt %s requires: %v. Create a new thread with others", p.Name, err)
	}
	text := p.Text
	if r.asked {
		// While the run was under way, somebody may have edited it, or what it includes.
		switch fresh, err := r.engine.opts.Definitions.PromptText(ctx, r.agent.Namespace, p.Name); {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			r.log.Error(err, "the run goes on with the prompt as it was", "run", r.record.ID, "prompt", p.Name)
		default:
			text = fresh
		}
	}
	r.asked = true
	return renderPrompt(ctx, r.engine.threads, text, r.thread, r.reader(), r.arguments())
}

// renderPrompt puts arguments, and the variables of a thread as a reader sees them, into a prompt, and adds the thread's task.
func renderPrompt(ctx context.Context, threads *thread.Service, text *prompt.Template, t *store.Thread, reader thread.EnvReader, arguments json.RawMessage) (string, error) {
	values := prompt.Values{Arguments: arguments}
	if text.UsesEnv() {
		lookup, err := threads.EnvLookup(ctx, t, reader)
		var unreadable *thread.EnvUnreadableError
		if errors.As(err, &unreadable) {
			return "", failf(ReasonEnvUnreadable, "%s", unreadable.Error())
		}
		if err != nil {
			return "", err
		}
		values.Env = lookup
	}
	out, err := text.Render(values)
	if err != nil {
		return "", failf(ReasonContextTooLarge, "%s", err.Error())
	}
	if t.TaskID != "" {
		out += "\n\nThis conversation belongs to the task " + t.TaskID + "."
	}
	return out, nil
}

// CheckArguments holds the arguments of a thread, or of a call of a prompt, against the prompt's requiredSchema. The
// error says what is wrong, one clause for each place. A schema that cannot be used is the definition's mistake and
// refuses nothing.
func CheckArguments(p *skeinv1.PromptSpec, arguments json.RawMessage) error {
	if p.RequiredSchema == nil {
		return nil
	}
	schema, err := tool.CompileSchema(p.RequiredSchema.Raw)
	if err != nil {
		return nil
	}
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	return schema.Validate(string(arguments))
}

// checkChildArguments holds the arguments of a child that is to be against what the prompts of its agent require. An
// agent that cannot be resolved refuses none: the child waits for it.
func (e *Engine) checkChildArguments(ctx context.Context, namespace, agent string, arguments json.RawMessage) error {
	a, err := e.opts.Definitions.Agent(ctx, namespace, agent)
	if err != nil {
		return nil
	}
	for _, side := range []*definition.Side{a.A, a.B} {
		if side == nil {
			continue
		}
		if err := CheckArguments(&side.Prompt.Spec, arguments); err != nil {
			return fmt.Errorf("the arguments do not fit what the agent %s requires: %w. Start it again with these corrected", agent, err)
		}
	}
	return nil
}
