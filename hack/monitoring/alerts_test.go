package monitoring

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// firing is what an alert must do with what was scraped once a minute, in the notation of Prometheus' own tests of rules.
type firing struct {
	what   string
	series []string
	at     time.Duration // when the alert is looked at
	// fires is the summary of the alert, for each that fires. There is none where it is quiet.
	fires []string
}

// Histograms have their buckets as series.
var firings = map[string][]firing{
	"SkeinInboxWaits": {
		{"an item waits for longer than five minutes, for five minutes", []string{`skein_inbox_oldest_seconds 0+60x20`}, 15 * time.Minute, []string{"A thread has waited for 15m 0s to be worked on"}},
		{"of two replicas the leader knows", []string{`skein_inbox_oldest_seconds{pod="a"} 400x20`, `skein_inbox_oldest_seconds{pod="b"} 0x20`}, 15 * time.Minute, []string{"A thread has waited for 6m 40s to be worked on"}},
		{"it is for less than five minutes", []string{`skein_inbox_oldest_seconds 0+60x20`}, 9 * time.Minute, nil},
		{"the oldest is always a young one", []string{`skein_inbox_oldest_seconds 200 250 299 100 300 20x20`}, 15 * time.Minute, nil},
	},
	"SkeinThreadsNotReady": {
		{"threads of a namespace are not ready", []string{`skein_threads_not_ready{namespace="shop",reason="ModelNotReady"} 3x30`, `skein_threads_not_ready{namespace="calm",reason="ModelNotReady"} 0x30`}, 20 * time.Minute, []string{"3 threads in shop are not ready: ModelNotReady"}},
		{"only while they are made", []string{`skein_threads_not_ready{namespace="shop",reason="Pending"} 3 3 3 0x30`}, 20 * time.Minute, nil},
	},
	"SkeinRunsFail": {
		{"more than a fifth fail", []string{`skein_runs_total{namespace="shop",status="failed"} 0+3x40`, `skein_runs_total{namespace="shop",status="succeeded"} 0+7x40`, `skein_runs_total{namespace="calm",status="succeeded"} 0+7x40`}, 35 * time.Minute, []string{"30% of the runs in shop fail"}},
		{"of two replicas together", []string{`skein_runs_total{namespace="shop",status="failed",pod="a"} 0+5x40`, `skein_runs_total{namespace="shop",status="succeeded",pod="b"} 0+5x40`}, 35 * time.Minute, []string{"50% of the runs in shop fail"}},
		{"a tenth fails", []string{`skein_runs_total{namespace="shop",status="failed"} 0+1x40`, `skein_runs_total{namespace="shop",status="succeeded"} 0+9x40`}, 35 * time.Minute, nil},
		{"people stop them", []string{`skein_runs_total{namespace="shop",status="stopped"} 0+9x40`, `skein_runs_total{namespace="shop",status="failed"} 0x40`}, 35 * time.Minute, nil},
		{"there are none", []string{`skein_runs_total{namespace="shop",status="failed"} 5x40`, `skein_runs_total{namespace="shop",status="succeeded"} 7x40`}, 35 * time.Minute, nil},
	},
	"SkeinModelFails": {
		{"a provider is away", []string{`skein_model_calls_total{namespace="shop",model="m",outcome="unreachable"} 0+4x30`, `skein_model_calls_total{namespace="shop",model="m",outcome="success"} 0+4x30`, `skein_model_calls_total{namespace="shop",model="good",outcome="success"} 0+4x30`}, 28 * time.Minute, []string{"50% of the calls of the model m in shop fail"}},
		{"people stop runs in the middle of calls", []string{`skein_model_calls_total{namespace="shop",model="m",outcome="cancelled"} 0+4x30`, `skein_model_calls_total{namespace="shop",model="m",outcome="success"} 0+1x30`}, 28 * time.Minute, nil},
	},
	"SkeinLeasesLost": {
		{"replicas lose one a minute", []string{`skein_engine_lease_losses_total{pod="a"} 0+1x40`, `skein_engine_lease_losses_total{pod="b"} 0+1x40`}, 30 * time.Minute, []string{"Replicas lose the leases of threads that they work for"}},
		{"a replica is ended once", []string{`skein_engine_lease_losses_total{pod="a"} 0x10 4x30`}, 20 * time.Minute, nil},
	},
	"SkeinFiringsWait": {
		{"effects begin more than a minute late", []string{`skein_effect_firings_pending{namespace="shop"} 9x40`, `skein_effect_firings_pending{namespace="calm"} 0x40`,
			`skein_effect_handler_lateness_seconds_bucket{le="60"} 0x40`, `skein_effect_handler_lateness_seconds_bucket{le="120"} 0+5x40`, `skein_effect_handler_lateness_seconds_bucket{le="+Inf"} 0+5x40`}, 35 * time.Minute, []string{"Effects in shop are more than a minute late"}},
		{"what is due begins at once", []string{`skein_effect_firings_pending{namespace="shop"} 9x40`,
			`skein_effect_handler_lateness_seconds_bucket{le="60"} 0+5x40`, `skein_effect_handler_lateness_seconds_bucket{le="120"} 0+5x40`, `skein_effect_handler_lateness_seconds_bucket{le="+Inf"} 0+5x40`}, 35 * time.Minute, nil},
	},
	"SkeinFiringsFail": {
		{"a firing failed for good", []string{`skein_effect_firings_total{namespace="shop",status="failed"} 0x10 3x40`, `skein_effect_firings_total{namespace="shop",status="succeeded"} 0+5x50`}, 20 * time.Minute, []string{"in shop have failed for good"}},
		{"it was an hour ago", []string{`skein_effect_firings_total{namespace="shop",status="failed"} 0x10 3x90`}, 90 * time.Minute, nil},
		{"all succeed", []string{`skein_effect_firings_total{namespace="shop",status="succeeded"} 0+5x50`}, 20 * time.Minute, nil},
	},
	"SkeinCommitsSlow": {
		{"commits take a second", []string{`skein_store_commit_duration_seconds_bucket{le="0.5"} 0x40`, `skein_store_commit_duration_seconds_bucket{le="1"} 0+5x40`, `skein_store_commit_duration_seconds_bucket{le="+Inf"} 0+5x40`}, 30 * time.Minute, []string{"Commits of the store take 995ms"}},
		{"they take milliseconds", []string{`skein_store_commit_duration_seconds_bucket{le="0.005"} 0+5x40`, `skein_store_commit_duration_seconds_bucket{le="1"} 0+5x40`, `skein_store_commit_duration_seconds_bucket{le="+Inf"} 0+5x40`}, 30 * time.Minute, nil},
		{"there are none", []string{`skein_store_commit_duration_seconds_bucket{le="1"} 5x40`, `skein_store_commit_duration_seconds_bucket{le="+Inf"} 5x40`}, 30 * time.Minute, nil},
	},
	"SkeinPoolEmpty": {
		{"no sandbox gets warm", []string{`skein_sandbox_pool_sandboxes{namespace="shop",pool="default",state="desired"} 2x20`, `skein_sandbox_pool_sandboxes{namespace="shop",pool="default",state="warm"} 0x20`}, 15 * time.Minute, []string{"The pool default in shop has no warm sandbox"}},
		{"none is wanted", []string{`skein_sandbox_pool_sandboxes{namespace="shop",pool="default",state="desired"} 0x20`, `skein_sandbox_pool_sandboxes{namespace="shop",pool="default",state="warm"} 0x20`}, 15 * time.Minute, nil},
		{"they are used as fast as they come", []string{`skein_sandbox_pool_sandboxes{namespace="shop",pool="default",state="desired"} 2x20`, `skein_sandbox_pool_sandboxes{namespace="shop",pool="default",state="warm"} 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0`}, 15 * time.Minute, nil},
	},
	"SkeinManagerAway": {
		{"nothing is scraped", []string{`up{job="other"} 1x20`}, 10 * time.Minute, []string{"No replica of the manager is scraped"}},
		{"the last replica went away", []string{`skein_engine_threads_running{pod="a"} 0x5 stale`, `up{job="other"} 1x30`}, 20 * time.Minute, []string{"No replica of the manager is scraped"}},
		{"an idle replica is there", []string{`skein_engine_threads_running{pod="a"} 0x30`}, 20 * time.Minute, nil},
		{"a replica replaces another", []string{`skein_engine_threads_running{pod="a"} 0x5 stale`, `skein_engine_threads_running{pod="b"} _x8 0x20`}, 20 * time.Minute, nil},
	},
}

