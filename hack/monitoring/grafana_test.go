package monitoring

import (
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The dashboard is read with Grafana's own types, which are generated from its schemas: a field that Grafana does not know, or a value that it does not
// take, is an error.
func TestGrafanaReadsTheDashboard(t *testing.T) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	take := func(text string) error {
		var d dashboard.Dashboard
		// Some of the types return an empty list of errors in place of nil.
		for _, err := range []error{d.UnmarshalJSONStrict([]byte(text)), d.Validate()} {
			if err != nil && err.Error() != "" {
				return err
			}
		}
		return nil
	}
	text := string(read(t, "config", "monitoring", "dashboard.json"))
	if err := take(text); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"refresh":`: `"refreshes":`, `"gridPos":`: `"place":`, `"expr":`: `"query":`,
	} {
		if !strings.Contains(text, from) {
			t.Errorf("the dashboard has no %s", from)
		}
		if take(strings.Replace(text, from, to, 1)) == nil {
			t.Errorf("%s in place of %s was taken", to, from)
		}
	}
}
