// Package monitoring checks the alerts and the dashboard in config/monitoring with Prometheus' own parsers. It is a module of its
// own, so that the manager does not depend on Prometheus.
package monitoring

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

var promql = parser.NewParser(parser.Options{})

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// metrics returns the labels of each metric, from the table in docs/metrics.md. Another test compares that with the source.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(skein_[a-z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(string(read(t, "docs", "metrics.md")), -1) {
		all[row[1]] = regexp.MustCompile("[a-z]+").FindAllString(row[2], -1)
	}
	if len(all) < 30 {
		t.Fatalf("docs/metrics.md has a table with only %d metrics", len(all))
	}
	return all
}

// check parses a query, and reports metrics and labels in it that do not exist.
func check(t *testing.T, where, query string, known map[string][]string) {
	t.Helper()
	expr, err := promql.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, query)
		return
	}
	var has []string // labels of the metrics in the query
	var used []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			name := n.Name
			of, ok := known[name]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
					if of, ok = known[base]; ok && suffix == "_bucket" {
						of = append(slices.Clone(of), "le")
					}
				}
			}
			if !ok {
				t.Errorf("%s: there is no metric %s", where, name)
			}
			has = append(has, of...)
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName {
					used = append(used, m.Name)
				}
			}
		case *parser.AggregateExpr:
			used = append(used, n.Grouping...)
		}
		return nil
	})
	for _, label := range used {
		if !slices.Contains(has, label) {
			t.Errorf("%s: no metric of the query has the label %s: %s", where, label, query)
		}
	}
}

// groupsOf returns the alerts in config/monitoring.
func groupsOf(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	var object struct {
		Kind string
		Spec yaml.Node
	}
	if err := yaml.Unmarshal(read(t, "config", "monitoring", "prometheusrule.yaml"), &object); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	return groups
}

func TestAlerts(t *testing.T) {
	groups := groupsOf(t)
	known, page, alerts := metrics(t), string(read(t, "docs", "metrics.md")), 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			alerts++
			check(t, "alert "+r.Alert, r.Expr, known)
			if !strings.Contains(page, "\n#### "+r.Alert+"\n") {
				t.Errorf("docs/metrics.md does not say what to do about %s", r.Alert)
			}
			if r.Annotations["runbook"] != "docs/metrics.md#"+strings.ToLower(r.Alert) || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
				t.Errorf("alert %s lacks a summary, a severity or its runbook", r.Alert)
			}
		}
	}
	if alerts == 0 {
		t.Error("there are no alerts")
	}
}

func TestDashboard(t *testing.T) {
	var dashboard struct {
		UID, Title string
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "config", "monitoring", "dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) < 10 {
		t.Errorf("not a dashboard: %q with %d panels", dashboard.Title, len(dashboard.Panels))
	}
	known, ids := metrics(t), map[int]bool{}
	variables := regexp.MustCompile(`\$[a-zA-Z_]+`)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q has no title, no query, no place or the id of another", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			// Grafana replaces its variables before Prometheus sees the query.
			query := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			query = variables.ReplaceAllStringFunc(query, func(name string) string {
				for _, v := range dashboard.Templating.List {
					if "$"+v.Name == name {
						return ".*"
					}
				}
				t.Errorf("panel %q uses %s, which is no variable of the dashboard", p.Title, name)
				return ".*"
			})
			check(t, "panel "+p.Title, query, known)
		}
	}
}
