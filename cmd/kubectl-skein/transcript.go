package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// transcript prints a conversation: one line for each message, further lines indented.
type transcript struct {
	out   io.Writer
	style style
	// full prints the complete results of tools, not only their beginning.
	full bool
}

// resultShown bounds how much of a tool's result is printed.
const resultShown = 200

func (t *transcript) message(m *runtimev1.Message) {
	at, who := t.at(m.CreatedAt), strings.Repeat("> ", m.Depth)+t.who(m) // marks messages of called prompts
	text := ""
	if m.Content != nil {
		text = safe(*m.Content)
	}
	if m.Role == runtimev1.RoleTool && !t.full {
		text = shorten(text)
	}
	var notes []string
	if m.Summary != nil {
		notes = append(notes, fmt.Sprintf("of %d messages, from %s to %s", m.Summary.Messages, safe(m.Summary.From), safe(m.Summary.To)))
	} else if m.Silent {
		notes = append(notes, "silent")
	}
	if m.Status == runtimev1.MessagePending {
		notes = append(notes, "queued")
	}
	if m.Status == runtimev1.MessageFailed || m.ToolStatus == "error" {
		notes = append(notes, "failed")
	}
	for _, a := range m.Attachments {
		notes = append(notes, "file "+safe(a.Path))
	}
	note := ""
	if len(notes) > 0 {
		note = t.style.dim(" (" + strings.Join(notes, ", ") + ")")
	}
	if text != "" || len(m.ToolCalls) == 0 {
		fmt.Fprintf(t.out, "%s %s%s: %s\n", at, who, note, indent(text))
	}
	for _, c := range m.ToolCalls {
		fmt.Fprintf(t.out, "%s %s%s %s\n", at, who, t.style.dim(" calls"), t.style.cyan(safe(c.Name)+"("+shorten(safe(plainJSON(c.Arguments)))+")"))
	}
}

func (t *transcript) who(m *runtimev1.Message) string {
	if m.Summary != nil {
		return t.style.bold("summary")
	}
	switch m.Role {
	case runtimev1.RoleUser:
		if m.Name != "" {
			return t.style.bold(t.style.green(safe(m.Name)))
		}
		return t.style.bold(t.style.green("user"))
	case runtimev1.RoleTool:
		return t.style.cyan(safe(m.Name))
	}
	return t.style.bold(m.Role)
}

func (t *transcript) at(micros int64) string {
	return t.style.dim(time.UnixMicro(micros).Format(time.TimeOnly))
}

// note prints a line that is not a message.
func (t *transcript) note(micros int64, format string, args ...any) {
	fmt.Fprintf(t.out, "%s %s\n", t.at(micros), t.style.dim(safe(fmt.Sprintf(format, args...))))
}

// indent indents all lines but the first. Empty lines stay empty.
func indent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 1; i < len(lines); i++ {
		if lines[i] != "" {
			lines[i] = "  " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// plainJSON writes JSON without the escapes that only HTML needs.
func plainJSON(text string) string {
	var v any
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if in.Decode(&v) != nil || enc.Encode(v) != nil {
		return text
	}
	return strings.TrimSpace(out.String())
}

// shorten returns the beginning of a text on one line.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > resultShown {
		return string(r[:resultShown]) + "…"
	}
	return text
}
