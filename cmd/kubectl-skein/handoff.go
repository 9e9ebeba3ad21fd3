package main

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newHandoff(p *plugin) *cobra.Command {
	var h runtimev1.ContextHandoff
	var output string
	cmd := &cobra.Command{
		Use:   "handoff THREAD --goal TEXT",
		Short: "Start a new thread for a goal, with a summary of this one",
		Long: `Start a new thread for a goal. A model writes a summary of what matters in this thread for the goal. The new thread
starts from the goal, the summary and copies of the files that you name, and runs at once. This thread stays as it is.`,
		Example: `  # Go on in a fresh thread of the same agent
  kubectl skein handoff orders --goal "Write the report for March" --file /orders.csv

  # Another agent goes on
  kubectl skein handoff orders --goal "Answer the complaint" --agent support --comment "not about orders any more"`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			switch {
			case h.Goal == "":
				return errors.New("--goal is missing: say what the new thread is to do")
			case len(h.Files) > runtimev1.MaxHandoffFiles:
				return fmt.Errorf("--file is given %d times: name at most %d files", len(h.Files), runtimev1.MaxHandoffFiles)
			}
			if h.IdempotencyKey == "" {
				h.IdempotencyKey = uuid.NewString()
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			made, err := t.HandOff(cmd.Context(), h)
			if err != nil {
				return err
			}
			if output != "" {
				return encode(p.Out, output, made)
			}
			fmt.Fprintf(p.Out, "thread/%s created with the agent %s\n", made.Name, made.AgentID)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&h.Goal, "goal", "", "What the new thread is to do.")
	f.StringVar(&h.Agent, "agent", "", "Agent of the new thread. The default is the agent of this one.")
	f.StringArrayVar(&h.Files, "file", nil, "Path of a file that the new thread gets. You can repeat this flag, up to ten times.")
	f.StringVar(&h.Comment, "comment", "", "A note that is kept with the relationship.")
	f.StringVar(&h.Title, "title", "", "Title of the new thread.")
	f.StringVar(&h.IdempotencyKey, "idempotency-key", "", "A repeat with the same key returns the same thread.")
	f.StringVarP(&output, "output", "o", "", "Output format: json or yaml.")
	return cmd
}
