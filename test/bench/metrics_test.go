package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/test/harness"
)

// histogram is a native histogram of the manager: bucket → how many are in it. Its buckets are about two percent wide.
type histogram struct {
	growth float64 // a bucket's upper bound by that of the one before
	counts map[int]int64
}

// histogram reads skein_sandbox_<name>_seconds for one way of finding a sandbox.
func (b *sandboxBench) histogram(ctx SpecContext, name, found string) histogram {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(b.cluster.Client.List(ctx, &pods, client.InNamespace(harness.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	address, stop, err := b.cluster.Forward(ctx, harness.SystemNamespace, pods.Items[0].Name, 8080)
	Expect(err).NotTo(HaveOccurred())
	defer stop()
	for _, m := range scrape(ctx, address)["skein_sandbox_"+name+"_seconds"].GetMetric() {
		if m.GetLabel()[0].GetValue() == found {
			return readHistogram(m.GetHistogram())
		}
	}
	return histogram{}
}

// scrape reads the metrics that are served at an address, by name.
func scrape(ctx context.Context, address string) map[string]*dto.MetricFamily {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	req.Header.Set("Accept", string(format)) // the text form has no native histograms
	r, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = r.Body.Close() }()
	all := map[string]*dto.MetricFamily{}
	for families := expfmt.NewDecoder(r.Body, format); ; {
		var f dto.MetricFamily
		err := families.Decode(&f)
		if errors.Is(err, io.EOF) {
			return all
		}
		Expect(err).NotTo(HaveOccurred())
		all[f.GetName()] = &f
	}
}

// readHistogram lays the runs of buckets out, which a native histogram counts from bucket to bucket.
func readHistogram(d *dto.Histogram) histogram {
	GinkgoHelper()
	if d.GetSampleCount() > 0 && len(d.GetPositiveSpan()) == 0 {
		Fail("the manager has measured, and keeps no native histograms: it is older than this bench; run `make build` first")
	}
	h := histogram{growth: math.Pow(2, math.Pow(2, -float64(d.GetSchema()))), counts: map[int]int64{}}
	bucket, count, at := 0, int64(0), 0
	for _, span := range d.GetPositiveSpan() {
		bucket += int(span.GetOffset())
		for range span.GetLength() {
			count += d.GetPositiveDelta()[at]
			h.counts[bucket] = count
			bucket++
			at++
		}
	}
	return h
}

func (h histogram) minus(before histogram) histogram {
	out := histogram{growth: h.growth, counts: maps.Clone(h.counts)}
	for bucket, n := range before.counts {
		out.counts[bucket] -= n
	}
	return out
}

func (h histogram) count() (n int64) {
	for _, in := range h.counts {
		n += in
	}
	return n
}

// quantile gives the middle of the bucket that holds it.
func (h histogram) quantile(q float64) time.Duration {
	left := int64(math.Ceil(q * float64(h.count())))
	for _, bucket := range slices.Sorted(maps.Keys(h.counts)) {
		if left -= h.counts[bucket]; left <= 0 {
			return time.Duration(math.Pow(h.growth, float64(bucket)-.5) * float64(time.Second))
		}
	}
	return 0
}

func (h histogram) String() string {
	return fmt.Sprintf("p50 %s  p95 %s  p99 %s  (n=%d)", round(h.quantile(.5)), round(h.quantile(.95)), round(h.quantile(.99)), h.count())
}

// multiple is a figure as a multiple of the floor that was measured beside it.
func multiple(figure, floor time.Duration) string {
	return fmt.Sprintf("%.2f times the floor", float64(figure)/float64(floor))
}
