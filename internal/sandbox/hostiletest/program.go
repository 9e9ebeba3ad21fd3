// Package hostiletest is a collection of hostile programs and a suite that runs them on an engine. Each program says
// how it must end, and after all of them the supervisor must be as it was before. The engine is a parameter, so that
// every engine runs the same programs.
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

// Program is one hostile program and its expected outcome.
type Program struct {
	Group  string // the topic: the name of its file
	Name   string
	Source string

	// Tool means that it runs as the definition of a tool, in an isolate with state, instead of by runCode.
	Tool     bool
	Language sandbox.Language
	Memory   int64         // memory limit, in bytes
	Wall     time.Duration // time limit

	Status  []sandbox.Status // any of these is expected
	Error   string           // the expected name of the error; not checked when empty
	Message string           // an expected part of the error's message
	Log     string           // an expected part of one line of the console
	Result  any              // the expected result as JSON; not checked when HasResult is false

	HasResult bool
}

// Title returns the name of the program for reports.
func (p *Program) Title() string { return p.Group + ": " + p.Name }

// ofHost matches the functions that the suite provides to programs.
var ofHost = regexp.MustCompile(`\b(echo|big|hold|fail|table)\b|'host'`)

// Alone reports whether the program is run by runCode and needs nothing from the host, so that any client can run it.
func (p *Program) Alone() bool { return !p.Tool && !ofHost.MatchString(p.Source) }

// Defaults for a program. One that must end by itself, or by another limit, gets enough time for that on a busy
// machine too. One that may reach its time limit gets a short one.
const (
	defaultMemory = 16 << 20
	defaultWall   = 5 * time.Second
	patientWall   = 45 * time.Second
)

//go:embed programs/*.txt features/*.txt
var files embed.FS

// Load returns every hostile program with its expected outcome on an engine. On that engine, a line "key@engine:
// value" in the head of a program replaces its line "key: value".
func Load(engine string) ([]Program, error) { return load("programs", engine) }

// LoadFeatures returns the programs that are not hostile. Each shows that a feature of the language works.
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

// Parse parses the programs of a file. Each starts with a line "=== name", continues with a head of lines "key:
// value" up to a line "--", and ends where the next one begins.
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

// repeated matches the notation for a text that is repeated many times: @@1000:x@@.
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
