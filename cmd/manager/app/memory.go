package app

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skein-dev/skein/internal/membudget"
)

// flagMemoryBudget is the flag of the memory that namespaces share.
const flagMemoryBudget = "memory-budget"

const (
	// budgetPercent is the part of the process's memory limit that namespaces share. The rest is for objects in the cache, the
	// database's own caches, conversations that are kept between runs, copies in the making, and garbage.
	budgetPercent = 45
	// budgetWithout is the budget of a process without a memory limit.
	budgetWithout = 1 << 30
	// leastBudget is the least that a namespace can work with: the largest value that code may send takes half of it.
	leastBudget = 128 << 20
)

// memoryBudget returns how many bytes namespaces share. 0 is without limit.
func (o *Options) memoryBudget() (int64, error) {
	if o.MemoryBudget != "" {
		q, err := resource.ParseQuantity(o.MemoryBudget)
		if err != nil || q.Sign() < 0 || q.Sign() > 0 && q.Value() < leastBudget {
			return 0, fmt.Errorf("--%s=%s: give an amount of bytes such as 400Mi, at least %dMi, or 0 for no limit", flagMemoryBudget, o.MemoryBudget, leastBudget>>20)
		}
		return q.Value(), nil
	}
	limit := debug.SetMemoryLimit(-1) // reads it: GOMEMLIMIT, or a part of the limit of the pod
	if limit == math.MaxInt64 {
		return budgetWithout, nil
	}
	return max(limit/100*budgetPercent, leastBudget), nil
}

// openMemory makes the budget and measures it.
func (o *Options) openMemory(registry prometheus.Registerer) error {
	total, err := o.memoryBudget()
	if err != nil {
		return err
	}
	o.memory = membudget.New(total, 0)
	o.Logger.Info("Namespaces share a budget of memory", "bytes", total)
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_memory_budget_used_bytes",
		Help: "How much of the memory that namespaces share (--" + flagMemoryBudget + ") is drawn for values, pages, streams, uploads and conversations.",
	}, func() float64 { return float64(o.memory.Used()) })
	return registry.Register(gauge)
}
