package tool

import (
	"slices"
	"strings"
)

// maxClose is how many names are suggested.
const maxClose = 3

// closest gives the names that a wrong one may have been meant to be, the likeliest first.
func closest(wrong string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
	}
	asked := plain(wrong)
	var list []candidate
	for _, name := range names {
		is := plain(name)
		d := distance(asked, is)
		if len(asked) >= 4 && (strings.Contains(is, asked) || strings.Contains(asked, is) && len(is) >= 4) {
			d = min(d, 1)
		}
		if d <= max(len(asked), len(is))/3 {
			list = append(list, candidate{name, d})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return a.distance - b.distance })
	var out []string
	for _, c := range list[:min(len(list), maxClose)] {
		out = append(out, c.name)
	}
	return out
}

// distance counts the letters to insert, to leave out and to change between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal, row[j] = row[j], min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
