package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newEffectRun(p *plugin) *cobra.Command {
	var o askOptions
	cmd := &cobra.Command{
		Use:   "run EFFECT",
		Short: "Fire now, in addition to the schedule",
		Long: `Fire now, in addition to the schedule. Each call is a request of its own, also when many are made at once. While another firing is under
way, spec.concurrencyPolicy decides what happens to the request.` + askHelp,
		Args: exactly("EFFECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			value := runNow()
			if o.key != "" {
				value += "/" + o.key
			}
			return p.ask(cmd.Context(), args[0], skeinv1.AnnotationRunAt, value, &o)
		},
	}
	o.flags(cmd, "A repeat with the same key within two days does not fire again, and has the same answer.")
	return cmd
}

// runNow returns a request to fire now. Where two may be made at the same time, a key tells them apart.
func runNow() string { return time.Now().UTC().Format(time.RFC3339Nano) }

func newEffectBackfill(p *plugin) *cobra.Command {
	var from, until string
	var o askOptions
	cmd := &cobra.Command{
		Use:   "backfill EFFECT",
		Short: "Fire the due times of a past range that did not fire",
		Long:  `Fire the due times of a past range that did not fire. A due time that fired already does not fire again.` + askHelp,
		Example: `  # What was due in a night of downtime
  kubectl skein effect backfill daily --from=2027-01-31T00:00:00Z --until=2027-01-31T06:00:00Z`,
		Args: exactly("EFFECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := rangeEnd("--from", from)
			if err != nil {
				return err
			}
			b, err := rangeEnd("--until", until)
			if err != nil {
				return err
			}
			if b.Before(a) {
				return errors.New("--until is before --from")
			}
			if err := o.check(); err != nil {
				return err
			}
			key := o.key
			if key == "" {
				key = uuid.NewString() // by which its answer is known
			}
			value := a.Format(time.RFC3339) + "/" + b.Format(time.RFC3339) + "/" + key
			return p.ask(cmd.Context(), args[0], skeinv1.AnnotationBackfill, value, &o)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "First time of the range, such as 2027-01-31T00:00:00Z.")
	cmd.Flags().StringVar(&until, "until", "", "Last time of the range. The default is now.")
	o.flags(cmd, "A repeat with the same key within two days does nothing, and has the same answer.")
	return cmd
}

func rangeEnd(flag, text string) (time.Time, error) {
	if text == "" && flag == "--until" {
		return time.Now().UTC(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("give %s a time such as 2027-01-31T00:00:00Z", flag)
	}
	return t.UTC(), nil
}

func mergeEffect(ctx context.Context, c client.Client, o *skeinv1.ScheduledEffect, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
}

// newEffectSuspend returns the command suspend, or resume.
func newEffectSuspend(p *plugin, suspend bool) *cobra.Command {
	name, done, short, long := "suspend", "suspended", "Skip due times until they are resumed; what is under way continues", ""
	if !suspend {
		name, done, short = "resume", "resumed", "Let due times fire again"
		long = "Let due times fire again after the ScheduledEffect was suspended, or paused because of failures. This does not lift a daily limit: raise spec.dailyLimit for that."
	}
	var every, namespaces bool
	cmd := &cobra.Command{
		Use:   name + " EFFECT",
		Short: short,
		Long:  long,
		Example: fmt.Sprintf(`  # One
  kubectl skein effect %[1]s daily

  # All of the cluster
  kubectl skein effect %[1]s --all -A`, name),
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case namespaces && !every:
				return errors.New("-A needs --all")
			case every:
				return exactly()(cmd, args)
			}
			return exactly("EFFECT")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if !every {
				c, o, err := p.effect(ctx, args[0])
				if err != nil {
					return err
				}
				_, err = p.suspendEffects(ctx, c, []skeinv1.ScheduledEffect{*o}, suspend, false, done)
				return err
			}
			c, list, err := p.effects(ctx, namespaces)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, hasEnded)
			changed, err := p.suspendEffects(ctx, c, list, suspend, namespaces, done)
			fmt.Fprintf(p.ErrOut, "%d of %d ScheduledEffects %s.\n", changed, len(list), done)
			return err
		},
	}
	cmd.Flags().BoolVar(&every, "all", false, "All ScheduledEffects of the namespace that have not ended.")
	cmd.Flags().BoolVarP(&namespaces, "all-namespaces", "A", false, "With --all: those of all namespaces.")
	return cmd
}

// hasEnded reports whether a ScheduledEffect has no due time left, so that there is nothing to suspend or to resume. An edit that Skein has not
// looked at may have given it more to do.
func hasEnded(o skeinv1.ScheduledEffect) bool {
	return o.Status.CompletionTime != nil && o.Status.ObservedGeneration == o.Generation
}

// suspension returns the change that suspends or resumes a ScheduledEffect; nil if it needs none. One that is suspended may be paused after
// failures too, which its status does not say.
func suspension(o *skeinv1.ScheduledEffect, suspend bool) map[string]any {
	patch := map[string]any{}
	if o.Spec.Suspend != suspend {
		patch["spec"] = map[string]any{"suspend": suspend}
	}
	if !suspend && (o.Status.Phase == "Paused" || (o.Spec.Suspend && o.Spec.PauseAfterFailures != nil)) {
		patch["metadata"] = map[string]any{"annotations": map[string]string{skeinv1.AnnotationResume: time.Now().UTC().Format(time.RFC3339)}}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

// unchanged says that a command did nothing, and what keeps a schedule from firing nevertheless.
func (p *plugin) unchanged(o *skeinv1.ScheduledEffect, name string, suspend bool) {
	if !p.onlyNames {
		fmt.Fprintf(p.Out, "scheduledeffect/%s unchanged\n", name)
	}
	if text := limitOf(o); text != "" && !suspend {
		fmt.Fprintln(p.ErrOut, safe(text))
	}
}

// limitOf says why a ScheduledEffect does not fire although it is resumed, or returns "".
func limitOf(o *skeinv1.ScheduledEffect) string {
	ready := meta.FindStatusCondition(o.Status.Conditions, skeinv1.ConditionReady)
	if o.Status.Phase != "LimitReached" || ready == nil {
		return ""
	}
	return "Its daily limit is reached: " + ready.Message
}

// suspendEffects suspends or resumes those that need it, and prints each that it changed. It goes on after an
// error, so that one object does not keep the others from being suspended.
func (p *plugin) suspendEffects(ctx context.Context, c client.Client, list []skeinv1.ScheduledEffect, suspend, qualified bool, done string) (changed int, err error) {
	var failed []error
	for i := range list {
		o := &list[i]
		name := o.Name
		if qualified {
			name = o.Namespace + "/" + name
		}
		patch := suspension(o, suspend)
		if patch == nil {
			if len(list) == 1 {
				p.unchanged(o, name, suspend)
			}
			continue
		}
		err := mergeEffect(ctx, c, o, patch)
		if apierrors.IsNotFound(err) && len(list) > 1 {
			continue // deleted in the meantime
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("scheduledeffect/%s: %w", name, err))
			continue
		}
		changed++
		p.changed(effectName(o.Name), "scheduledeffect/%s %s\n", name, done)
	}
	return changed, errors.Join(failed...)
}
