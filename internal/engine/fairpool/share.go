package fairpool

// Waiting is how much work of a group waits.
type Waiting struct {
	Group string
	Count int
}

// Share says how many pieces of waiting work of each group may begin now, on workers of which busy[g] are under way for
// group g. The group with the fewest workers comes first; of groups with equally many, the first of waiting. As in a Pool, a
// fifth of the workers takes work only from groups of which nothing runs.
func Share(workers int, busy map[string]int, waiting []Waiting) map[string]int {
	free := workers
	for _, n := range busy {
		free -= n
	}
	shares := map[string]int{}
	for ; free > 0; free-- {
		next := -1
		for i, w := range waiting {
			if shares[w.Group] >= w.Count {
				continue
			}
			if next < 0 || busy[w.Group]+shares[w.Group] < busy[waiting[next].Group]+shares[waiting[next].Group] {
				next = i
			}
		}
		if next < 0 {
			break
		}
		g := waiting[next].Group
		if free <= workers/reserved && busy[g]+shares[g] > 0 {
			break // so have all others
		}
		shares[g]++
	}
	return shares
}
