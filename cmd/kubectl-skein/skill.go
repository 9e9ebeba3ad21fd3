package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newSkill(p *plugin) *cobra.Command {
	var arguments, output string
	cmd := &cobra.Command{
		Use:   "skill THREAD [NAME]",
		Short: "List the active skills of a thread; with a name, activate that skill",
		Long: `List the active skills of a thread and the arguments that they were activated with. With a name, activate that skill.

A skill stays active until the conversation is destroyed. From the next step on, the model may call the tools that this skill unlocks.`,
		Example: `  # Activate a skill before the agent finds out by itself that it needs it
  kubectl skein skill orders refunds --args '{"country": "CH"}'`,
		Args: upTo(1, "THREAD", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			var given json.RawMessage
			if arguments != "" {
				var object map[string]json.RawMessage
				if err := json.Unmarshal([]byte(arguments), &object); err != nil || object == nil {
					return fmt.Errorf(`--args=%s is not a JSON object; give one such as '{"country": "CH"}'`, arguments)
				}
				given = json.RawMessage(arguments)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				skill, err := t.ActivateSkill(cmd.Context(), args[1], given)
				if err != nil {
					return err
				}
				if done, err := p.structured(output, skill, []string{"skill/" + skill.Name}); done {
					return err
				}
				p.showSkill(skill)
				return nil
			}
			record, err := t.Get(cmd.Context())
			if err != nil {
				return err
			}
			if done, err := p.structured(output, map[string]any{"activatedSkills": record.ActivatedSkills}, namesOf(record.ActivatedSkills, func(s *runtimev1.SkillActivation) string { return "skill/" + s.Name })); done {
				return err
			}
			for i := range record.ActivatedSkills {
				p.showSkill(&record.ActivatedSkills[i])
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&arguments, "args", "", "The arguments to activate the skill with, a JSON object.")
	return cmd
}

// showSkill prints an active skill.
func (p *plugin) showSkill(s *runtimev1.SkillActivation) {
	text := "skill/" + s.Name + " active"
	if len(s.Arguments) > 0 {
		text += " with " + string(s.Arguments)
	}
	fmt.Fprintln(p.Out, safe(text))
}
