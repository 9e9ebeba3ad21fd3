package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

const (
	// defaultAskTimeout is long enough for a manager that has just been replaced.
	defaultAskTimeout = time.Minute
	// askAgain is how often the status is read until it has the answer.
	askAgain = 200 * time.Millisecond
)

// askHelp describes how commands end that ask for firings by hand.
const askHelp = `

The command prints what became of each requested time. It exits with

  0  when each fires, waits in turn, or had fired already
  2  when the request was refused, or one of its times was skipped
  5  when the ScheduledEffect was deleted before it answered
  6  when the time ran out without an answer
  7  when the time ran out while the ScheduledEffect was not ready
  1  on any other error, and 130 when it was interrupted

kubectl skein effect history shows how a firing ends.`

// askOptions are the flags of commands that ask for firings by hand.
type askOptions struct {
	wait    bool
	timeout time.Duration
	key     string
}

func (o *askOptions) flags(cmd *cobra.Command, key string) {
	cmd.Flags().StringVar(&o.key, "idempotency-key", "", key)
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until Skein has answered the request. With --wait=false the command only makes it.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultAskTimeout, "How long to wait for the answer; 0 means no limit.")
}

func (o *askOptions) check() error {
	if len(o.key) > skeinv1.MaxRequestKey || strings.ContainsAny(o.key, ",/ ") {
		return fmt.Errorf("give --idempotency-key at most %d bytes, without commas, slashes and spaces", skeinv1.MaxRequestKey)
	}
	return nil
}

// ask adds a request by hand to an annotation of a ScheduledEffect, and prints what becomes of it.
func (p *plugin) ask(ctx context.Context, name, annotation, request string, o *askOptions) error {
	answer, err := p.answerTo(ctx, name, annotation, request, o)
	if err != nil {
		return err
	}
	if answer == nil {
		p.changed(effectName(name), "scheduledeffect/%s asked: kubectl skein effect history %s shows what becomes of it\n", name, name)
		return nil
	}
	return p.printAnswer(name, answer)
}

// answerTo adds a request by hand to an annotation of a ScheduledEffect, and returns what becomes of it. It returns nil when the options say
// not to wait for that.
func (p *plugin) answerTo(ctx context.Context, name, annotation, request string, o *askOptions) (*skeinv1.EffectRequest, error) {
	asked, err := p.annotateEffect(ctx, name, annotation, request)
	if err != nil {
		return nil, refused(err)
	}
	if !o.wait {
		return nil, nil
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	answer, err := p.awaitAnswer(ctx, asked, annotation, request, o.timeout)
	if err != nil {
		return nil, err
	}
	// Skein may process the same request twice, and marks its second answer as repeated. Without a key, no other request can have been meant.
	answer.Repeated = answer.Repeated && o.key != ""
	return answer, nil
}

// awaitAnswer waits until the status has the answer to a request.
func (p *plugin) awaitAnswer(ctx context.Context, asked *skeinv1.ScheduledEffect, annotation, request string, timeout time.Duration) (*skeinv1.EffectRequest, error) {
	last := asked
	for {
		_, now, err := p.effect(ctx, asked.Name)
		switch {
		case isLate(ctx):
			return nil, unanswered(last, timeout)
		case apierrors.IsNotFound(err), err == nil && now.UID != asked.UID:
			return nil, coded(exitEnded, fmt.Errorf("scheduledeffect/%s was deleted before it answered", asked.Name))
		case err != nil:
			return nil, err
		}
		last = now
		for i := range slices.Backward(now.Status.Requests) {
			if now.Status.Requests[i].Request == request {
				return &now.Status.Requests[i], nil
			}
		}
		if !slices.Contains(strings.Split(now.Annotations[annotation], ","), request) {
			return nil, fmt.Errorf("scheduledeffect/%[1]s has answered, and its status does not say how: see kubectl skein effect history %[1]s", asked.Name)
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errTimeout) {
				return nil, unanswered(last, timeout)
			}
			return nil, context.Cause(ctx)
		case <-time.After(askAgain):
		}
	}
}

