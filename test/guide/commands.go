package guide

import (
	"regexp"
	"slices"
	"strings"
)

// Command is a command that a page shows.
type Command struct {
	// From is where it is, such as docs/usage.md:6.
	From string
	// Text is the command as printed, all of its lines.
	Text string
	// Output is what the page shows of its output; empty where it shows none.
	Output string
}

// Commands returns the commands of a page, in order: of blocks in sh, and those behind the prompts of blocks in console.
func Commands(root, page string) ([]Command, error) {
	blocks, err := Blocks(root, page)
	if err != nil {
		return nil, err
	}
	var commands []Command
	for _, b := range blocks {
		switch b.Language {
		case "sh", "bash":
			commands = append(commands, shell(b)...)
		case "console":
			commands = append(commands, console(b)...)
		}
	}
	return commands, nil
}

// shell splits a block at the ends of lines that do not continue.
func shell(b Block) []Command {
	var commands []Command
	var text strings.Builder
	for i, line := range strings.Split(strings.TrimRight(b.Text, "\n"), "\n") {
		if text.Len() == 0 && (line == "" || strings.HasPrefix(line, "#")) {
			continue
		}
		if text.Len() == 0 {
			commands = append(commands, Command{From: Block{Page: b.Page, Line: b.Line + i}.String()})
		}
		text.WriteString(line + "\n")
		if !strings.HasSuffix(line, `\`) && !strings.HasSuffix(line, "|") {
			commands[len(commands)-1].Text = text.String()
			text.Reset()
		}
	}
	return commands
}

func console(b Block) []Command {
	var commands []Command
	for i, line := range strings.Split(strings.TrimRight(b.Text, "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, Command{From: Block{Page: b.Page, Line: b.Line + i}.String(), Text: command + "\n"})
		} else if len(commands) > 0 {
			commands[len(commands)-1].Output += line + "\n"
		}
	}
	return commands
}

var (
	// id matches what names one call or one thread: a UUID, with a number behind it where it is a call.
	id = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-[0-9]+)?`)
	// varying is what differs from run to run, by what it becomes.
	varying = []struct {
		what *regexp.Regexp
		name string
	}{
		{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`), "DATE"},
		{id, "ID"},
		{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "HASH"},
		{regexp.MustCompile(`\b([0-9]+(ms|s|m|h|d))+\b`), "TIME"},
		{regexp.MustCompile(`(?m)^[ │├└─]+`), ""}, // how a tree is drawn depends on what is behind a line
		{regexp.MustCompile(`[ \t]+`), " "},       // columns are as wide as their widest text
	}
)

// IDs returns the ids of an output, in order.
func IDs(output string) []string { return id.FindAllString(output, -1) }

// Same reports whether two outputs are the same but for ids, times, the width of columns and the lines that leave out
// returns true for. A line "…" of the page stands for any lines.
func Same(page, real string, leaveOut func(line string) bool) bool {
	want, got := plain(page, leaveOut), plain(real, leaveOut)
	for len(want) > 0 && want[0] != "…" && len(got) > 0 {
		if want[0] != got[0] {
			return false
		}
		want, got = want[1:], got[1:]
	}
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] != "…" {
		return false
	}
	rest := want[1:]
	return len(got) >= len(rest) && slices.Equal(got[len(got)-len(rest):], rest)
}

func plain(output string, leaveOut func(string) bool) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		if leaveOut != nil && leaveOut(line) {
			continue
		}
		for _, v := range varying {
			line = v.what.ReplaceAllString(line, v.name)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}
