package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository's.
const root = "../.."

func TestSelectRows(t *testing.T) {
	all := []string{"THR-01", "MSG-01", "MSG-02", "FIL-03"}
	got, err := selectRows(all, []string{"MSG", "FIL-03", "MSG-02"})
	if err != nil || !slices.Equal(got, []string{"MSG-01", "MSG-02", "FIL-03"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, wrong := range []string{"MS", "MSG-09", "msg"} {
		if _, err := selectRows(all, []string{wrong}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s was taken: %v", wrong, err)
		}
	}
	if got := labelFilter([]string{"MSG", "FIL-03"}); got != "/^MSG-/ || FIL-03" {
		t.Errorf("label filter %q", got)
	}
}

func TestPrintRows(t *testing.T) {
	var out bytes.Buffer
	n := printRows(&out, []string{"AAA-01", "AAA-02", "AAA-03", "AAA-04"}, []spec{
		{Labels: []string{"AAA-01", "AAA-02"}, Outcome: passed},
		{Labels: []string{"AAA-02"}, Outcome: failed},
		{Labels: []string{"AAA-03"}, Outcome: skipped}, // did not run: proves nothing
	})
	want := "AAA-01 pass\nAAA-02 fail\nAAA-03 missing\nAAA-04 missing\n1 passed, 1 failed, 2 missing\n"
	if n != 1 || out.String() != want {
		t.Errorf("%d failed:\n%s", n, out.String())
	}
}

func TestReadRows(t *testing.T) {
	read := func(text string) ([]string, error) {
		t.Helper()
		page := filepath.Join(t.TempDir(), "specification.md")
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readRows(page)
	}
	const head = "# Rows\n\nMSG-09 is no row here.\n\n| id | what holds |\n|---|---|\n"
	rows, err := read(head + "| MSG-01 | one |\n| MSG-02 | a `code` \\| and more. |\n\n## More\n\n| id | what holds |\n|---|---|\n| K8S-01 | three |\n")
	if err != nil || !slices.Equal(rows, []string{"MSG-01", "MSG-02", "K8S-01"}) {
		t.Errorf("read %v, %v", rows, err)
	}
	for _, wrong := range []string{"| MSG-1 | one |", "|MSG-01| one |", "| MSG-01 | |", "| MSG-01 |", "| msg-01 | one |"} {
		if rows, err := read(head + wrong + "\n"); err == nil || !strings.Contains(err.Error(), ".md:7: ") {
			t.Errorf("%s was read as %v, %v", wrong, rows, err)
		}
	}
	if rows, err := read(head); err == nil {
		t.Errorf("a page without rows was read as %v", rows)
	}
}

// specificationRows returns the rows of the specification.
func specificationRows(t *testing.T) []string {
	t.Helper()
	rows, err := readRows(filepath.Join(root, specification))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 140 {
		t.Fatalf("only %d rows", len(rows))
	}
	return rows
}

// The rows of a family stand together, and their numbers ascend.
func TestRowsAreInOrder(t *testing.T) {
	seen := map[string]bool{}
	last := ""
	for _, id := range specificationRows(t) {
		family, _, _ := strings.Cut(id, "-")
		switch {
		case seen[id]:
			t.Errorf("%s is there twice", id)
		case strings.HasPrefix(last, family+"-"):
			if id < last {
				t.Errorf("%s stands behind %s", id, last)
			}
		case seen[family]:
			t.Errorf("%s stands apart from the other rows of its family", id)
		}
		seen[id], seen[family] = true, true
		last = id
	}
}

// Each family has a section, whose heading begins with its name.
func TestFamiliesHaveHeadings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, specification))
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "## ") {
			heading = line
		}
		if row := rowLine.FindStringSubmatch(line); row != nil && !strings.HasPrefix(heading, "## "+row[1][:3]+": ") {
			t.Errorf("%s:%d: %s stands below %q", specification, i+1, row[1], heading)
		}
	}
}

// A label that names no row proves nothing, and neither do comments that cite one.
func TestRowsThatCodeNamesExist(t *testing.T) {
	exists, families := map[string]bool{}, map[string]bool{}
	for _, id := range specificationRows(t) {
		exists[id], families[id[:3]] = true, true
	}
	cited := regexp.MustCompile(`\b[A-Z0-9]{3}-\d{2}\b`)
	labels := 0
	files := token.NewFileSet()
	look := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			for _, c := range group.List {
				for _, id := range cited.FindAllString(c.Text, -1) {
					if families[id[:3]] && !exists[id] {
						t.Errorf("%s: a comment cites %s, which is not a row of %s", files.Position(c.Pos()), id, specification)
					}
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, label := range labelsOf(n) {
				id, err := strconv.Unquote(label.Value)
				if err != nil || !rowID.MatchString(id) {
					continue
				}
				labels++
				if !exists[id] {
					t.Errorf("%s: a spec has the label %s, which is not a row of %s", files.Position(label.Pos()), id, specification)
				}
			}
			return true
		})
		return nil
	}
	for _, folder := range []string{"api", "cmd", "internal", "test"} {
		if err := filepath.WalkDir(filepath.Join(root, folder), look); err != nil {
			t.Fatal(err)
		}
	}
	if labels < 200 {
		t.Errorf("only %d labels were found", labels)
	}
}

// labelsOf returns the texts that a node passes to Ginkgo's Label.
func labelsOf(n ast.Node) []*ast.BasicLit {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		ok = f.Name == "Label"
	case *ast.SelectorExpr:
		ok = f.Sel.Name == "Label"
	default:
		ok = false
	}
	if !ok {
		return nil
	}
	var texts []*ast.BasicLit
	for _, arg := range call.Args {
		if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
			texts = append(texts, text)
		}
	}
	return texts
}
