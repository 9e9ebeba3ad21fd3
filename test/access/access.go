// Package access reads and writes the table of who may do what, docs/rights.md. A conformance spec asks a real cluster for each of its
// cells, and tests of what serves requests compare its rows with what they serve.
package access

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Page is the file of the table, relative to the root of the repository.
const Page = "docs/rights.md"

// The answers that a cell can have.
const (
	Yes     = "yes"
	No      = "no"
	Unknown = "401"   // the request has credentials that count for nothing
	Empty   = "empty" // answered, with nothing of this namespace
)

// Who are the columns of the table, in order.
var Who = []string{
	"anonymous", "viewer", "reader", "writer", "editor", "writer, editor", "admin", "admin elsewhere",
	"sandbox: account", "sandbox: certificate", "expired token", "forged header", "cluster admin",
}

// Row names a row: what is asked for, at which door.
type Row struct{ Door, Resource, Verb string }

// String returns the row in words.
func (r Row) String() string { return r.Door + ": " + r.Verb + " " + r.Resource }

// Table has the answers of each row, by column.
type Table map[Row]map[string]string

const cellsAfter = 2 // columns for the resource and the verbs

// Read returns the table in docs/rights.md below the root of the repository. Rows stand below the heading of their door.
func Read(root string) (Table, error) {
	text, err := os.ReadFile(filepath.Join(root, Page))
	if err != nil {
		return nil, err
	}
	t, door := Table{}, ""
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			door = strings.TrimSpace(heading)
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != cellsAfter+len(Who) {
			return nil, fmt.Errorf("%s: a row has %d cells, not %d: %s", Page, len(cells), cellsAfter+len(Who), line)
		}
		answers := map[string]string{}
		for i, who := range Who {
			answers[who] = strings.TrimSpace(cells[cellsAfter+i])
		}
		for _, resource := range strings.Split(strings.TrimSpace(cells[0]), ", ") {
			for _, verb := range strings.Split(strings.TrimSpace(cells[1]), ", ") {
				t[Row{door, strings.Trim(resource, "`"), verb}] = answers
			}
		}
	}
	return t, nil
}

// Write writes the tables of the doors into docs/rights.md, in place of those that are there. The text around them stays.
func (t Table) Write(root string) error {
	path := filepath.Join(root, Page)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var out strings.Builder
	old := false // whether the line is of a table that is replaced
	for line := range strings.Lines(string(text)) {
		if old && strings.HasPrefix(line, "|") {
			continue
		}
		old = false
		out.WriteString(line)
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "<!-- table of "); ok {
			out.WriteString(t.render(strings.TrimSuffix(rest, " -->")))
			old = true
		}
	}
	return os.WriteFile(path, []byte(out.String()), 0o644)
}

// render returns the rows of a door in Markdown. Verbs of a resource with the same answers share a row, and so do resources whose rows
// are all the same.
func (t Table) render(door string) string {
	byResource := map[string]map[string][]string{} // verbs by answers
	for r, answers := range t {
		if r.Door != door {
			continue
		}
		var cells []string
		for _, who := range Who {
			cells = append(cells, answers[who])
		}
		if byResource[r.Resource] == nil {
			byResource[r.Resource] = map[string][]string{}
		}
		key := strings.Join(cells, " | ")
		byResource[r.Resource][key] = append(byResource[r.Resource][key], r.Verb)
	}
	alike := map[string][]string{} // resources by their rows
	for resource, rows := range byResource {
		var lines []string
		for answers, verbs := range rows {
			slices.Sort(verbs)
			lines = append(lines, strings.Join(verbs, ", ")+" | "+answers)
		}
		slices.Sort(lines)
		key := strings.Join(lines, "\n")
		alike[key] = append(alike[key], resource)
	}
	var blocks []string
	for rows, resources := range alike {
		slices.Sort(resources)
		var block strings.Builder
		for line := range strings.Lines(rows + "\n") {
			fmt.Fprintf(&block, "| `%s` | %s |\n", strings.Join(resources, "`, `"), strings.TrimSpace(line))
		}
		blocks = append(blocks, block.String())
	}
	slices.Sort(blocks)
	head := "| what | verbs | " + strings.Join(Who, " | ") + " |\n" + strings.Repeat("|---", cellsAfter+len(Who)) + "|\n"
	return head + strings.Join(blocks, "")
}

// Differences returns what of the table differs from another, one line for each cell, sorted.
func (t Table) Differences(found Table) (lines []string) {
	for r, answers := range found {
		expected, known := t[r]
		if !known {
			lines = append(lines, fmt.Sprintf("%s has no row for %s", Page, r))
			continue
		}
		for _, who := range Who {
			if answers[who] != expected[who] {
				lines = append(lines, fmt.Sprintf("%s, as %s: %s says %q, and the answer is %q", r, who, Page, expected[who], answers[who]))
			}
		}
	}
	for r := range t {
		if _, asked := found[r]; !asked {
			lines = append(lines, fmt.Sprintf("%s has a row for %s, which nothing serves", Page, r))
		}
	}
	slices.Sort(lines)
	return lines
}
