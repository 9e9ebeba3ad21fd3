package conformance

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestChaosOrder lets faults strike that take no time.
func TestChaosOrder(t *testing.T) {
	// struck returns what struck in three rounds, and for how long. The fault 3 finds something to strike every second time only.
	struck := func(seed uint64, rounds int) (names []string, c *chaos) {
		raging, calm := context.WithCancel(t.Context())
		defer calm()
		c = &chaos{log: io.Discard, seed: seed, worst: time.Minute, struck: map[string]int{}, lasted: map[string]time.Duration{}}
		d := deck{calm: time.Nanosecond}
		misses := 0
		for i := range 5 {
			name := fmt.Sprint(i)
			d.faults = append(d.faults, fault{name, func(_ context.Context, rng *rand.Rand, long time.Duration) bool {
				if misses++; i == 3 && misses%2 == 0 {
					return false
				}
				names = append(names, name)
				if len(names) <= 5 && long != time.Minute {
					t.Errorf("the fault %s lasts for %s the first time", name, long)
				}
				if len(names) == 5*rounds {
					calm()
				}
				return true
			}})
			c.struck[name] = 0
		}
		if rounds == 0 {
			calm()
		}
		c.rage(t.Context(), raging, 0, d)
		return names, c
	}
	g := NewWithT(t)
	first, c := struck(1, 3)
	g.Expect(c.unstruck()).To(BeEmpty())
	g.Expect(first).To(HaveLen(15))
	again, _ := struck(1, 3)
	g.Expect(again).To(Equal(first), "the seed decides the order")
	other, _ := struck(2, 3)
	g.Expect(other).NotTo(Equal(first))
	all, c := struck(1, 0)
	g.Expect(all).To(ConsistOf("0", "1", "2", "3", "4"), "each strikes once, though the time is over")
	g.Expect(c.unstruck()).To(BeEmpty())
	g.Expect(c.String()).To(ContainSubstring("1 × 3, for"))
}
