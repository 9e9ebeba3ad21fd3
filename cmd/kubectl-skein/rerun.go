package main

import (
	"fmt"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newRerun(p *plugin) *cobra.Command {
	var n runtimev1.NewRerun
	var run, input, output string
	cmd := &cobra.Command{
		Use:   "rerun THREAD",
		Short: "Repeat a past run from one of its steps, in a fork of the thread",
		Long: `Repeat a past run from one of its steps, in a fork of the thread. The thread itself does not change.
Step 1 is the run's first answer. --input replaces what the step read: the message for step 1, usually the result of a tool for a
later one.`,
		Example: `  # The newest run again, with another question
  kubectl skein rerun orders --input "And in March?"

  # A run from its second answer on, with another result of the tool
  kubectl skein rerun orders --run sess_0123 --step 2 --input '{"total": 0}'`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if cmd.Flags().Changed("input") {
				n.Input = &input
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if run == "" {
				newest, err := t.Runs(cmd.Context(), runtimeclient.Page{Limit: 1})
				if err != nil {
					return err
				}
				if len(newest.Runs) == 0 {
					return fmt.Errorf("thread %s has had no run: send it a message first", args[0])
				}
				run = newest.Runs[0].ID
			}
			rec, err := t.Rerun(cmd.Context(), run, n)
			if err != nil {
				return err
			}
			if output != "" {
				return encode(p.Out, output, rec)
			}
			fmt.Fprintf(p.Out, "thread/%s takes run %s of %s up again from step %d\n", rec.Name, run, args[0], n.Step)
			return nil
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "The run. The default is the newest.")
	cmd.Flags().IntVar(&n.Step, "step", 1, "The step to take up again: 1 is the run's first answer.")
	cmd.Flags().StringVar(&input, "input", "", "What the step reads instead of what it read in that run.")
	cmd.Flags().StringVar(&n.Name, "name", "", "The name of the fork's Thread object. The default derives from the name of THREAD.")
	cmd.Flags().StringVar(&n.Title, "title", "", "The title of the fork. The default is the title of THREAD with \"Forked: \" in front.")
	cmd.Flags().StringVar(&n.AgentID, "agent", "", "The agent of the fork. The default is the agent of the run.")
	cmd.Flags().StringVar(&n.IdempotencyKey, "idempotency-key", "", "A repeat with the same key makes no second fork.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml.")
	return cmd
}
