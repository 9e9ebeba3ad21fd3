package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newFork(p *plugin) *cobra.Command {
	var n runtimev1.NewFork
	var message, output string
	cmd := &cobra.Command{
		Use:   "fork THREAD",
		Short: "Make a new thread that begins with the messages of this one",
		Long: `Create a new thread that begins with the messages of this one, up to the message that you name, and with its files.
Neither of the two sees what the other changes afterwards.`,
		Example: `  kubectl skein fork orders
  kubectl skein fork orders --message 4 --name orders-aside --title "Without the discount"
  kubectl skein fork orders --message 4 --say "Try it without the discount."`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if index, err := strconv.ParseInt(message, 10, 64); err == nil {
				n.MessageIndex = &index
			} else {
				n.MessageID = message
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			rec, err := t.Fork(cmd.Context(), n)
			if err != nil {
				return err
			}
			if output != "" {
				return encode(p.Out, output, rec)
			}
			fmt.Fprintf(p.Out, "thread/%s forked from %s at message %d\n", rec.Name, args[0], *rec.ForkPointIndex)
			return nil
		},
	}
	cmd.Flags().StringVar(&message, "message", "", "The last message of the fork: its index, which counts from 0 and includes silent messages, or its id. The default is the newest.")
	cmd.Flags().StringVar(&n.Name, "name", "", "The name of the fork's Thread object. The default derives from the name of THREAD.")
	cmd.Flags().StringVar(&n.Title, "title", "", "The title of the fork. The default is the title of THREAD with \"Forked: \" in front.")
	cmd.Flags().StringVar(&n.AgentID, "agent", "", "The agent of the fork. The default is the agent of THREAD.")
	cmd.Flags().StringVar(&n.Message, "say", "", "A message of the user with which the fork goes on.")
	cmd.Flags().StringVar(&n.IdempotencyKey, "idempotency-key", "", "A repeat with the same key makes no second fork.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml.")
	return cmd
}
