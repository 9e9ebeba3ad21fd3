package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// specification is the page whose tables are the rows of the specification, by its path in the repository.
const specification = "docs/specification.md"

var (
	// rowID matches the id of a row.
	rowID = regexp.MustCompile(`^[A-Z0-9]{3}-\d{2}$`)
	// rowLine matches a line of the page that is a row: its id, and what holds.
	rowLine = regexp.MustCompile(`^\| ([A-Z0-9]{3}-\d{2}) \| (.*\S) \|$`)
)

// tableHead holds the lines with which each table of the page begins.
var tableHead = []string{"| id | what holds |", "|---|---|"}

// rowsCommand prints one line for each row of the specification, from the reports of the tiers.
func rowsCommand(args []string) error {
	f := flag.NewFlagSet("rows", flag.ContinueOnError)
	reports := reportFlag(f)
	list := f.String("list", specification, "page whose tables list the rows")
	tiers := f.String("tiers", "conformance", "tiers whose specs count, comma-separated")
	filter := f.Bool("print-label-filter", false, "print the Ginkgo label filter that selects the rows, and stop")
	if err := f.Parse(args); err != nil {
		return err
	}
	all, err := readRows(*list)
	if err != nil {
		return err
	}
	rows, err := selectRows(all, f.Args())
	if err != nil {
		return err
	}
	if *filter {
		fmt.Println(labelFilter(f.Args()))
		return nil
	}
	var specs []spec
	for _, t := range strings.Split(*tiers, ",") {
		r, err := load(*reports, t)
		if err != nil {
			return err
		}
		if r != nil {
			specs = append(specs, r.Specs...)
		}
	}
	if printRows(os.Stdout, rows, specs) > 0 {
		return errFailed
	}
	return nil
}

// readRows returns the ids of the rows of a page, in order. Each table of the page consists of rows, so that a row whose
// id is misspelt is an error and does not vanish from the list.
func readRows(page string) ([]string, error) {
	in, err := os.Open(page)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	var rows []string
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if !strings.HasPrefix(line, "|") || slices.Contains(tableHead, line) {
			continue
		}
		row := rowLine.FindStringSubmatch(line)
		if row == nil {
			return nil, fmt.Errorf("%s:%d: %q is not a row such as | MSG-01 | what holds |", page, n, line)
		}
		rows = append(rows, row[1])
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", page, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no rows such as | MSG-01 | what holds |", page)
	}
	return rows, nil
}

// selectRows returns the requested rows: "MSG" is every row of that family, "FIL-03" is one row.
func selectRows(all, wanted []string) ([]string, error) {
	if len(wanted) == 0 {
		return all, nil
	}
	var rows []string
	for _, w := range wanted {
		n := len(rows)
		for _, id := range all {
			if (id == w || strings.HasPrefix(id, w+"-")) && !slices.Contains(rows, id) {
				rows = append(rows, id)
			}
		}
		if len(rows) == n && !slices.ContainsFunc(rows, func(id string) bool { return id == w || strings.HasPrefix(id, w+"-") }) {
			return nil, fmt.Errorf("no row is called %q: name a row such as MSG-05 or a family such as MSG", w)
		}
	}
	return rows, nil
}

// labelFilter returns a filter for the specs of the requested rows, or of all rows when none is requested.
func labelFilter(wanted []string) string {
	if len(wanted) == 0 {
		return `/^[A-Z0-9]{3}-[0-9]{2}$/`
	}
	var parts []string
	for _, w := range wanted {
		if rowID.MatchString(w) {
			parts = append(parts, w)
		} else {
			parts = append(parts, "/^"+w+"-/")
		}
	}
	return strings.Join(parts, " || ")
}

// printRows prints the rows and returns how many failed. A row passes when at least one spec with its label ran
// and passed, and none failed or was kept from running by a failed setup. A row without such a spec is missing, which
// is no failure.
func printRows(out io.Writer, rows []string, specs []spec) int {
	type count struct{ passed, failed int }
	counts := map[string]*count{}
	for _, s := range specs {
		for _, l := range s.Labels {
			c := counts[l]
			if c == nil {
				c = &count{}
				counts[l] = c
			}
			switch s.Outcome {
			case passed:
				c.passed++
			case failed, blocked:
				c.failed++
			}
		}
	}
	var pass, fail, missing int
	for _, id := range rows {
		c := counts[id]
		verdict := "missing"
		switch {
		case c != nil && c.failed > 0:
			verdict = "fail"
			fail++
		case c != nil && c.passed > 0:
			verdict = "pass"
			pass++
		default:
			missing++
		}
		fmt.Fprintf(out, "%s %s\n", id, verdict)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d missing\n", pass, fail, missing)
	return fail
}
