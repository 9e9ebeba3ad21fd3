// Package stacks maps the positions in stacks of the engine back to the original sources (COD-05). It imports neither a compiler nor an engine,
// so that the small programs of a sandbox can use it.
package stacks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-sourcemap/sourcemap"

	"github.com/skein-dev/skein/internal/sandbox"
)

// Mapper maps positions in stacks of the engine back to the original sources. It parses a map when the first stack
// needs it, because most code never throws. It is safe for concurrent use.
type Mapper struct {
	mu      sync.Mutex
	modules map[string]*mapped
}

type mapped struct {
	module   sandbox.Module
	parsed   bool
	consumer *sourcemap.Consumer
}

// New returns a mapper for modules, by their name in the engine.
func New(modules map[string]sandbox.Module) *Mapper {
	m := &Mapper{modules: make(map[string]*mapped, len(modules))}
	for name, module := range modules {
		m.modules[name] = &mapped{module: module}
	}
	return m
}

// frame matches a line of an engine's stack: "    at fn (main.ts:4:22)" or "    at main.ts:4:22". It is compiled when it is used, because most
// processes of a sandbox end without an error.
var frame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\s*at (?:.*?\()?)(.+?):(\d+):(\d+)(\)?)\s*$`) })

// firstFrames and lastFrames are how many frames a stack keeps of each error: those where it was thrown, and those where the code began.
const firstFrames, lastFrames = 30, 10

// Stack maps a stack, frame by frame. It omits the frames of our own code and of the engine, and most of an endless recursion.
func (m *Mapper) Stack(stack string) string {
	var out, frames []string
	for line := range strings.SplitSeq(stack, "\n") {
		line = strings.TrimRight(line, " \t\r")
		if line == "" || strings.Contains(line, "skein:") || strings.HasSuffix(line, "(native)") {
			continue
		}
		parts := frame().FindStringSubmatch(line)
		if parts == nil { // the message of a cause
			out, frames = append(append(out, shorten(frames)...), line), nil
			continue
		}
		row, _ := strconv.Atoi(parts[3])
		col, _ := strconv.Atoi(parts[4])
		file, row, col := m.Position(parts[2], row, col)
		frames = append(frames, fmt.Sprintf("%s%s:%d:%d%s", parts[1], file, row, col, parts[5]))
	}
	return strings.Join(append(out, shorten(frames)...), "\n")
}

// shorten leaves out the middle of many frames.
func shorten(frames []string) []string {
	left := len(frames) - firstFrames - lastFrames
	if left <= 1 {
		return frames
	}
	return slices.Concat(frames[:firstFrames], []string{fmt.Sprintf("    … %d more", left)}, frames[len(frames)-lastFrames:])
}

// Position maps one 1-based position. A position without a mapping stays as it is.
func (m *Mapper) Position(name string, line, column int) (string, int, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.modules[name]
	if !ok {
		return name, line, column
	}
	if !e.parsed {
		e.parsed = true
		if len(e.module.SourceMap) > 0 {
			e.consumer, _ = sourcemap.Parse("", e.module.SourceMap)
		}
	}
	file := e.module.Filename
	if file == "" {
		file = name
	}
	if e.consumer != nil {
		if _, _, l, c, ok := e.consumer.Source(line, max(column-1, 0)); ok {
			return file, l, c + 1
		}
	}
	return file, line, column
}
