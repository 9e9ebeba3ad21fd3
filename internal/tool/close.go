package tool

import (
	"slices"
	"strings"
)

// maxClose is the largest number of names that are suggested.
const maxClose = 3

// closest returns the names that a wrong one may have meant, the likeliest first.
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

// distance returns the number of letters to insert, remove or change to get from one name to the other.
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
