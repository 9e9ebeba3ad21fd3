package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// strict makes all commands refuse what they would otherwise ignore: unknown words after a group of commands, and numbers and
// durations below zero.
func strict(cmd *cobra.Command) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if t := f.Value.Type(); t == "int" || t == "duration" {
			f.Value = notNegative{f.Value}
		}
	})
	for _, sub := range cmd.Commands() {
		strict(sub)
		if sub.HasSubCommands() && !sub.Runnable() {
			sub.Args, sub.RunE = cobra.ArbitraryArgs, group
		}
	}
}

// group runs a group of commands without one of its commands. The words after it name none.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	text := fmt.Sprintf("%s has no command %q: use one of %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		text += fmt.Sprintf("; did you mean %s %s?", cmd.CommandPath(), like[0])
	}
	return fmt.Errorf("%s", text)
}

// notNegative is the value of a flag that counts something, or says how long something takes.
type notNegative struct{ pflag.Value }

// Set implements pflag.Value.
func (v notNegative) Set(text string) error {
	was := v.String()
	if err := v.Value.Set(text); err != nil {
		if v.Type() == "duration" {
			return fmt.Errorf("give a duration such as 30s, 5m or 1h30m")
		}
		return fmt.Errorf("give a whole number such as 20")
	}
	if !strings.HasPrefix(v.String(), "-") {
		return nil
	}
	if err := v.Value.Set(was); err != nil {
		return err
	}
	if v.Type() == "duration" {
		return fmt.Errorf("it cannot be below 0: give a duration such as 30s")
	}
	return fmt.Errorf("it cannot be below 0: give a whole number such as 20")
}
