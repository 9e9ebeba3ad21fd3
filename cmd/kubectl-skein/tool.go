package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newTool(p *plugin) *cobra.Command {
	var arguments, output string
	var queue bool
	cmd := &cobra.Command{
		Use:   "tool THREAD TOOL",
		Short: "Call a tool of the thread's agent and print its result",
		Long: `Call a tool of the thread's agent and print its result.

The command makes the call outside the conversation, which does not see it. While the call waits for a sandbox, the command
prints the reason to standard error. With --queue the run under way makes the call within the conversation, or the call
starts a run.`,
		Example: `  # Call a tool with arguments
  kubectl skein tool orders sum-column --args '{"path": "/orders.csv"}'`,
		Args: exactly("THREAD", "TOOL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			var object map[string]json.RawMessage
			if err := json.Unmarshal([]byte(arguments), &object); err != nil || object == nil {
				return fmt.Errorf(`--args=%s is not a JSON object; give one such as '{"path": "/a.csv"}'`, arguments)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if queue {
				if err := t.QueueTool(cmd.Context(), args[1], json.RawMessage(arguments)); err != nil {
					return err
				}
				fmt.Fprintf(p.Out, "tool/%s queued\n", args[1])
				return nil
			}
			stop, err := p.explainSandbox(cmd.Context(), t)
			if err != nil {
				return err
			}
			res, err := t.InvokeTool(cmd.Context(), args[1], json.RawMessage(arguments))
			stop()
			if err != nil {
				return err
			}
			return p.showToolResult(res, output)
		},
	}
	cmd.Flags().StringVar(&arguments, "args", "{}", "The arguments, a JSON object.")
	cmd.Flags().BoolVar(&queue, "queue", false, "Call the tool within the conversation, and do not wait.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Print the whole result, as json or yaml.")
	return cmd
}

func (p *plugin) showToolResult(r *runtimev1.ToolResult, output string) error {
	if output != "" {
		if err := encode(p.Out, output, r); err != nil {
			return err
		}
	} else if r.Status != runtimev1.ToolError {
		fmt.Fprintln(p.Out, safe(r.Result))
		for _, a := range r.Attachments {
			fmt.Fprintf(p.ErrOut, "file %s\n", safe(a.Path))
		}
	}
	if r.Status == runtimev1.ToolError {
		return errors.New(safe("the tool failed: " + r.Error))
	}
	return nil
}

func newNotify(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "notify THREAD TEXT",
		Short: "Send a silent message to the parent of a subagent",
		Args:  exactly("THREAD", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if err := t.NotifyParent(cmd.Context(), args[1]); err != nil {
				return err
			}
			p.changed(threadName(args[0]), "thread/%s notified its parent\n", args[0])
			return nil
		},
	}
}

func newStatus(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "status THREAD [TEXT]",
		Short: "Show the status of a subagent in the parent's registry; with a text, change it",
		Args:  upTo(1, "THREAD", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return t.SetStatus(cmd.Context(), args[1])
			}
			status, err := t.Status(cmd.Context())
			if err == nil && status != "" {
				fmt.Fprintln(p.Out, safe(status))
			}
			return err
		},
	}
}

func newEmit(p *plugin) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "emit THREAD EVENT",
		Short: "Send an event to all who follow the thread",
		Example: `  # Tell how far something is
  kubectl skein emit orders progress --data '{"step": 3, "total": 10}'`,
		Args: exactly("THREAD", "EVENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !json.Valid([]byte(data)) {
				return fmt.Errorf("--data=%s is not JSON; quote a text: --data '\"text\"'", data)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if err := t.Emit(cmd.Context(), args[1], json.RawMessage(data)); err != nil {
				return err
			}
			p.changed("event/"+args[1], "event/%s emitted\n", args[1])
			return nil
		},
	}
	cmd.Flags().StringVar(&data, "data", "null", "The data, as JSON.")
	return cmd
}
