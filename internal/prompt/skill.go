package prompt

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Limits of a skill.
const (
	// MaxSkillBytes limits the text of a skill.
	MaxSkillBytes = 128 << 10
	// MaxSkillDescription limits a description in bytes, wherever it is written.
	MaxSkillDescription = 1024
)

// fence is the line above and below the front matter of a text.
const fence = "---"

// ParseSkill splits the text of a skill in the form of a SKILL.md. It returns the instructions without the front
// matter, and the description in the front matter, if there is one (AGT-08). A text that does not begin with a line of
// three dashes has no front matter. The error says what to write instead.
func ParseSkill(text string) (description, instructions string, err error) {
	if !utf8.ValidString(text) {
		return "", "", errors.New("it is not UTF-8 text")
	}
	if len(text) > MaxSkillBytes {
		return "", "", fmt.Errorf("it has %d bytes, more than %d: make it shorter, or keep large texts in files", len(text), MaxSkillBytes)
	}
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	if head, body, found := frontMatter(text); found {
		var front struct {
			Description string `json:"description"`
		}
		if err := yaml.Unmarshal([]byte(head), &front); err != nil {
			return "", "", fmt.Errorf("the lines between the first two lines of three dashes are not YAML (%w): correct them, or begin the text with something else", err)
		}
		description, text = strings.TrimSpace(front.Description), body
	}
	if len(description) > MaxSkillDescription {
		return "", "", fmt.Errorf("its description has %d bytes, more than %d: say in a sentence or two what the skill is for", len(description), MaxSkillDescription)
	}
	if instructions = strings.TrimSpace(text); instructions == "" {
		return "", "", errors.New("it has no instructions: write the instructions, below the front matter if there is one")
	}
	return description, instructions, nil
}

// frontMatter splits a text after its front matter. found is false when it has none.
func frontMatter(text string) (head, body string, found bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != fence {
		return "", "", false
	}
	for at := 0; at <= len(rest); {
		line, _, more := strings.Cut(rest[at:], "\n")
		if strings.TrimRight(line, " \t") == fence {
			return rest[:at], rest[min(at+len(line)+1, len(rest)):], true
		}
		if !more {
			break
		}
		at += len(line) + 1
	}
	return "", "", false
}
