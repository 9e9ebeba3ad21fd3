// Package scripted is the model that plays a given script (AGT-06), for demos and tests. Its figures come from real
// tool results, through templates.
package scripted

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
)

// Metadata keys of the messages that a script produces.
const (
	metadataStep = "script_step"
	// metadataScript holds the name of the Model whose script was played.
	metadataScript = "script"
)

// script is a parsed list of steps.
type script []step

type step struct {
	role       model.Role
	tool       string
	matches    *regexp.Regexp // nil = any content
	times      int            // 0 = any number
	content    text
	calls      []scriptCall
	latency    time.Duration
	chunkDelay time.Duration
	failure    string
	status     int
	retryAfter time.Duration
	failures   int // tries that fail; 0 = all
	breaks     *int
	reasoning  text
	refused    bool
	finish     string
	usage      *model.Usage
	forgets    bool
}

type scriptCall struct {
	name string
	raw  string // sent unchanged when not empty
	args any    // decoded JSON whose strings are of type text
}

// Validate returns an error unless the steps can be played. The error names the step and says what is wrong.
func Validate(steps []skeinv1.ScriptStep) error {
	_, err := parse(steps)
	return err
}

func parse(steps []skeinv1.ScriptStep) (script, error) {
	if len(steps) == 0 {
		return nil, fmt.Errorf("the script has no steps")
	}
	out := make(script, 0, len(steps))
	for i, s := range steps {
		p, err := parseStep(s)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func parseStep(s skeinv1.ScriptStep) (step, error) {
	p := step{times: 1, failure: s.Error}
	p.status, p.refused, p.finish, p.forgets = int(s.Status), s.Refused, s.FinishReason, s.ForgetsSession
	if s.RetryAfter != nil {
		p.retryAfter = s.RetryAfter.Duration
	}
	if s.Failures != nil {
		p.failures = int(*s.Failures)
	}
	if s.BreaksAfter != nil {
		n := int(*s.BreaksAfter)
		p.breaks = &n
	}
	if u := s.Usage; u != nil {
		p.usage = &model.Usage{
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedTokens: u.CachedTokens,
			CacheWriteTokens: u.CacheWriteTokens, ReasoningTokens: u.ReasoningTokens,
		}
	}
	if s.Times != nil {
		p.times = int(*s.Times)
	}
	if s.Latency != nil {
		p.latency = s.Latency.Duration
	}
	if s.ChunkDelay != nil {
		p.chunkDelay = s.ChunkDelay.Duration
	}
	if s.When != nil {
		p.role, p.tool = model.Role(s.When.Role), s.When.Tool
		if s.When.Matches != "" {
			re, err := regexp.Compile(s.When.Matches)
			if err != nil {
				return p, fmt.Errorf("when.matches is not a regular expression (RE2): %w", err)
			}
			p.matches = re
		}
	}
	var err error
	if p.content, err = parseText("content", s.Content); err != nil {
		return p, err
	}
	if p.reasoning, err = parseText("reasoning", s.Reasoning); err != nil {
		return p, err
	}
	for i, c := range s.ToolCalls {
		call := scriptCall{name: c.Name, raw: c.RawArguments}
		if call.name == "" {
			return p, fmt.Errorf("toolCalls[%d] needs a name", i)
		}
		if call.raw != "" && c.Arguments != nil {
			return p, fmt.Errorf("toolCalls[%d]: give either arguments or rawArguments", i)
		}
		if c.Arguments != nil && len(c.Arguments.Raw) > 0 && string(c.Arguments.Raw) != "null" {
			v, err := decode(c.Arguments.Raw)
			if err != nil {
				return p, fmt.Errorf("toolCalls[%d].arguments are not valid JSON: %w", i, err)
			}
			if _, ok := v.(map[string]any); !ok {
				return p, fmt.Errorf("toolCalls[%d].arguments must be an object; use rawArguments for anything else", i)
			}
			if call.args, err = parseStrings(fmt.Sprintf("toolCalls[%d].arguments", i), v); err != nil {
				return p, err
			}
		}
		p.calls = append(p.calls, call)
	}
	return p, nil
}

// pick returns the number of the step that answers a conversation: the first one that matches and is not used up.
func (s script) pick(name string, messages []model.Message) (int, bool) {
	last := lastOf(messages)
	var played []int // read only if a step asks
	for i, st := range s {
		if !st.match(last) {
			continue
		}
		if st.times > 0 {
			if played == nil {
				played = s.played(name, messages)
			}
			if played[i] >= st.times {
				continue
			}
		}
		return i, true
	}
	return 0, false
}

// played returns how often each step was played. The conversation itself says so.
func (s script) played(name string, messages []model.Message) []int {
	times := make([]int, len(s))
	for i := range messages {
		m := &messages[i]
		if m.Role != model.RoleAssistant {
			continue
		}
		if by, ok := m.Metadata[metadataScript].(string); ok && by != name {
			continue // another Model played it
		}
		if n, err := strconv.Atoi(fmt.Sprint(m.Metadata[metadataStep])); err == nil && n >= 0 && n < len(times) {
			times[n]++
		}
	}
	return times
}

func (s *step) match(last model.Message) bool {
	switch {
	case s.role != "" && s.role != last.Role:
		return false
	case s.tool != "" && (last.Role != model.RoleTool || s.tool != last.Name):
		return false
	}
	return s.matches == nil || s.matches.MatchString(last.Content)
}

// lastOf returns the last message.
func lastOf(messages []model.Message) model.Message {
	if len(messages) == 0 {
		return model.Message{}
	}
	return messages[len(messages)-1]
}

// parseStrings replaces every string in a JSON value with a template.
func parseStrings(name string, v any) (any, error) {
	switch v := v.(type) {
	case string:
		return parseText(name, v)
	case map[string]any:
		for k, e := range v {
			p, err := parseStrings(name+"."+k, e)
			if err != nil {
				return nil, err
			}
			v[k] = p
		}
	case []any:
		for i, e := range v {
			p, err := parseStrings(fmt.Sprintf("%s[%d]", name, i), e)
			if err != nil {
				return nil, err
			}
			v[i] = p
		}
	}
	return v, nil
}

// arguments returns the arguments of a call as JSON text.
func (c *scriptCall) arguments(data *view) (string, error) {
	if c.raw != "" {
		return c.raw, nil
	}
	if c.args == nil {
		return "{}", nil
	}
	v, err := data.renderStrings(c.args)
	if err != nil {
		return "", err
	}
	return toJSON(v)
}
