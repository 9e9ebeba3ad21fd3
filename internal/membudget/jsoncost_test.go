package membudget_test

import (
	"encoding/json"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/membudget"
)

var _ = DescribeTable("The memory of decoded JSON is known before it is taken", Label("COD-07", "K8S-12"), func(text string) {
	cost := membudget.JSONCost([]byte(text))
	var kept any
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	Expect(json.Unmarshal([]byte(text), &kept)).To(Succeed())
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	Expect(kept).NotTo(BeNil())
	Expect(float64(took)).To(BeNumerically("<", 3*float64(cost)), "containers that grow allocate more than they keep")
	Expect(float64(took)).To(BeNumerically(">", float64(cost)/5))
},
	Entry("of small objects", "["+strings.Repeat(`{"a":null},`, 50_000)+"0]"),
	Entry("of empty objects", "["+strings.Repeat(`{},`, 100_000)+"0]"),
	Entry("of empty arrays", "["+strings.Repeat(`[],`, 100_000)+"0]"),
	Entry("of numbers", "["+strings.Repeat(`1,`, 200_000)+"0]"),
	Entry("of texts", "["+strings.Repeat(`"`+strings.Repeat("x", 100)+`",`, 20_000)+"0]"),
	Entry("of texts with signs in them", "["+strings.Repeat(`"{[,\"{[,`+strings.Repeat("x", 100)+`",`, 20_000)+"0]"),
)
