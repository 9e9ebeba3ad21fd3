//go:build linux && (amd64 || arm64)

package js

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Limits on the console output of a run of code. Output beyond them is dropped, and the last line says so.
const (
	maxLogs     = 1000
	maxLogBytes = 1 << 20
)

// console turns console calls into Log frames.
type console struct {
	m     *machine
	lines int
	bytes int
	// most and mostBytes limit lines and bytes.
	most, mostBytes int
	// invocation returns the invocation that a call belongs to, as far as that is known.
	invocation func() string
}

// levels maps the console's methods to log levels.
var levels = map[string]string{
	"debug": "debug", "trace": "debug", "log": "info", "info": "info", "dir": "info", "table": "info", "warn": "warn", "error": "error",
}

// methods returns the methods of the console, in the same order each time.
func (c *console) methods() []hostFunc {
	var out []hostFunc
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		out = append(out, hostFunc{name: name, call: func(args []qjs.Value) (qjs.Value, bool) {
			c.write(levels[name], c.format(args))
			return qjs.Undefined, true
		}})
	}
	return append(out, hostFunc{name: "assert", call: func(args []qjs.Value) (qjs.Value, bool) {
		if len(args) == 0 || !qjs.Truthy(c.m.vm, args[0]) {
			c.write("error", strings.TrimSpace("assertion failed: "+c.format(args[min(1, len(args)):])))
		}
		return qjs.Undefined, true
	}})
}

// install defines globalThis.console.
func (c *console) install(global qjs.Value) bool {
	object, ok := objectOf(c.m.vm, c.methods(), qjs.Hidden)
	return ok && c.m.vm.Define(global, "console", object, qjs.Hidden)
}

// format joins the arguments as consoles do, including the usual placeholders in a first text.
func (c *console) format(args []qjs.Value) string {
	vm := c.m.vm
	var out strings.Builder
	if len(args) > 1 && qjs.IsString(args[0]) {
		text := vm.Inspect(args[0])
		if strings.Contains(text, "%") {
			args = c.fill(&out, text, args[1:])
			if len(args) > 0 {
				out.WriteString(" ")
			}
		}
	}
	for i, v := range args {
		if i > 0 {
			out.WriteString(" ")
		}
		if out.Len() > protocol.MaxLog {
			break
		}
		out.WriteString(vm.Inspect(v))
	}
	return out.String()
}

// fill replaces %s, %d and similar placeholders, and returns the remaining arguments.
func (c *console) fill(out *strings.Builder, text string, args []qjs.Value) []qjs.Value {
	for {
		before, after, found := strings.Cut(text, "%")
		out.WriteString(before)
		if !found {
			return args
		}
		if after == "" {
			out.WriteString("%")
			return args
		}
		switch verb := after[0]; {
		case verb == '%':
			out.WriteString("%")
		case strings.IndexByte("sdifjoOc", verb) >= 0 && len(args) > 0:
			if verb != 'c' {
				out.WriteString(c.m.vm.Inspect(args[0]))
			}
			args = args[1:]
		default:
			out.WriteString("%" + after[:1])
		}
		text = after[1:]
	}
}

// write sends one line, within the limits.
func (c *console) write(level, message string) {
	if c.lines > c.most || c.bytes > c.mostBytes {
		return
	}
	c.lines++
	c.bytes += len(message)
	if c.lines > c.most || c.bytes > c.mostBytes {
		level, message = "warn", "the console's limit is reached: what comes after is dropped"
	}
	l := protocol.Log{Log: sandbox.Log{Level: level, Message: message, Time: time.Now()}}
	if c.invocation != nil {
		l.Invocation = c.invocation()
	}
	// A broken pipe is noticed where the machine waits.
	_ = c.m.conn.Write(protocol.TypeLog, l.Encode())
}
