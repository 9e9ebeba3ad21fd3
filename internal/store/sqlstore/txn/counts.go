package txn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Counts holds the number of messages of a thread by depth, spoken and silent ones apart, so that the total of any page
// is known without counting rows. It is stored as "spoken/silent,…", one pair for each depth from 0.
type Counts [][2]int64

// ParseCounts reads what Counts.String returns.
func ParseCounts(s string) (Counts, error) {
	var c Counts
	if s == "" {
		return nil, nil
	}
	for pair := range strings.SplitSeq(s, ",") {
		spoken, silent, ok := strings.Cut(pair, "/")
		a, err1 := strconv.ParseInt(spoken, 10, 64)
		b, err2 := strconv.ParseInt(silent, 10, 64)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("the counts of messages are damaged: %q", s)
		}
		c = append(c, [2]int64{a, b})
	}
	return c, nil
}

// String returns the form that ParseCounts reads.
func (c Counts) String() string {
	b := make([]byte, 0, 16)
	for i, n := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n[0], 10)
		b = append(b, '/')
		b = strconv.AppendInt(b, n[1], 10)
	}
	return string(b)
}

// Add adds n messages.
func (c *Counts) Add(depth int, silent bool, n int64) {
	for len(*c) <= depth {
		*c = append(*c, [2]int64{})
	}
	if silent {
		(*c)[depth][1] += n
	} else {
		(*c)[depth][0] += n
	}
}

// Total returns the number of messages up to a depth, or of all depths.
func (c Counts) Total(includeSilent bool, maxDepth int, allDepths bool) (n int64) {
	for depth, pair := range c {
		if depth > maxDepth && !allDepths {
			break
		}
		n += pair[0]
		if includeSilent {
			n += pair[1]
		}
	}
	return n
}

// Plus returns the sum of two counts.
func (c Counts) Plus(d Counts) Counts { return c.combine(d, 1) }

// Minus returns the difference of two counts.
func (c Counts) Minus(d Counts) Counts { return c.combine(d, -1) }

func (c Counts) combine(d Counts, sign int64) Counts {
	sum := slices.Clone(c)
	for depth, pair := range d {
		sum.Add(depth, false, sign*pair[0])
		sum.Add(depth, true, sign*pair[1])
	}
	return sum
}
