package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newEffectCancel(p *plugin) *cobra.Command {
	var firing, thread string
	cmd := &cobra.Command{
		Use:   "cancel EFFECT",
		Short: "Delete a ScheduledEffect, or cancel one of its firings",
		Long: `Delete a ScheduledEffect and cancel its pending firings. With --firing the command only cancels one firing that has not ended, and the
schedule goes on. A handler that runs is stopped.`,
		Example: `  # The ScheduledEffect with all its firings
  kubectl skein effect cancel daily

  # One firing, by the due time that effect history prints
  kubectl skein effect cancel daily --firing=2027-01-31T09:00:00Z`,
		Args: exactly("EFFECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case firing != "":
				return p.cancelFiring(cmd.Context(), args[0], firing, thread)
			case cmd.Flags().Changed("firing"):
				return wrongFiring(firing)
			case thread != "":
				return errors.New("--thread needs --firing: without it, all of the ScheduledEffect is deleted")
			}
			c, o, err := p.effect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.Delete(cmd.Context(), o, client.Preconditions{UID: &o.UID}); err != nil {
				return err
			}
			p.changed(effectName(o.Name), "scheduledeffect/%s deleted; its pending firings are canceled\n", o.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&firing, "firing", "", "Cancel only the firing with this due time, as effect history prints it.")
	cmd.Flags().StringVar(&thread, "thread", "", "With --firing: name or id of the Thread, when the due time fired for several.")
	return cmd
}

// firingPrefix is before the names of firings that effect history --output=name prints.
const firingPrefix = "firing/"

func wrongFiring(text string) error {
	return fmt.Errorf("--firing %q: write a due time that effect history prints, such as 2027-01-31T09:00:00Z", text)
}

// cancelFiring cancels one firing of a ScheduledEffect.
func (p *plugin) cancelFiring(ctx context.Context, effect, firing, thread string) error {
	due, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(firing, firingPrefix))
	if err != nil {
		return wrongFiring(firing)
	}
	id, err := p.threadIDOf(ctx, thread)
	if err != nil {
		return err
	}
	c, ns, err := p.client()
	if err != nil {
		return err
	}
	f, err := c.CancelFiring(ctx, ns, effect, runtimev1.CancelFiring{Due: due.UnixMicro(), ThreadID: id})
	if err != nil {
		return err
	}
	p.changed(firingPrefix+dueText(f.Due), "scheduledeffect/%s: the firing %s is canceled\n", effect, dueText(f.Due))
	return nil
}

// threadIDOf returns the id of the Thread with a name. If there is no such Thread, it returns thread as it is, because it may be an id.
func (p *plugin) threadIDOf(ctx context.Context, thread string) (string, error) {
	if thread == "" {
		return "", nil
	}
	c, ns, err := p.objects()
	if err != nil {
		return "", err
	}
	var o skeinv1.Thread
	err = c.Get(ctx, client.ObjectKey{Namespace: ns, Name: thread}, &o)
	switch {
	case apierrors.IsNotFound(err):
		return thread, nil
	case err != nil:
		return "", err
	}
	return o.ThreadID(), nil
}
