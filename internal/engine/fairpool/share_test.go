package fairpool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/fairpool"
)

var _ = DescribeTable("Shares of workers", func(workers int, busy map[string]int, waiting []fairpool.Waiting, want map[string]int) {
	Expect(fairpool.Share(workers, busy, waiting)).To(Equal(want))
},
	Entry("are equal for groups with enough work", 4, nil, []fairpool.Waiting{{"many", 10_000}, {"some", 10_000}}, map[string]int{"many": 2, "some": 2}),
	Entry("are not more than what waits", 9, nil, []fairpool.Waiting{{"many", 10_000}, {"one", 1}}, map[string]int{"many": 7, "one": 1}),
	Entry("count what is under way", 4, map[string]int{"many": 3}, []fairpool.Waiting{{"many", 10_000}, {"one", 1}}, map[string]int{"one": 1}),
	Entry("go to the first of equals", 1, nil, []fairpool.Waiting{{"b", 1}, {"a", 1}}, map[string]int{"b": 1}),
	Entry("of a few workers reserve none", 4, nil, []fairpool.Waiting{{"many", 10_000}}, map[string]int{"many": 4}),
	Entry("reserve a fifth for groups of which nothing runs", 10, nil, []fairpool.Waiting{{"many", 10_000}}, map[string]int{"many": 8}),
	Entry("go to groups of which nothing runs once only the reserved fifth is left", 10, map[string]int{"many": 8}, []fairpool.Waiting{{"many", 10_000}, {"a", 5}, {"b", 5}, {"c", 5}}, map[string]int{"a": 1, "b": 1}),
	Entry("are none when all workers are busy", 2, map[string]int{"a": 2}, []fairpool.Waiting{{"b", 5}}, map[string]int{}),
	Entry("are none when nothing waits", 2, nil, nil, map[string]int{}),
)