// isLate reports whether the deadline of a context has passed. The context itself may end a little later, and client-go refuses requests with an error of
// its own in between.
func isLate(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// unanswered returns the error for a request that had no answer in time. The request stays.
func unanswered(o *skeinv1.ScheduledEffect, timeout time.Duration) error {
	text := fmt.Sprintf("scheduledeffect/%s has not answered within %s; the request stays", o.Name, timeout)
	if ready := meta.FindStatusCondition(o.Status.Conditions, skeinv1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
		return coded(exitWaits, fmt.Errorf("%s: %s: %s", text, ready.Reason, ready.Message))
	}
	return coded(exitTimeout, errors.New(text))
}

// refusedRequest returns the error for a request that was refused.
func refusedRequest(name string, a *skeinv1.EffectRequest) error {
	return coded(exitRefused, fmt.Errorf("scheduledeffect/%s refused the request: %s", name, safe(a.Refused)))
}

// printAnswer prints what became of each time of a request, and returns an error unless all is well.
func (p *plugin) printAnswer(name string, a *skeinv1.EffectRequest) error {
	if a.Refused != "" {
		return refusedRequest(name, a)
	}
	if a.Repeated {
		fmt.Fprintf(p.ErrOut, "This key was used before, so nothing was done. The answer was:\n")
		if len(a.Results) == 0 {
			fmt.Fprintf(p.ErrOut, "The answer is not kept: see kubectl skein effect history %s\n", name)
		}
	}
	var all, skipped int64
	for i := range a.Results {
		r := &a.Results[i]
		all += r.Count
		if r.Outcome == skeinv1.RequestSkipped {
			skipped += r.Count
		}
		fmt.Fprintf(p.Out, "scheduledeffect/%s: %s\n", name, safe(resultText(r)))
	}
	if skipped > 0 {
		return coded(exitRefused, fmt.Errorf("%d of %d firings were skipped", skipped, all))
	}
	return nil
}

var requestOutcomes = map[string]string{
	skeinv1.RequestFired: "fires", skeinv1.RequestQueued: "waits until an earlier firing has ended", skeinv1.RequestFiredBefore: "had fired already", skeinv1.RequestSkipped: "does not fire",
}

// resultText describes what became of due times in a row.
func resultText(r *skeinv1.EffectRequestResult) string {
	text := requestOutcomes[r.Outcome]
	if text == "" { // of a newer release
		text = r.Outcome
	}
	when := r.Time.UTC().Format(time.RFC3339Nano)
	switch {
	case r.Count > 1 && r.Until.Equal(&r.Time):
		when += fmt.Sprintf(", for %d threads", r.Count)
	case r.Count > 1:
		when += fmt.Sprintf(" to %s, %d firings", r.Until.UTC().Format(time.RFC3339Nano), r.Count)
	}
	text = when + ": " + text
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.Message != "" {
		text += " (" + r.Message + ")"
	}
	return text
}

// annotateAgain is how often an annotation is set when others change the object at the same time.
var annotateAgain = wait.Backoff{Steps: 100, Duration: 10 * time.Millisecond, Factor: 1.2, Jitter: 1, Cap: time.Second}

// annotateEffect adds to an annotation by which people ask for firings. Requests of others that wait there stay.
func (p *plugin) annotateEffect(ctx context.Context, name, key, value string) (asked *skeinv1.ScheduledEffect, err error) {
	err = retry.RetryOnConflict(annotateAgain, func() error {
		c, o, err := p.effect(ctx, name)
		if err != nil {
			return err
		}
		all := value
		if waiting := o.Annotations[key]; waiting != "" {
			all = waiting + "," + value
		}
		asked = o
		return mergeEffect(ctx, c, o, map[string]any{"metadata": map[string]any{"resourceVersion": o.ResourceVersion, "annotations": map[string]string{key: all}}})
	})
	return asked, err
}
