package value_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// purse is a value.Memory with a limit.
type purse struct{ left, drawn, most int64 }

var errPurse = errors.New("no more")

func (p *purse) Draw(n int64) error {
	if p.drawn+n > p.left {
		return errPurse
	}
	p.drawn += n
	p.most = max(p.most, p.drawn)
	return nil
}

func (p *purse) Return(n int64) { p.drawn -= n }

var _ = Describe("the memory of values", Label("COD-07"), func() {
	It("is allocated as members are read, not as counts claim", func() {
		// Each level claims half a million names and has one.
		frame := []byte{}
		for range 400 {
			frame = append(frame, byte(value.TagObject), 0xA0, 0xC2, 0x1E, 1, 'a')
		}
		frame = append(frame, make([]byte, 4<<20)...)
		Expect(allocated(func() {
			_, err := value.Decode(frame)
			Expect(err).To(MatchError(value.ErrMalformed))
		})).To(BeNumerically("<", 64<<20), "400 levels of claims that fit into 4 MiB took gigabytes")
	})

	DescribeTable("is known before it is allocated", func(v any) {
		b, err := value.Encode(v)
		Expect(err).NotTo(HaveOccurred())
		cost, err := value.Cost(b)
		Expect(err).NotTo(HaveOccurred())
		var kept any
		took := allocated(func() { kept, err = value.Decode(b) })
		Expect(err).NotTo(HaveOccurred())
		Expect(kept).NotTo(BeNil())
		Expect(float64(took)).To(BeNumerically("<", 3*float64(cost)), "containers that grow allocate more than they keep")
		Expect(float64(took)).To(BeNumerically(">", float64(cost)/3))
	},
		Entry("of small objects", repeat(100_000, map[string]any{"a": nil})),
		Entry("of objects with ten names", repeat(20_000, map[string]any{"a": 1.5, "b": 1.5, "c": 1.5, "d": 1.5, "e": 1.5, "f": 1.5, "g": 1.5, "h": 1.5, "i": 1.5, "j": "text"})),
		Entry("of numbers", repeat(200_000, 1.5)),
		Entry("of texts", repeat(50_000, strings.Repeat("x", 100))),
		Entry("of empty arrays", repeat(200_000, []any{1.5})),
		Entry("of bytes", make([]byte, 4<<20)),
	)

	It("is drawn for encoding before it is allocated, with what JSON takes while it is decoded", func() {
		big := []byte(strings.Repeat("x", 1<<20))
		m := &purse{left: 1<<20 + 64}
		b, err := value.EncodeWithin(big, m)
		Expect(err).NotTo(HaveOccurred())
		Expect(value.Decode(b)).To(Equal(big))
		Expect(m.most).To(BeEquivalentTo(cap(b)), "one buffer for one large value")
		m = &purse{left: 1 << 20}
		Expect(value.EncodeWithin(big, m)).Error().To(MatchError(errPurse))
		Expect(m.drawn).To(BeZero())

		list := repeat(1000, map[string]any{"a": "text", "b": []any{1.0, nil}})
		plain, err := value.Encode(list)
		Expect(err).NotTo(HaveOccurred())
		m = &purse{left: 1 << 20}
		Expect(value.EncodeWithin(list, m)).To(Equal(plain))
		Expect(m.drawn).To(BeNumerically(">=", len(plain)))
		m = &purse{left: int64(len(plain))}
		Expect(value.EncodeWithin(list, m)).Error().To(MatchError(errPurse), "the old buffer and the new one")
		Expect(m.drawn).To(BeZero())

		raw := json.RawMessage("[" + strings.Repeat("{},", 1000) + "0]")
		m = &purse{left: 100 << 10}
		Expect(value.EncodeWithin(raw, m)).Error().To(MatchError(errPurse))
		m = &purse{left: 1 << 20}
		Expect(value.EncodeWithin(raw, m)).Error().NotTo(HaveOccurred())
		Expect(m.most).To(BeNumerically(">", 300<<10))
		Expect(m.drawn).To(BeNumerically("<", 64<<10), "the decoded JSON is let go")

		var unfit *value.Error
		_, err = value.EncodeWithin([]any{func() {}}, m)
		Expect(errors.As(err, &unfit)).To(BeTrue())
		Expect(unfit.Path).To(Equal("[0]"))
	})

	It("is refused beyond the limit", func() {
		b, err := value.Encode(repeat(600_000, map[string]any{"a": nil}))
		Expect(err).NotTo(HaveOccurred())
		Expect(len(b)).To(BeNumerically("<", 4<<20))
		_, err = value.CheckCost(b)
		Expect(err).To(MatchError(value.ErrTooLarge))
	})

	It("is known for every whole value, and for no truncated one", func() {
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			b, err := value.Encode(anyValue(3).Draw(t, "value"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := value.Cost(b); err != nil {
				t.Fatalf("cost: %v", err)
			}
			b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
			if _, err := value.Cost(b); err == nil {
				t.Fatalf("the cost of half a value is known")
			}
		})
	})
})

func repeat(n int, v any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = v
	}
	return out
}
