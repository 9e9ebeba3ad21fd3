package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/recurrence"
)

func newEffect(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "effect",
		Short: "Show, run, suspend and cancel ScheduledEffects",
		Long: `Show, run, suspend and cancel ScheduledEffects. EFFECT is the name of a ScheduledEffect.

All commands except "next -f" need the right to read or change ScheduledEffects.`,
	}
	cmd.AddCommand(newEffectList(p), newEffectNext(p), newEffectRun(p), newEffectBackfill(p), newEffectSuspend(p, true), newEffectSuspend(p, false), newEffectCancel(p), newEffectHistory(p), newEffectLogs(p))
	return cmd
}

// objects returns a client for Skein's objects, and the namespace.
func (p *plugin) objects() (client.Client, string, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, "", err
	}
	c, err := threadObjects(cfg)
	return c, ns, err
}

// effect reads a ScheduledEffect of the namespace.
func (p *plugin) effect(ctx context.Context, name string) (client.Client, *skeinv1.ScheduledEffect, error) {
	c, ns, err := p.objects()
	if err != nil {
		return nil, nil, err
	}
	o := &skeinv1.ScheduledEffect{}
	err = c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, o)
	return c, o, err
}

// effects lists the ScheduledEffects of the namespace, or of all namespaces.
func (p *plugin) effects(ctx context.Context, all bool) (client.Client, []skeinv1.ScheduledEffect, error) {
	c, ns, err := p.objects()
	if err != nil {
		return nil, nil, err
	}
	list := &skeinv1.ScheduledEffectList{}
	var opts []client.ListOption
	if !all {
		opts = append(opts, client.InNamespace(ns))
	}
	if err := c.List(ctx, list, opts...); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list.Items, func(a, b skeinv1.ScheduledEffect) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return c, list.Items, nil
}

func newEffectList(p *plugin) *cobra.Command {
	var all bool
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List ScheduledEffects with their next and last due times",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			_, list, err := p.effects(cmd.Context(), all)
			if err != nil {
				return err
			}
			if done, err := p.structured(output, objectList("ScheduledEffectList", list), namesOf(list, func(e *skeinv1.ScheduledEffect) string { return "scheduledeffect.skein.dev/" + e.Name })); done {
				return err
			}
			if len(list) == 0 {
				fmt.Fprintln(p.ErrOut, "No ScheduledEffects found.")
				return nil
			}
			column := func(ns string) string {
				if !all {
					return ""
				}
				return ns + "\t"
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, wideRow(output, column("NAMESPACE")+"NAME\tSCHEDULE\tNEXT\tLAST\tACTIVE\tOUTCOME\tPHASE", "EFFECT", "THREAD"))
			for i := range list {
				o := &list[i]
				s := &o.Status
				thread := ""
				if o.Spec.ThreadRef != nil {
					thread = o.Spec.ThreadRef.Name
				}
				fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s%s\t%s\t%s\t%s\t%d\t%s\t%s", column(o.Namespace), o.Name, safe(scheduleText(o)), utc(s.NextTime), ago(s.LastTime), s.Active,
					orDash(s.LastOutcome), effectPhase(s)), doing(&o.Spec), thread))
			}
			return w.Flush()
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "List those of all namespaces.")
	return cmd
}

// effectPhase returns the phase, with the reason why the object is not ready if it is not.
func effectPhase(s *skeinv1.ScheduledEffectStatus) string {
	if ready := meta.FindStatusCondition(s.Conditions, skeinv1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
		if phase := cmp.Or(s.Phase, "NotReady"); phase != ready.Reason {
			return fmt.Sprintf("%s (%s)", phase, ready.Reason)
		}
	}
	return orDash(s.Phase)
}

func scheduleText(o *skeinv1.ScheduledEffect) string {
	switch {
	case len(o.Spec.Schedules) > 0:
		text := strings.Join(o.Spec.Schedules, ", ")
		if o.Spec.TimeZone != "" {
			text += " (" + o.Spec.TimeZone + ")"
		}
		return text
	case o.Spec.At != nil:
		return "at " + o.Spec.At.UTC().Format(time.RFC3339)
	case o.Spec.After != nil:
		return "after " + o.Spec.After.Duration.String()
	}
	return "-"
}

func utc(t *metav1.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func ago(t *metav1.Time) string {
	if t == nil {
		return "-"
	}
	return duration.HumanDuration(time.Since(t.Time)) + " ago"
}

func newEffectNext(p *plugin) *cobra.Command {
	var file string
	count := 10
	cmd := &cobra.Command{
		Use:   "next EFFECT",
		Short: "Show the next due times, also of a file that is not applied yet",
		Long: `Show the next due times, in UTC and in the schedule's time zone. With --file the command asks no server: it computes the
times from the file. It leaves out the jitter, which the object gets when it is created.`,
		Example: `  # The next ten times of an object
  kubectl skein effect next daily

  # The next three times of a file
  kubectl skein effect next -f daily.yaml --count=3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				return exactly()(cmd, args)
			}
			return exactly("EFFECT")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > 1000 {
				return errors.New("give --count a number from 1 to 1000")
			}
			o := &skeinv1.ScheduledEffect{}
			var err error
			if file != "" {
				err = p.effectOf(file, o)
			} else {
				_, o, err = p.effect(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return p.printNext(o, time.Now(), count)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "File with the ScheduledEffect; - reads standard input.")
	cmd.Flags().IntVar(&count, "count", count, "How many times to show.")
	return cmd
}

// printNext prints the due times of an object after an instant.
func (p *plugin) printNext(o *skeinv1.ScheduledEffect, now time.Time, n int) error {
	if o.Undecodable != "" {
		return errors.New(o.Undecodable)
	}
	times, err := effectplan.Next(o, now, n)
	if err != nil {
		return err
	}
	loc, err := recurrence.Location(o.Spec.TimeZone)
	if err != nil {
		return err
	}
	if len(times) == 0 {
		fmt.Fprintln(p.ErrOut, "No due time is left.")
		return nil
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	for _, t := range times {
		line := t.UTC().Format(time.RFC3339)
		if loc != time.UTC {
			line += "\t" + t.In(loc).Format("Mon 2006-01-02 15:04:05 MST")
		}
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case o.Spec.Suspend:
		fmt.Fprintln(p.ErrOut, "It is suspended: these times do not fire until you resume it.")
	case o.Status.Phase == "Paused":
		fmt.Fprintf(p.ErrOut, "It is paused after failures: these times do not fire until you resume it: kubectl skein effect resume %s\n", o.Name)
	case o.Status.Phase == "LimitReached":
		fmt.Fprintf(p.ErrOut, "Its daily limit is reached: times before %s do not fire, unless you raise spec.dailyLimit.\n", utc(o.Status.NextTime))
	}
	return nil
}
