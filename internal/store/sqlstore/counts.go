package sqlstore

import (
	"fmt"
	"strconv"
	"strings"
)

// counts holds the number of messages of a thread by depth, spoken and silent ones apart, so that the total of any page
// is known without counting rows. It is stored as "spoken/silent,…", one pair for each depth from 0.
type counts [][2]int64

func parseCounts(s string) (counts, error) {
	var c counts
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

// String returns the form that parseCounts reads.
func (c counts) String() string {
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

// add adds n messages.
func (c *counts) add(depth int, silent bool, n int64) {
	for len(*c) <= depth {
		*c = append(*c, [2]int64{})
	}
	if silent {
		(*c)[depth][1] += n
	} else {
		(*c)[depth][0] += n
	}
}

// total returns the number of messages up to a depth, or of all depths.
func (c counts) total(includeSilent bool, maxDepth int, allDepths bool) (n int64) {
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
