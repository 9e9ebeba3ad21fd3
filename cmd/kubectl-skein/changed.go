package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// changing are the commands that change something and say so in a line for each change. They have --output=name, as kubectl's own have: scripts
// go on with what has changed.
var changing = strings.Split("archive,unarchive,approve,refuse,stop,continue,destroy,terminate,purge,cancel,notify,emit,import,files rm,kv set,kv delete,"+
	"state set,state delete,env set,env unset,provide,effect suspend,effect resume,effect cancel,webhook redeliver", ",")

// nameUsage is the help of their --output.
const nameUsage = "Output format: name, which prints only the names of what has changed."

// naming adds --output to the commands that change something.
func (p *plugin) naming(root *cobra.Command) {
	for _, path := range changing {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			panic("no command " + path) // a mistake in the list
		}
		var output string
		cmd.Flags().StringVarP(&output, "output", "o", "", nameUsage)
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if output != "" && output != outputName {
				return fmt.Errorf("--output=%s: give name, or leave it out", output)
			}
			p.onlyNames = output == outputName
			return run(cmd, args)
		}
	}
}

// changed prints that something has changed: its name where only names are wanted, and else the line.
func (p *plugin) changed(name, line string, args ...any) {
	if p.onlyNames {
		fmt.Fprintln(p.Out, name)
		return
	}
	fmt.Fprintf(p.Out, line, args...)
}

func threadName(name string) string { return "thread.skein.dev/" + name }

func effectName(name string) string { return "scheduledeffect.skein.dev/" + name }
