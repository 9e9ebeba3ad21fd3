package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newLogs(p *plugin) *cobra.Command {
	var o runtimeclient.LogOptions
	var output, firing string
	cmd := &cobra.Command{
		Use:   "logs THREAD",
		Short: "Show what the code of a thread logged",
		Long: `Show what the code of a thread logged: the console and the logger of tools, hooks, effects, endpoints and handlers.
Work after an answer that failed and hooks that failed are included.

With -o json there is one event on each line, and with yaml one document for each event. -o wide adds the number of the event and its run,
and -o name prints the numbers alone.

A run keeps 1,000 lines, and a thread keeps the newest 5,000. A line says how many lines were dropped.`,
		Example: `  # All lines that are kept
  kubectl skein logs orders

  # The last twenty, then those that come
  kubectl skein logs orders --tail 20 --follow

  # Those of one run
  kubectl skein logs orders --run sess_4f1c54b8a9c44f7d8f2f6f1b1c0f0a11

  # Those of an effect that fired for the thread
  kubectl skein logs orders --firing tomorrow/2027-01-31T09:00:00Z`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			if o.Tail < 0 || o.Tail > runtimev1.MaxPageSize {
				return fmt.Errorf("--tail=%d: it must be a number from 0, which means all, to %d", o.Tail, runtimev1.MaxPageSize)
			}
			var err error
			if o.Firing, err = firingText(firing); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := cmd.Context(), func() {}
			if !o.Follow { // a follow is meant to last
				if ctx, cancel, err = p.bounded(ctx); err != nil {
					return err
				}
			}
			defer cancel()
			each, shown := p.each(output), false
			for e, err := range t.Logs(ctx, o) {
				if err != nil {
					return endedStream(err)
				}
				shown = true
				if output == "" || output == outputWide {
					p.logLine(&e, output)
				} else if err := each(e, fmt.Sprintf("event/%d", e.Seq)); err != nil {
					return err
				}
			}
			if o.Firing != "" && !shown {
				fmt.Fprintf(p.ErrOut, "The log has no line of the firing %s: kubectl skein effect history lists firings\n", safe(o.Firing))
			}
			return context.Cause(ctx)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "Wait for more lines.")
	f.StringVar(&o.RunID, "run", "", "Show only the lines of this run. The command kubectl skein runs lists the runs.")
	f.StringVar(&firing, "firing", "", "Show only the lines of an effect that fired for the thread: the ScheduledEffect, a slash and the due time, as effect history prints it.")
	f.IntVar(&o.Tail, "tail", 0, "Begin with this number of newest lines; 0 for all.")
	cmd.MarkFlagsMutuallyExclusive("firing", "tail")
	outputFlag(cmd, &output)
	return cmd
}

// firingText returns the text that names a firing in a log.
func firingText(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	name, due, _ := strings.Cut(text, "/")
	at, err := time.Parse(time.RFC3339Nano, due)
	if name == "" || err != nil {
		return "", fmt.Errorf("--firing %q: write the name of a ScheduledEffect, a slash and a due time, such as daily/2027-01-31T09:00:00Z", text)
	}
	return name + "/" + dueText(at.UnixMicro()), nil
}

// logLine prints one line as text: time, level, source, message. The format wide adds the number of the event and the run.
func (p *plugin) logLine(e *runtimev1.Event, output string) {
	var l struct {
		runtimev1.LogLine
		Data  json.RawMessage `json:"data"`
		Hook  string          `json:"hook"`
		Task  string          `json:"task"`
		Error string          `json:"error"`
	}
	_ = json.Unmarshal(e.Data, &l) // without data only the time is printed
	switch e.Type {
	case runtimev1.EventHookFailed:
		l.Level, l.Source, l.Message = "error", "hook/"+l.Hook, l.Error
	case runtimev1.EventTaskFailed:
		l.Level, l.Source, l.Message = "error", "task/"+l.Task, l.Error
	case runtimev1.EventHandlerLog:
		l.Source = orElse(l.Source, "handler")
	}
	at := e.CreatedAt
	if l.Time != 0 {
		at = l.Time
	}
	text := indent(safe(l.Message))
	if len(l.Data) > 0 {
		text += " " + safe(plainJSON(string(l.Data)))
	}
	level := fmt.Sprintf("%-5s", l.Level)
	switch l.Level {
	case "error", "fatal":
		level = p.style.red(level)
	case "debug", "trace":
		level = p.style.dim(level)
	}
	source := ""
	if l.Source != "" {
		source = p.style.cyan(safe(l.Source)) + ": "
	}
	more := ""
	if output == outputWide {
		more = fmt.Sprintf("%d %s ", e.Seq, orDash(safe(e.RunID)))
	}
	fmt.Fprintf(p.Out, "%s%s %s %s%s\n", more, p.style.dim(time.UnixMicro(at).Format(time.RFC3339)), level, source, strings.TrimRight(text, "\n"))
}
