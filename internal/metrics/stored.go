package metrics

import "github.com/prometheus/client_golang/prometheus"

// The leader alone sets these, from time to time, so that no scrape waits for the store and no other replica repeats them.
var (
	inboxOldest = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_inbox_oldest_seconds",
		Help: "Age of the oldest inbox item that waits, calls of hooks left out; 0 when none waits.",
	})
	inboxItems = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_inbox_items",
		Help: "Inbox items that wait: not delayed, and of threads that are not parked, retained or being deleted.",
	})
	storeBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_store_bytes",
		Help: "Size of the database.",
	})
	contentsBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_contents_bytes",
		Help: "Contents of files that the bucket holds. Those that several files share count once.",
	})
	storeRows = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_store_rows",
		Help: "Rows of the tables that grow with use. PostgreSQL estimates them.",
	}, []string{"table"})
	threadsTotal = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_threads",
		Help: "Thread objects.",
	}, []string{"namespace"})
	threadsNotReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_threads_not_ready",
		Help: "Thread objects that are not Ready, by the reason that the condition has.",
	}, []string{"namespace", "reason"})
)

// Stored sets what waits in the store and how large that is.
func Stored(items int64, oldest float64, bytes int64) {
	inboxItems.Set(float64(items))
	inboxOldest.Set(oldest)
	storeBytes.Set(float64(bytes))
}

// Rows sets how many rows the tables have.
func Rows(tables map[string]int64) {
	for name, n := range tables {
		storeRows.WithLabelValues(name).Set(float64(n))
	}
}

// Contents sets how many bytes the contents of files have.
func Contents(bytes int64) { contentsBytes.Set(float64(bytes)) }

// Threads counts Thread objects as they come, change and go: by 1 or by -1. The reason is "" for one that is Ready.
func Threads(namespace, reason string, by float64) {
	ns := namespaces.of(namespace)
	threadsTotal.WithLabelValues(ns).Add(by)
	if reason != "" {
		threadsNotReady.WithLabelValues(ns, reason).Add(by)
	}
}

// ForgetStored removes what only the leader sets, when this replica leads no longer.
func ForgetStored() {
	Stored(0, 0, 0)
	Contents(0)
	storeRows.Reset()
	threadsTotal.Reset()
	threadsNotReady.Reset()
	poolSandboxes.Reset()
}
