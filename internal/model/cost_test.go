package model_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
)

var _ = Describe("Costs", Label("AGT-06"), func() {
	DescribeTable("are exact decimal numbers of dollars in JSON", func(c model.Cost, text string) {
		data, err := json.Marshal(c)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(Equal(text))
		var back model.Cost
		Expect(json.Unmarshal(data, &back)).To(Succeed())
		Expect(back).To(Equal(c))
	},
		Entry(nil, model.Cost(0), "0"), Entry(nil, model.Cost(1), "0.000000001"), Entry(nil, model.Cost(1_250_000), "0.00125"),
		Entry(nil, model.Cost(12_000_000_000), "12"), Entry(nil, model.Cost(-1_500_000_000), "-1.5"),
	)
	It("are read from what other programs write, too", func() {
		for text, want := range map[string]model.Cost{"1e-6": 1000, "0.0000000015": 2, "3": 3_000_000_000} {
			Expect(model.ParseCost(text)).To(Equal(want), text)
		}
		for _, text := range []string{"", "x", "1/3", "0x1", "99999999999999999999"} {
			_, err := model.ParseCost(text)
			Expect(err).To(HaveOccurred(), text)
		}
	})
	DescribeTable("follow the pricing", func(p *skeinv1.ModelPricing, u model.Usage, text string) {
		c, err := model.Price(p, u)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.String()).To(Equal(text))
	},
		Entry("none", nil, model.Usage{InputTokens: 5}, "0"),
		Entry("plain", &skeinv1.ModelPricing{Input: "2.50", Output: "10"}, model.Usage{InputTokens: 1000, OutputTokens: 200, ReasoningTokens: 150}, "0.0045"),
		Entry("with a cache", &skeinv1.ModelPricing{Input: "3", Output: "15", CachedInput: "0.30", CacheWrite: "3.75"},
			model.Usage{InputTokens: 10_000, CachedTokens: 7000, CacheWriteTokens: 2000, OutputTokens: 100}, "0.0141"),
		Entry("without a price for the cache", &skeinv1.ModelPricing{Input: "3"}, model.Usage{InputTokens: 1000, CachedTokens: 500}, "0.003"),
		Entry("smaller than a cent", &skeinv1.ModelPricing{Input: "0.02"}, model.Usage{InputTokens: 3}, "0.00000006"),
		Entry("with intermediate results above 64 bits", &skeinv1.ModelPricing{Input: "999999.999999"}, model.Usage{InputTokens: 5_000_000_000}, "4999999999.995"),
	)
})
