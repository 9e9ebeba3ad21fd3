package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// stages are what happens to threads, one after the other, and when.
type stages struct {
	names []string
	took  map[string][]time.Duration
}

// mark adds the time from one thing to the next.
func (s *stages) mark(name string, from, to time.Time) {
	if s.took == nil {
		s.took = map[string][]time.Duration{}
	}
	if _, known := s.took[name]; !known {
		s.names = append(s.names, name)
	}
	s.took[name] = append(s.took[name], to.Sub(from))
}

func (s *stages) print() {
	for _, name := range s.names {
		figure("    "+name, "p50 %s  p95 %s  p99 %s", round(quantile(s.took[name], .5)), round(quantile(s.took[name], .95)), round(quantile(s.took[name], .99)))
	}
}

// storedAs returns what is stored of a thread: its record, and its newest run.
func storedAs(ctx context.Context, c *harness.Cluster, ns, name string) (r runtimev1.ThreadRecord, run runtimev1.Run) {
	GinkgoHelper()
	t := c.Thread(ns, name)
	data, err := t.Request(http.MethodGet, "").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(data, &r)).To(Succeed())
	runs, err := t.Runs(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(runs).NotTo(BeEmpty())
	return r, runs[0]
}

// stagesOf says where the time of these threads went, until the write of the status that shows the end of their run. Those of an agent that
// delegates have one child each.
func stagesOf(ctx context.Context, c *harness.Cluster, ns string, since time.Time, names []string) *stages {
	GinkgoHelper()
	writes, err := c.Writes("", ns, since)
	Expect(err).NotTo(HaveOccurred())
	at := map[string]time.Time{} // by verb, resource and name; the first time
	for _, w := range writes {
		if key := w.Verb + " " + w.Resource + " " + w.Name; at[key].IsZero() {
			at[key] = w.Time
		}
	}
	children := map[string]string{}
	var l skeinv1.SubagentList
	Expect(c.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
	for i := range l.Items {
		children[l.Items[i].Spec.ParentRef.Name] = l.Items[i].Name
	}
	s := &stages{}
	for _, name := range names {
		record, run := storedAs(ctx, c, ns, name)
		stored, begun, ended := time.UnixMicro(record.CreatedAt), time.UnixMicro(run.StartedAt), time.UnixMicro(run.EndedAt)
		s.mark("creation to storage", at["create threads "+name], stored)
		s.mark("to the run", stored, begun)
		from := begun
		if child := children[name]; child != "" {
			record, run := storedAs(ctx, c, ns, child)
			declared, made := at["create subagents "+child], at["create threads "+child]
			s.mark("to the creation of the Subagent", begun, declared)
			s.mark("to the creation of its Thread", declared, made)
			s.mark("to its storage", made, time.UnixMicro(record.CreatedAt))
			s.mark("to the child's run", time.UnixMicro(record.CreatedAt), time.UnixMicro(run.StartedAt))
			from = time.UnixMicro(run.EndedAt)
			s.mark("to its end", time.UnixMicro(run.StartedAt), from)
		}
		s.mark("to the end of the run", from, ended)
		s.mark("to the write of the status", ended, at["patch threads/status "+name])
	}
	return s
}
