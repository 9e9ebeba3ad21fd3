// Package hostiletest is a collection of hostile programs and the suite that runs them on an engine: each says
// how it must end, and after all of them the supervisor must stand as it stood before. The suite takes the
// engine as a parameter, so that every engine is held against the same programs.
package hostiletest

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

// Program is one hostile program and what must come of it.
type Program struct {
	Group  string // the concern: the name of its file
	Name   string
	Source string

	// Tool says that it runs as the definition of a tool, in an isolate with state, not by runCode.
	Tool     bool
	Language sandbox.Language
	Memory   int64         // limit, bytes
	Wall     time.Duration // limit

	Status  []sandbox.Status // any of these
	Error   string           // the error's name; not looked at when empty
	Message string           // a part of the error's message
	Log     string           // a part of one line of the console
	Result  any              // of a success, as JSON has it; not looked at when HasResult is false

	HasResult bool
}

// Title names the program in reports.
func (p *Program) Title() string { return p.Group + ": " + p.Name }

// ofHost is what a program may be given by the suite.
var ofHost = regexp.MustCompile(`\b(echo|big|hold|fail|table)\b|'host'`)

// Alone says that the program is run by runCode and needs nothing of the host, so that any client can run it.
func (p *Program) Alone() bool { return !p.Tool && !ofHost.MatchString(p.Source) }

// Defaults of a program that says nothing else. One that is to end by itself, or by another limit, gets the time for that on a
// busy machine too; one that may run out of time is not waited for longer.
const (
	defaultMemory = 16 << 20
	defaultWall   = 5 * time.Second
	patientWall   = 45 * time.Second
)

//go:embed programs/*.txt features/*.txt
var files embed.FS

// Load gives every hostile program, with what engine is expected to make of it. A line "key@engine: value" in a
// program's head takes the place of its line "key: value" on that engine.
func Load(engine string) ([]Program, error) { return load("programs", engine) }

// LoadFeatures gives the programs that are not hostile: each shows that a feature of the language works.
func LoadFeatures(engine string) ([]Program, error) { return load("features", engine) }

func load(folder, engine string) ([]Program, error) {
	names, err := fs.Glob(files, folder+"/*.txt")
	if err != nil {
		return nil, err
	}
	var all []Program
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		group := strings.TrimSuffix(path.Base(name), ".txt")
		programs, err := Parse(group, string(content), engine)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, programs...)
	}
	return all, nil
}

// Parse reads the programs of a file. Each starts with a line "=== name", goes on with a head of lines
// "key: value" up to a line "--", and ends where the next begins.
func Parse(group, content, engine string) ([]Program, error) {
	parts := strings.Split("\n"+content, "\n=== ")
	var out []Program
	for _, part := range parts[1:] {
		head, source, found := strings.Cut(part, "\n--\n")
		name, head, _ := strings.Cut(head, "\n")
		if !found {
			return nil, fmt.Errorf("%q has no line -- between its head and its source", name)
		}
		p := Program{Group: group, Name: name, Source: expand(source), Memory: defaultMemory}
		if err := p.read(head, engine); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// repeated is a text that stands for many of it: @@1000:x@@.
var repeated = regexp.MustCompile(`@@(\d+):([^@\n]*)@@`)

func expand(source string) string {
	return repeated.ReplaceAllStringFunc(source, func(s string) string {
		m := repeated.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[1])
		return strings.Repeat(m[2], n)
	})
}

func (p *Program) read(head, engine string) error {
	own := map[string]bool{}
	for line := range strings.Lines(head) {
		key, v, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			return fmt.Errorf("%q is no line of a head", line)
		}
		key, of, special := strings.Cut(key, "@")
		if special && of != engine || own[key] && !special {
			continue
		}
		own[key] = special
		if err := p.set(key, v); err != nil {
			return err
		}
	}
	if len(p.Status) == 0 {
		return fmt.Errorf("no status is expected")
	}
	if p.Wall == 0 {
		p.Wall = patientWall
		if slices.Contains(p.Status, sandbox.StatusTerminated) {
			p.Wall = defaultWall
		}
	}
	return nil
}

func (p *Program) set(key, v string) (err error) {
	switch key {
	case "status":
		p.Status = nil
		for _, s := range strings.Fields(v) {
			p.Status = append(p.Status, sandbox.Status(s))
		}
	case "error":
		p.Error = v
	case "message":
		p.Message = v
	case "log":
		p.Log = v
	case "result":
		p.HasResult = true
		err = json.Unmarshal([]byte(v), &p.Result)
	case "as":
		p.Tool = v == "tool"
	case "language":
		p.Language = sandbox.Language(v)
	case "wall":
		p.Wall, err = time.ParseDuration(v)
	case "memory":
		var mib int64
		mib, err = strconv.ParseInt(strings.TrimSuffix(v, "Mi"), 10, 64)
		p.Memory = mib << 20
	default:
		return fmt.Errorf("the key %q is not known", key)
	}
	return err
}
