package prompt

import (
	"strings"
	"testing"
)

func TestSkillsText(t *testing.T) {
	for name, c := range map[string]struct{ text, description, instructions string }{
		"no front matter":              {"Add up.\n---\nThen stop.\n", "", "Add up.\n---\nThen stop."},
		"front matter":                 {"---\nname: sql\ndescription: >\n  Asks\n  databases.\nlicense: none\n---\n\n# SQL\n---\nAsk.\n", "Asks databases.", "# SQL\n---\nAsk."},
		"as Windows writes it":         {"\ufeff---\r\ndescription: d\r\n---\r\nAsk.\r\nWait.", "d", "Ask.\nWait."},
		"front matter that is empty":   {"---\n---\nAsk.", "", "Ask."},
		"a rule without a second one":  {"---\nAsk.", "", "---\nAsk."},
		"longer rules are none of it":  {"----\na\n----\nAsk.", "", "----\na\n----\nAsk."},
		"no line behind the last rule": {"---\na: b\n---", "", ""},
	} {
		description, instructions, err := ParseSkill(c.text)
		if c.instructions == "" {
			if err == nil {
				t.Errorf("%s: it was taken", name)
			}
			continue
		}
		if err != nil || description != c.description || instructions != c.instructions {
			t.Errorf("%s: got %q, %q, %v", name, description, instructions, err)
		}
	}
}

func TestWrongSkillsText(t *testing.T) {
	for text, want := range map[string]string{
		" \n":                                "write the instructions",
		"---\ndescription: d\n---\n":         "write the instructions",
		"---\na: [\n---\nAsk.":               "are not YAML",
		"---\n- a\n---\nAsk.":                "are not YAML",
		"---\ndescription: {a: b}\n---\nA":   "are not YAML",
		"\xff":                               "not UTF-8",
		strings.Repeat("x", MaxSkillBytes+1): "more than 131072",
		"---\ndescription: " + strings.Repeat("x", 1025) + "\n---\nAsk.": "more than 1024",
	} {
		if _, _, err := ParseSkill(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want it to say %q", text, err, want)
		}
	}
}
