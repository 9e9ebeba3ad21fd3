package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the repository.
const module = "github.com/skein-dev/skein/"

// A layering orders the packages below a folder. A package belongs to the first element of its path below the folder, or to the folder
// itself, which is ".", unless the order names it. It imports only what stands on an earlier line.
type layering struct {
	below string
	lines []string
}

// layerings are the directions of imports that docs/architecture.md draws. A package that nothing names yet gets its place here, on the first line
// that is after all that it imports.
var layerings = []layering{
	{"", []string{
		"api/lenient api/runtime internal/envkeys internal/gctune internal/jsontype internal/leader internal/membudget internal/metrics internal/ownclock internal/recurrence internal/scratch internal/sourceroot",
		"api/v1alpha1 internal/endpoint internal/store",
		"internal/effectplan internal/prompt internal/redact internal/telemetry",
		"internal/model internal/sandbox internal/thread",
		"cmd/kubectl-skein cmd/sandbox cmd/sandbox-child internal/tool",
		"internal/engine internal/gateway/ids internal/webhook",
		"internal/kube",
		"internal/apiserver",
		"internal/gateway",
		"internal/controller",
		"cmd/manager",
	}},
	{"internal/engine/", []string{
		"cancelcause causation clip definition deltas failure fairpool modellimit runlog",
		"activethreads codelog effects ports postrun related schedule transcript usage",
		"limits memory quota runstate",
		"approval codeexec compat plan postruntasks runtrace",
		"calls endpoints hooks role stop",
		"dispatch handlers request",
		"compaction executions",
		"effectcode runcode",
		"run",
		".",
	}},
	{"internal/store/sqlstore/", []string{
		"queries sqldb",
		"notify txn",
		"leases owners permits quotas relations values webhooks",
		"files firings runs",
		"inbox",
		"env messages",
		"backup eventlog search threads",
		".",
	}},
	{"internal/apiserver/", []string{
		"access aggregation audited convert flow serving status",
		"auth call lookup",
		"approvals backups code effects endpoints env family files messages router runs search state streams threads tools webhooks",
		".",
	}},
	{"internal/kube/", []string{
		"eventlimit objects ownwrites",
		"boundsecrets definitions sandboxca sandboxpod",
		"sandboxes .",
	}},
	{"internal/controller/", []string{
		"conditions statuslimit undecodable",
		"watches",
		"notifications",
		"definition sandboxpool scheduledeffect subagent thread threadquota webhook",
		".",
	}},
}

// group returns what a layering calls a package, whose path begins in the repository; ok is false for packages elsewhere.
func (l layering) group(pkg string) (name string, ok bool) {
	if l.below == "" {
		parts := strings.Split(pkg, "/")
		if len(parts) < 2 || !slices.Contains([]string{"api", "cmd", "internal"}, parts[0]) {
			return "", false
		}
		if l.layer(pkg) >= 0 {
			return pkg, true
		}
		return path.Join(parts[:2]...), true
	}
	rest, ok := strings.CutPrefix(pkg+"/", l.below)
	if !ok {
		return "", false
	}
	if first, _, _ := strings.Cut(rest, "/"); first != "" {
		return first, true
	}
	return ".", true
}

// layer returns the line of a group, or -1.
func (l layering) layer(group string) int {
	return slices.IndexFunc(l.lines, func(line string) bool { return slices.Contains(strings.Fields(line), group) })
}

// production calls a function with each Go file of programs, without tests and their helpers.
func production(t *testing.T, each func(name string, f *ast.File), mode parser.Mode) {
	t.Helper()
	for _, dir := range []string{"api", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
			base := filepath.Base(name)
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasSuffix(base, "test") || base == "pgsuite" || base == "testdata"):
				return filepath.SkipDir
			case d.IsDir(), filepath.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"), strings.HasPrefix(base, "zz_generated"):
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, mode)
			if err != nil {
				return err
			}
			for _, c := range f.Comments { // a program that generates code is no part of a program
				if strings.HasPrefix(c.Text(), "go:build ignore") {
					return nil
				}
			}
			name, err = filepath.Rel(root, name)
			if err == nil {
				each(filepath.ToSlash(name), f)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportsGoOneWay(t *testing.T) {
	production(t, func(name string, f *ast.File) {
		from := path.Dir(name)
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			for _, l := range layerings {
				user, ok1 := l.group(from)
				used, ok2 := l.group(to)
				if !ok1 || !ok2 || user == used {
					continue
				}
				if a, b := l.layer(user), l.layer(used); a < 0 || b < 0 {
					t.Errorf("%s imports %s, and one of them has no place in the order of %q: add it to layerings in hack/doctest/layers_test.go", name, to, l.below)
				} else if b >= a {
					t.Errorf("%s imports %s, which is not below it: see \"Which way dependencies go\" in docs/architecture.md", name, to)
				}
			}
		}
	}, parser.ImportsOnly|parser.ParseComments)
}
