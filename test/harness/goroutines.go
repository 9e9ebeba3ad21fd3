package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sort"
	"strings"
)

// Waiting returns the stacks of the goroutines of a manager that have waited for minutes, with the most frequent first. address is
// its --pprof-bind-address. It shows what a manager that does not go on waits for.
func Waiting(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/goroutine?debug=2", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	dump, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	return waiting(string(dump)), nil
}

var (
	// stackHeader is the first line of a goroutine: its number, and its state with the minutes that it has waited.
	stackHeader = regexp.MustCompile(`^goroutine \d+ \[([^,\]]*), (\d+) minutes`)
	// arguments are the values in calls, which differ between stacks that are the same otherwise.
	arguments = regexp.MustCompile(`\((0x[^)]*|\.\.\.|\{[^)]*)?\)$| \+0x[0-9a-f]+$| in goroutine \d+$`)
)

// waiting groups the goroutines of a dump that have waited for at least a minute by their stacks.
func waiting(dump string) string {
	count, state := map[string]int{}, map[string]string{}
	for goroutine := range strings.SplitSeq(dump, "\n\n") {
		header, rest, _ := strings.Cut(goroutine, "\n")
		m := stackHeader.FindStringSubmatch(header)
		if m == nil {
			continue
		}
		var calls []string
		for line := range strings.Lines(rest) {
			calls = append(calls, "  "+arguments.ReplaceAllString(strings.TrimSpace(line), ""))
		}
		stack := strings.Join(calls, "\n")
		count[stack]++
		state[stack] = fmt.Sprintf("%s, %s minutes", m[1], m[2])
	}
	stacks := make([]string, 0, len(count))
	for stack := range count {
		stacks = append(stacks, stack)
	}
	sort.Slice(stacks, func(i, j int) bool {
		if count[stacks[i]] != count[stacks[j]] {
			return count[stacks[i]] > count[stacks[j]]
		}
		return stacks[i] < stacks[j]
	})
	var b strings.Builder
	for _, stack := range stacks {
		fmt.Fprintf(&b, "%d × %s\n%s\n", count[stack], state[stack], stack)
	}
	return b.String()
}