// TestAlertsFire evaluates each alert once a minute, as Prometheus does, over what was scraped, and compares what fires in the end.
func TestAlertsFire(t *testing.T) {
	tested := map[string]bool{}
	for _, group := range groupsOf(t).Groups {
		for _, r := range group.Rules {
			cases := firings[r.Alert]
			tested[r.Alert] = true
			loud, quiet := false, false
			for _, c := range cases {
				loud, quiet = loud || len(c.fires) > 0, quiet || len(c.fires) == 0
				t.Run(r.Alert+" when "+c.what, func(t *testing.T) { fires(t, &r, c) })
			}
			if !loud || !quiet {
				t.Errorf("alert %s needs a case in which it fires and one in which it does not", r.Alert)
			}
		}
	}
	for name := range firings {
		if !tested[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

func fires(t *testing.T, r *rulefmt.Rule, c firing) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n\t"+strings.Join(c.series, "\n\t")+"\n")
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 100_000)
	expr, err := promql.ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor), labels.FromMap(r.Labels), labels.FromMap(r.Annotations),
		labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	begin := time.Unix(0, 0).UTC()
	for at := time.Duration(0); at <= c.at; at += time.Minute {
		if _, err := rule.Eval(t.Context(), 0, begin.Add(at), rules.EngineQueryFunc(engine, storage), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, a := range rule.ActiveAlerts() {
		if a.State != rules.StateFiring {
			continue
		}
		got = append(got, a.Annotations.Get("summary"))
		if a.Labels.Get("severity") == "" {
			t.Errorf("it has the labels %s", a.Labels)
		}
	}
	if len(got) != len(c.fires) {
		t.Fatalf("%d alerts fire, and %d should: %q", len(got), len(c.fires), got)
	}
	for i, want := range c.fires {
		if !strings.Contains(got[i], want) {
			t.Errorf("the alert says %q, and not %q", got[i], want)
		}
	}
}
