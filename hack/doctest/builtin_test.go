package doctest

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/builtin"
)

// Each family of built-in tools that the API takes is implemented, and the other way round. docs/tools.md has its row, which names each
// of its tools and no other. "Where a change goes" in docs/architecture.md lists these places.
func TestEachBuiltinToolHasItsPlaces(t *testing.T) {
	taken := enumOf(t, "Prompt.spec.tools[].builtin")
	if implemented := builtin.Names(); !slices.Equal(taken, implemented) {
		t.Errorf("the CRD of Prompt takes the families %q, but internal/tool/builtin implements %q", taken, implemented)
	}
	_, guide, found := strings.Cut(read(t, root, "docs/tools.md"), "\n## Built in\n")
	if !found {
		t.Fatal(`docs/tools.md has no section "Built in"`)
	}
	host := &tool.Host{Children: children{}, Memory: memory{}, Others: others{}} // every family can do something
	for _, family := range taken {
		row := regexp.MustCompile("(?m)^\\| `" + family + "` \\|(.*)\\|$").FindStringSubmatch(guide)
		if row == nil {
			t.Errorf("the table of docs/tools.md has no row for the family %s", family)
			continue
		}
		var documented []string
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, m[1])
		}
		tools, err := builtin.Family(t.Context(), skeinv1.BuiltinTool(family), host)
		if err != nil {
			t.Errorf("family %s: %v", family, err)
			continue
		}
		if _, err := tool.NewSet(tools...); err != nil {
			t.Errorf("family %s cannot be offered: %v", family, err)
		}
		offered := make([]string, 0, len(tools))
		for _, made := range tools {
			offered = append(offered, made.Definition().Name)
		}
		slices.Sort(documented)
		slices.Sort(offered)
		if !slices.Equal(documented, offered) {
			t.Errorf("the row of docs/tools.md for the family %s names the tools %q, but the family has %q", family, documented, offered)
		}
	}
}

// children has one kind, which is resumable.
type children struct{ tool.Children }

func (children) Kinds(context.Context) ([]skeinv1.AgentSubagent, error) {
	return []skeinv1.AgentSubagent{{Name: "kind", Resumable: true}}, nil
}

func (children) Living(context.Context) (map[string]int, error) { return nil, nil }

type memory struct{ tool.Memory }

// others may hand off.
type others struct{ tool.Others }

func (others) MayHandOff() bool { return true }
