package metrics

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestNamesAreBounded(t *testing.T) {
	n := newNames(3)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() { n.pair("ns", fmt.Sprint(i)) })
	}
	group.Wait()
	own := 0
	for i := range 20 {
		ns, name := n.pair("ns", fmt.Sprint(i))
		if name != other {
			own++
		} else if ns != other {
			t.Errorf("the name is %s in %s", name, ns)
		}
	}
	if own != 3 {
		t.Errorf("%d names have series of their own", own)
	}
}

func TestMetricsCanBeRegisteredAgain(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for range 2 {
		if err := Register(registry); err != nil {
			t.Fatal(err)
		}
	}
	RunEnded("ns", "succeeded", time.Second)
	ModelCalled(ModelCall{Namespace: "ns", Model: "m", Provider: "openai", Outcome: "success", Took: time.Second, Input: 3, Cost: 0.5})
	ToolCalled("ns", "", "error", time.Second)
	Committed(4, time.Millisecond)
	Threads("ns", "NotFound", 1)
	Threads("ns", "NotFound", -1)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			got[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{"skein_runs_total": 1, "skein_model_tokens_total": 3, "skein_model_cost_total": .5, "skein_tool_calls_total": 1, "skein_threads_not_ready": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, not %v", name, v, want)
		}
	}
}
